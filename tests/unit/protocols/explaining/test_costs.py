"""The questions that `explain` predicts, compared with the questions that are really asked.

The real protocols keep each example view, and each construct of the README's table. Rows of every
relation are deleted, inserted and modified, one update at a time: with a warehouse that has just
restarted, with one that has seen the same rows come and go since, and with one that continues from
the first state. No update may ask more than predicted, and for each relation one asks exactly that.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import cache, cached_property

import pytest

from protocols.algebra.bag import Row
from protocols.explaining.asked import Rounds, number
from protocols.explaining.constructs import CATALOG, DIALECTS, constructs
from protocols.explaining.costs import KINDS, Costs, Kind, QuestionCost, costs_of
from protocols.simulation.scenario import Update
from protocols.views.catalog import Catalog, Relation, catalog_from_json
from protocols.views.sql import parse_view
from protocols.views.tree import AnyView
from sources.simulated.workloads import workload
from tests.cases.example_views import NAMES, VIEWS, workload_of
from tests.harness.watching import Work, rows_of, update, watched, watched_batch

#: The number of rows tried per relation.
_TRIED = 4
#: Scales of the workloads; that of chain4 is the number of rows of all its relations together.
_SCALE, _SCALE_OF_CHAIN = 16, 40

_CUSTOMERS: list[Row] = [(1, "Ada", 2), (2, "Bo", 1), (3, "Al", 4), (4, "Ann", None), (5, "A", 2)]
_ORDERS: list[Row] = [
    (number_, customer, Decimal(amount), 1.5, date(2024, 1, day))
    for number_, customer, amount, day in (
        (6, 2, 12, 4), (1, 1, 5, 1), (2, 1, 7, 2), (3, 2, 3, 1), (4, 3, 3, 3), (5, None, 8, 1),
    )
]  # fmt: skip


@dataclass(frozen=True, eq=False)
class Kept:
    """A view to try, and the rows of its sources."""

    name: str
    sql: str
    catalog: Catalog
    held: dict[Relation, list[Row]]

    @cached_property
    def view(self) -> AnyView:
        return parse_view("tried", self.sql, self.catalog)

    @cached_property
    def said(self) -> Costs:
        return costs_of(self.view)

    def cost(self, relation: Relation, kind: Kind) -> QuestionCost:
        return next(each.kinds[kind] for each in self.said.relations if each.relation == relation)


@cache
def example(name: str) -> Kept:
    """One of examples/views."""
    chosen, sql = workload_of(name), (VIEWS / f"{name}.sql").read_text()
    catalog = workload(chosen).catalog
    view = parse_view(name, sql, catalog)
    scale = _SCALE_OF_CHAIN if chosen == "chain4" else _SCALE
    return Kept(name, sql, catalog, rows_of(chosen, scale, view))


def construct(name: str, sql: str) -> Kept:
    """One line of the table."""
    rows = {"customers": _CUSTOMERS, "orders": _ORDERS}
    return Kept(name, sql, CATALOG, {relation: rows[relation.name] for relation in CATALOG})


EXAMPLES = [example(name) for name in NAMES]
ALL = EXAMPLES + [
    construct(each.name, each.sql)
    for each in constructs()
    if not each.refused and each.name not in DIALECTS
]


def modified(relation: Relation, row: Row, other: Row | None, moved: bool) -> Row:
    """The row with the values of another row, or NULL, except its key; booleans are negated.

    If `moved`, the key changes, too.
    """
    values = []
    for place, (name, type_) in enumerate(relation.columns):
        if name in relation.key:
            values.append(row[place] + 1000 * moved)
        elif type_.family == "BOOLEAN" and row[place] is not None:
            values.append(not row[place])
        else:
            values.append(None if other is None else other[place])
    return tuple(values)


def tried(relation: Relation, kind: Kind, rows: list[Row]) -> Iterator[tuple[Update, Update, Row]]:
    """Updates of a kind, each with its reversal and the row that it concerns."""
    for place, row in enumerate(rows[:_TRIED]):
        old = None if kind == "insertion" else row
        new = None if kind == "deletion" else row
        if kind == "modification":
            new = modified(relation, row, rows[place - 1] if place else None, bool(place % 2))
        yield update(relation, old, new), update(relation, new, old), row


def works(kept: Kept, relation: Relation, kind: Kind) -> Iterator[tuple[Work, list[Work]]]:
    """The questions of updates of a kind, with nothing remembered and with everything."""
    for there, back, row in tried(relation, kind, kept.held[relation]):
        rows = [each for each in kept.held[relation] if each != row or kind != "insertion"]
        held = {**kept.held, relation: rows}
        story = [there, back, there]
        first, _, again = watched(kept.sql, held, story, "batched-sweep")
        (fresh,) = watched(kept.sql, held, [there], "batched-sweep", restarted=False)
        yield first, [again, fresh]


def is_within(work: Work, said: Rounds, most: int) -> bool:
    """Whether no more was asked than predicted, in no more rounds, and of no other relation."""
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


CASES = [
    pytest.param(kept, relation, id=f"{kept.name}-{relation}")
    for kept in ALL
    for relation in kept.view.relations
]


@pytest.mark.parametrize(("kept", "relation"), CASES)
def test_explain_says_what_is_asked(kept: Kept, relation: Relation) -> None:
    most_again = []
    for kind in KINDS:
        said = kept.cost(relation, kind)
        found = list(works(kept, relation, kind))
        for first, again in found:
            assert is_within(first, said.first, said.most[0]), kind
            assert all(is_within(each, said.remembered, said.most[1]) for each in again), kind
        # No rows match the new key of an inserted row, so it may ask fewer questions.
        if kind != "insertion":
            assert max(len(first.asked) for first, _ in found) >= said.numbers[0], kind
        asked = (len(each.asked) for _, again in found for each in again)
        most_again.append((max(asked), said.numbers[1]))
    assert max(most for most, _ in most_again) >= max(number_ for _, number_ in most_again)


@pytest.mark.parametrize("kept", EXAMPLES, ids=NAMES)
def test_a_batch_asks_what_explain_says_whatever_its_size(kept: Kept) -> None:
    said = kept.said.batch
    updates = [
        each
        for relation in kept.view.relations
        for kind in ("deletion", "modification")
        for there, back, _ in tried(relation, kind, kept.held[relation])
        for each in (there, back)
    ]
    updates = [each for each in updates if next(iter(each.changes.values())).counts]
    asked = watched_batch(kept.sql, kept.held, updates, "batched-sweep")
    # The groups of the first update are remembered, and they may be all.
    assert said.numbers[1] <= len(asked) <= said.most[0]
    twice = watched_batch(kept.sql, kept.held, updates * 2, "batched-sweep")
    assert said.numbers[1] <= len(twice) <= said.most[0]


def test_sweep_asks_of_an_inner_join_as_much() -> None:
    kept = example("parcels")
    for relation in kept.view.relations:
        for there, back, _ in tried(relation, "deletion", kept.held[relation]):
            found = watched(kept.sql, kept.held, [there, back], "sweep")
            assert all(len(work.asked) <= 3 for work in found)


def test_what_is_said_to_need_nothing_asks_nothing() -> None:
    kept = example("customers")
    orders = next(r for r in kept.view.relations if r.name == "orders")
    (said,) = (each for each in kept.said.relations if each.relation == orders)
    assert said.spared == (
        "updates that change only product_id and placed_at",
        "rows for which quantity >= 2 is not true",
    )
    rows = kept.held[orders]
    product, quantity = orders.column_names.index("product_id"), 3
    few = next(row for row in rows if row[quantity] < 2)
    many = next(row for row in rows if row[quantity] >= 2)
    moved = tuple(value + 1 if n == product else value for n, value in enumerate(many))
    for old, new in ((few, None), (many, moved)):
        (work,) = watched(kept.sql, kept.held, [update(orders, old, new)], "batched-sweep")
        assert not work.asked
    (control,) = watched(kept.sql, kept.held, [update(orders, many, None)], "batched-sweep")
    assert control.asked


def test_a_claim_of_one_question_less_is_found_out() -> None:
    kept = example("regulars")
    (relation,) = kept.view.relations
    said = kept.cost(relation, "deletion")
    found = [each for _, again in works(kept, relation, "deletion") for each in again]
    assert all(is_within(each, said.remembered, said.most[1]) for each in found)
    assert not all(is_within(each, (), 0) for each in found)


def test_who_is_asked_counts_besides_how_often() -> None:
    kept = example("customers")
    customers, orders = kept.view.relations
    others = kept.cost(orders, "insertion")
    found = [first for first, _ in works(kept, customers, "insertion")]
    assert not all(is_within(first, others.remembered, 1) for first in found)


@pytest.mark.parametrize(
    ("conditions", "spared"),
    [
        ("l.qty = 1 OR l.sum > 5", "(qty = 1 OR sum > 5.00) is not true"),
        ("l.qty = 1 AND l.sum > 5", "(qty = 1 AND sum > 5.00) is not true"),
        ("(l.qty = 1 OR l.sum > 5) AND k.qty = 3", "none of (qty = 1 OR sum > 5.00) and qty = 3"),
    ],
)
def test_what_needs_nothing_can_be_read_in_one_way(conditions: str, spared: str) -> None:
    columns = {"id": "BIGINT", "qty": "BIGINT", "sum": "DECIMAL(8,2)"}
    catalog = catalog_from_json({"a": {"relations": {"lines": {"columns": columns}}}})
    other = " JOIN a.lines k ON k.id = l.id" if "k." in conditions else ""
    sql = f"SELECT l.id FROM a.lines l{other} WHERE {conditions}"
    (said,) = costs_of(parse_view("v", sql, catalog)).relations
    assert any(each.startswith(f"rows for which {spared}") for each in said.spared), said.spared
