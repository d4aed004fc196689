"""The leaves of a tree: inner joins of relations, about which the sources are asked.

The batched sweep computes the change of an inner join. Its rows before a batch are read like a
first state: the rows of one atom that match the keys, swept through the others, all as of one cut.
A key set names columns of the join; the atom that has most of them is asked by those, and the
others are tested at the end.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias

import polars as pl

from protocols.algebra.delta import COUNT, POSITION
from protocols.algebra.expressions import Column, IsNull, conjunction
from protocols.algebra.frame import Frame, empty_frame, once, picked, with_columns
from protocols.algebra.types import column_type
from protocols.exchange.asof import Reading
from protocols.exchange.mailbox import Mailbox
from protocols.exchange.questions import Maintenance
from protocols.exchange.together import together
from protocols.operators.keys import All, Asked
from protocols.operators.operator import Span, Task
from protocols.operators.placed import added_up, among
from protocols.views.partials import extended
from protocols.views.plan import plan
from protocols.views.view import Atom, View

#: Computes the change of an inner join in a batch: first and last position → its rows.
Changing: TypeAlias = Callable[[int, int], Maintenance[Frame, Frame | None]]

#: Atom → column of the join → column of its relation.
Places: TypeAlias = Mapping[Atom, Mapping[str, str]]

_PLACE = {POSITION: column_type("BIGINT")}


class CoreOperator:
    """The operator of an inner join."""

    def __init__(
        self, view: View, mailbox: Mailbox[Frame], changing: Changing, read: Reading[Frame]
    ) -> None:
        self._view = view
        self._mailbox = mailbox
        self._changing = changing
        self._read = read
        self.nothing = empty_frame(view.schema).data
        self._no_change = empty_frame({**view.schema, **_PLACE}).data
        self._places = places(view)

    def change(self, span: Span) -> Task:
        change = yield from self._changing(span.first, span.last)
        return self._no_change if change is None else picked(change.data, self._no_change.columns)

    def before(self, span: Span, keys: Asked) -> Task:
        if isinstance(keys, All):
            rows = yield from self._swept(span, first_atom(self._places, ()), None, ())
            return self.nothing if rows is None else added_up(rows.data)
        wanted = keys.rows
        atom = first_atom(self._places, wanted.columns)
        asked = _by_nulls(wanted, self._places[atom])
        parts = yield from together([self._swept(span, atom, *each) for each in asked])
        found = [part.data for part in parts if part is not None]
        # An answer may have more rows than were asked for: those that other questions wanted.
        return added_up(among(pl.concat([self.nothing, *found]), wanted))

    def settle(self) -> None:
        """Does nothing: a leaf remembers nothing."""

    def _swept(
        self, span: Span, atom: Atom, keys: Frame | None, nulls: tuple[str, ...]
    ) -> Maintenance[Frame, Frame | None]:
        """The rows of the join, before the batch, that contain these rows of one atom."""
        way = plan(self._view, atom)
        tests = tuple(IsNull(Column(name)) for name in nulls)
        own = () if atom.condition is None else (atom.condition,)
        asked = replace(atom, condition=conjunction((*own, *tests)))
        partial = yield from self._read(self._mailbox, asked, keys, span.cut, span.last)
        if way.residual is not None:
            partial = partial.where(way.residual)
        for step in way.steps:
            links = partial.keys(step.keys)
            if links.is_empty():
                return None
            rows = yield from self._read(self._mailbox, step.atom, links, span.cut, span.last)
            partial = extended(partial, rows, step)
        return partial.select(self._view.projection)


def places(view: View) -> Places:
    """The outputs that each atom provides."""
    own = {atom: dict(atom.renaming) for atom in view.atoms}
    return {
        atom: {o.name: names[o.column] for o in view.outputs if o.column in names}
        for atom, names in own.items()
    }


def first_atom(of: Places, columns: Collection[str]) -> Atom:
    """The atom to ask first: the one that provides most of these columns."""
    return max(of, key=lambda atom: len(of[atom].keys() & columns))


def _by_nulls(
    wanted: pl.DataFrame, places: Mapping[str, str]
) -> Iterator[tuple[Frame | None, tuple[str, ...]]]:
    """Groups the keys of one atom by their columns that are NULL: sources match no NULL."""
    here = [name for name in wanted.columns if name in places]
    if not here:
        yield None, ()
        return
    keys = picked(wanted, [(places[name], name) for name in here])
    if len(here) < wanted.width:
        keys = once(keys)
    if not any(column.null_count() for column in keys):
        yield _as_keys(keys), ()
        return
    marks = keys.select(pl.all().is_null())
    for pattern in once(marks).iter_rows():
        nulls = tuple(name for name, is_null in zip(keys.columns, pattern, strict=True) if is_null)
        same = pl.all_horizontal(pl.col(name).is_null() == (name in nulls) for name in keys.columns)
        rest = keys.filter(same).drop(nulls)
        yield _as_keys(rest) if rest.columns else None, nulls


def _as_keys(keys: pl.DataFrame) -> Frame:
    return Frame(with_columns(keys, {COUNT: 1}))
