"""What `explain` says about questions, against the questions that are really asked.

Each example view is kept by the real protocols over rows of its workload. Of every relation rows
are deleted, inserted and modified, one update at a time: by a warehouse that has just begun, and by
one that has seen the same rows come and go before. No update may ask more than was said, and for
each relation and kind one asks exactly as much.
"""

from collections.abc import Iterator
from functools import cache

import pytest
from example_views import NAMES, VIEWS, example, workload_of
from watching import Work, rows_of, update, watched, watched_batch

from protocols.algebra.bag import Row
from protocols.explaining.asked import Rounds, number
from protocols.explaining.costs import KINDS, Cost, Costs, Kind, costs_of
from protocols.simulation.scenario import Update
from protocols.views.catalog import Relation

#: Rows per relation that are tried.
_TRIED = 6
#: Of the workloads; that of chain4 is the number of rows of all its relations together.
_SCALE, _SCALE_OF_CHAIN = 16, 40


def sql_of(name: str) -> str:
    return (VIEWS / f"{name}.sql").read_text()


@cache
def held_of(name: str) -> dict[Relation, list[Row]]:
    chosen = workload_of(name)
    return rows_of(chosen, _SCALE_OF_CHAIN if chosen == "chain4" else _SCALE, example(name))


def modified(relation: Relation, row: Row, other: Row | None) -> Row:
    """The row with everything but its key as another row has it, or NULL; truths turned round."""
    values = []
    for place, (name, type_) in enumerate(relation.columns):
        if name in relation.key:
            values.append(row[place])
        elif type_.family == "BOOLEAN" and row[place] is not None:
            values.append(not row[place])
        else:
            values.append(None if other is None else other[place])
    return tuple(values)


def tried(relation: Relation, kind: Kind, rows: list[Row]) -> Iterator[tuple[Update, Update, Row]]:
    """Updates of a kind, each with what takes it back, and the row that they are about."""
    for place, row in enumerate(rows[:_TRIED]):
        old = None if kind == "insertion" else row
        new = None if kind == "deletion" else row
        if kind == "modification":
            new = modified(relation, row, rows[place - 1] if place else None)
        yield update(relation, old, new), update(relation, new, old), row


def works(name: str, relation: Relation, kind: Kind) -> Iterator[tuple[Work, Work]]:
    """What updates of a kind asked: the first time, and after the same had come and gone."""
    held = held_of(name)
    for there, back, row in tried(relation, kind, held[relation]):
        rows = [each for each in held[relation] if each != row or kind != "insertion"]
        story = [there, back, there, back]
        first, _, again, _ = watched(sql_of(name), {**held, relation: rows}, story, "batched-sweep")
        yield first, again


def is_within(work: Work, said: Rounds, most: int) -> bool:
    """Whether no more was asked than was said, in no more rounds, and of nobody else."""
    relations = {(each.relation, _columns(each.keys)) for round_ in said for each in round_}
    return (
        len(work.asked) <= most
        and work.rounds <= len(said)
        and {each.relation for each in work.asked} <= {relation for relation, _ in relations}
        and (
            len(work.asked) > number(said)
            or {(each.relation, each.columns) for each in work.asked} <= relations
        )
    )


def _columns(keys: tuple[tuple[str, ...], ...]) -> frozenset[str]:
    return frozenset(column for columns in keys for column in columns)


@cache
def said_of(name: str) -> Costs:
    return costs_of(example(name))


def cost_of(name: str, relation: Relation, kind: Kind) -> Cost:
    return next(each.kinds[kind] for each in said_of(name).relations if each.relation == relation)


CASES = [
    pytest.param(name, relation, id=f"{name}-{relation}")
    for name in NAMES
    for relation in example(name).relations
]


@pytest.mark.parametrize(("name", "relation"), CASES)
def test_explain_says_what_is_asked(name: str, relation: Relation) -> None:
    most_again = []
    for kind in KINDS:
        said = cost_of(name, relation, kind)
        found = list(works(name, relation, kind))
        for first, again in found:
            assert is_within(first, said.first, said.most[0]), kind
            assert is_within(again, said.remembered, said.most[1]), kind
        assert max(len(first.asked) for first, _ in found) >= said.numbers[0], kind
        most_again.append((max(len(again.asked) for _, again in found), said.numbers[1]))
    assert max(asked for asked, _ in most_again) >= max(number for _, number in most_again)


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_asks_what_explain_says_whatever_its_size(name: str) -> None:
    held, said = held_of(name), said_of(name).batch
    updates = [
        each
        for relation in example(name).relations
        for kind in ("deletion", "modification")
        for there, back, _ in tried(relation, kind, held[relation])
        for each in (there, back)
    ]
    updates = [each for each in updates if next(iter(each.changes.values())).counts]
    asked = watched_batch(sql_of(name), held, updates, "batched-sweep")
    # What the first update met is remembered, and it may be all there is.
    assert said.numbers[1] <= len(asked) <= said.most[0]
    twice = watched_batch(sql_of(name), held, updates * 2, "batched-sweep")
    assert said.numbers[1] <= len(twice) <= said.most[0]


def test_sweep_asks_of_an_inner_join_as_much() -> None:
    for relation in example("parcels").relations:
        rows = held_of("parcels")[relation]
        for there, back, _ in tried(relation, "deletion", rows):
            works_ = watched(sql_of("parcels"), held_of("parcels"), [there, back], "sweep")
            assert all(len(work.asked) <= 3 for work in works_)


def test_a_claim_of_one_question_less_is_found_out() -> None:
    (relation,) = example("regulars").relations
    said = cost_of("regulars", relation, "deletion")
    found = [again for _, again in works("regulars", relation, "deletion")]
    assert all(is_within(again, said.remembered, said.most[1]) for again in found)
    assert not all(is_within(again, (), 0) for again in found)


def test_who_is_asked_counts_besides_how_often() -> None:
    relation = example("customers").relations[0]
    others = cost_of("customers", example("customers").relations[1], "insertion")
    found = [first for first, _ in works("customers", relation, "insertion")]
    assert not all(is_within(first, others.remembered, 1) for first in found)
