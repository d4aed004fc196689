"""The first state of a view: a sweep whose change is a whole relation, in pages.

The view starts at a version vector (position 0), while the sources go on committing. One keyed
relation, the *root*, is read in pages in key order; a page is the relation restricted to a range
of keys, and a restriction is linear, so it can be corrected to position 0 like any other answer:
rows of the range deleted since are put back, rows inserted since are taken out. The page is then
swept through the other relations, all read as of position 0. The sum over the pages is the view
at that vector. Without a keyed relation there is a single page: all of it.
"""

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from protocols.algebra.delta import Delta
from protocols.algebra.expressions import (
    And,
    Column,
    Comparison,
    Condition,
    Literal,
    Or,
    columns_of,
)
from protocols.maintenance.mailbox import Mailbox
from protocols.maintenance.partials import total
from protocols.maintenance.questions import Maintenance, Page, Query
from protocols.maintenance.sweep import Sweep
from protocols.views.catalog import Relation
from protocols.views.plan import plan
from protocols.views.view import Atom, View

D = TypeVar("D", bound=Delta)


@dataclass(frozen=True)
class Stretch(Generic[D]):
    """The part of the first state that comes from one page of the root."""

    #: None when no row of the view comes from it.
    rows: D | None
    #: Where the next page begins; None after the last one.
    last_key: tuple[Any, ...] | None


def root_of(view: View) -> Atom:
    """The atom that is read in pages: the first one with a key, so that pages can be cut."""
    keyed = (atom for atom in view.atoms if atom.relation.key)
    return next(keyed, view.atoms[0])


def stretch(
    view: View, mailbox: Mailbox[D], after: tuple[Any, ...] | None, limit: int
) -> Maintenance[D, Stretch[D]]:
    """The next part of the first state, from the page of the root behind the key `after`."""
    root = root_of(view)
    key = root.relation.key
    # The sweep selects its change once more, so what the condition reads has to come along.
    needed = {*root.columns, *key, *(columns_of(root.condition) if root.condition else ())}
    columns = tuple(column for column in root.relation.column_names if column in needed)
    page = Page(after, limit) if key else None
    answers = yield [Query(root.relation, columns, root.condition, None, page)]
    rows, last = answers[0].rows, answers[0].last_key
    error = mailbox.difference(root.relation, answers[0].version, 0)
    if error is not None:
        inside = key_range(root.relation, after, last)
        error = error if inside is None else error.where(inside)
        error = error if root.condition is None else error.where(root.condition)
        rows = rows.plus(error.select([(column, column) for column in columns]))
    sweep = Sweep(view, mailbox)
    part, _ = yield from sweep.view_change(plan(view, root), rows, position=0, before=0)
    return Stretch(None if part is None else total([part]), last)


def key_range(
    relation: Relation, after: tuple[Any, ...] | None, upto: tuple[Any, ...] | None
) -> Condition | None:
    """`after < key <= upto` in the order of the key's columns; an open end is None."""
    parts = []
    if after is not None:
        parts.append(_beyond(relation, ">", after))
    if upto is not None:
        parts.append(Or((_beyond(relation, "<", upto), _equal(relation, upto))))
    return And(tuple(parts)) if parts else None


def _beyond(relation: Relation, op: str, key: tuple[Any, ...]) -> Condition:
    """Lexicographic comparison: equal in the first columns, beyond in the next one."""
    cases = []
    for index in range(len(key)):
        tests = [_test(relation, i, "=", key) for i in range(index)]
        cases.append(And((*tests, _test(relation, index, op, key))))
    return Or(tuple(cases))


def _equal(relation: Relation, key: tuple[Any, ...]) -> Condition:
    return And(tuple(_test(relation, i, "=", key) for i in range(len(key))))


def _test(relation: Relation, index: int, op: str, key: tuple[Any, ...]) -> Condition:
    column = relation.key[index]
    return Comparison(Column(column), op, Literal(key[index], relation.type_of(column)))
