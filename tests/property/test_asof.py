"""Lemma 1: an answer read at any version, corrected to any cut, is the relation at that cut.

Random logs of signed changes of one relation, between deliveries of another source; random answers
within the range that the mailbox still holds, random cuts, keys and conditions; in both algebras.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from protocols.algebra.bag import Bag, bag
from protocols.algebra.expressions import Column, Comparison, Condition, Literal, Not
from protocols.algebra.types import ColumnType
from protocols.exchange.asof import Reading, as_answered, asof
from protocols.exchange.mailbox import Mailbox
from protocols.exchange.questions import Query, Snapshot
from protocols.simulation.algebras import ALGEBRAS
from protocols.views.catalog import Relation
from protocols.views.view import Atom
from tests.cases.values import TYPES, few

BIGINT = TYPES["BIGINT"]


@dataclass(frozen=True)
class History:
    """A log, an order of delivery, and one question."""

    atom: Atom
    #: Version → its change, from `base + 1` on; None if it did not change the relation.
    log: tuple[Bag | None, ...]
    initial: Bag
    base: int
    #: The sources of the positions, in order; the relation is at "a".
    order: tuple[str, ...]
    forgotten: int
    version: int
    cut: int
    keys: Bag

    @property
    def relation(self) -> Relation:
        return self.atom.relation

    def at(self, version: int) -> Bag:
        """The relation at a version, by definition."""
        rows = self.initial
        for change in self.log[: version - self.base]:
            rows = rows if change is None else rows.plus(change)
        return rows

    def asked(self, version: int) -> Bag:
        """The answer of a correct source at a version: the columns of the atom, as a bag."""
        rows = self.at(version).matching(self.keys)
        rows = rows if self.atom.condition is None else rows.where(self.atom.condition)
        return rows.select([(column, column) for column in self.atom.columns])


def _versions(order: Sequence[str], base: int) -> int:
    return base + sum(source == "a" for source in order)


@st.composite
def histories(draw: st.DrawFn) -> History:
    linked = TYPES[draw(st.sampled_from(list(TYPES)))]
    relation = Relation("a", "r", (("x", linked), ("v", BIGINT), ("w", BIGINT)))
    small = st.sampled_from([0, 1, None])
    rows = st.lists(
        st.tuples(st.tuples(few(linked), small, small), st.sampled_from([-1, 1, 2])), max_size=4
    ).map(lambda found: bag(relation.column_names, found))
    log = tuple(draw(st.lists(st.none() | rows.filter(lambda b: not b.is_empty()), max_size=6)))
    base = draw(st.sampled_from([0, 5]))
    delivered = draw(st.integers(0, len(log)))
    order = tuple(draw(st.permutations(["a"] * delivered + ["b"] * draw(st.integers(0, 2)))))
    forgotten = draw(st.integers(0, len(order)))
    oldest = _versions(order[:forgotten], base)
    return History(
        Atom(0, "A", relation, draw(_columns()), draw(_conditions(linked))),
        log,
        draw(rows),
        base,
        order,
        forgotten,
        draw(st.integers(oldest, base + len(log))),
        draw(st.integers(forgotten, len(order))),
        draw(_key_sets(linked)),
    )


def _columns() -> st.SearchStrategy[tuple[str, ...]]:
    return st.sampled_from([("x", "v", "w"), ("x", "v"), ("x",)])


def _conditions(linked: ColumnType) -> st.SearchStrategy[Condition | None]:
    about_v = Comparison(Column("v"), "=", Literal(1, BIGINT))
    about_x = few(linked).map(lambda x: Comparison(Column("x"), "<=", Literal(x, linked)))
    return st.sampled_from([None, about_v, Not(about_v)]) | about_x


def _key_sets(linked: ColumnType) -> st.SearchStrategy[Bag]:
    values = few(linked).filter(lambda value: value is not None)
    return st.frozensets(values, max_size=3).map(
        lambda keys: Bag(("x",), {(key,): 1 for key in keys})
    )


@pytest.mark.parametrize("algebra", ["bag", "frame"])
def test_an_answer_of_any_version_becomes_the_relation_at_any_cut(algebra: str) -> None:
    @given(histories())
    @settings(max_examples=150, deadline=None)
    def holds(history: History) -> None:
        assert _read(history, asof, algebra) == _wanted(history)

    holds()


def test_a_source_that_is_believed_gives_another_state() -> None:
    """The control in both directions: answers that are too new, and answers that are too old."""

    def wrong(history: History) -> bool:
        return _read(history, as_answered, "bag") != _wanted(history)

    def newer(history: History) -> bool:
        return history.version > _version_at_cut(history)

    patient = settings(deadline=None, max_examples=5000, phases=[Phase.generate])
    find(histories(), lambda history: newer(history) and wrong(history), settings=patient)
    find(histories(), lambda history: not newer(history) and wrong(history), settings=patient)


def _version_at_cut(history: History) -> int:
    return _versions(history.order[: history.cut], history.base)


def _wanted(history: History) -> Bag:
    return history.asked(_version_at_cut(history)).select(history.atom.renaming)


def _read(history: History, read: Reading[Any], algebra: str) -> Bag:
    """Runs the reading over a mailbox that has received all and forgotten the beginning."""
    rooms, relation = ALGEBRAS[algebra], history.relation
    types = dict(relation.columns)
    mailbox: Mailbox[Any] = Mailbox({relation: rooms.log()}, {"a": history.base, "b": 0})
    for version, change in enumerate(history.log, history.base + 1):
        changes = {} if change is None else {relation: rooms.changes(types, version, change)}
        mailbox.receive("a", version, changes)
    if others := history.order.count("b"):
        mailbox.receive("b", others, {})
    for source in history.order:
        mailbox.deliver((source, mailbox.version_at(source, mailbox.last_position) + 1))
    mailbox.forget(history.forgotten)
    keys = rooms.delta(types, history.keys)
    reading = read(mailbox, history.atom, keys, history.cut, history.cut)
    (query,) = next(reading)
    assert isinstance(query, Query)
    assert (query.columns, query.condition) == (history.atom.columns, history.atom.condition)
    found = Snapshot(rooms.delta(types, history.asked(history.version)), history.version)
    with pytest.raises(StopIteration) as done:
        reading.send([found])
    return rooms.rows(done.value.value)
