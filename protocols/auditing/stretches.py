"""A stretch of a view: drawn, and worked out anew as of a position.

The rows come from the sources as in a first state: they are asked for what leads to the stretch,
and their answers are corrected to the position. Operators remember nothing here, so that a wrong
memory of the job shows.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

import polars as pl

from protocols.algebra.delta import COUNT
from protocols.algebra.frame import Frame, once, picked, with_columns
from protocols.auditing.handles import Handle, Root, as_tree
from protocols.exchange.asof import asof
from protocols.exchange.mailbox import Mailbox
from protocols.exchange.questions import Maintenance
from protocols.exchange.stretch import Key, key_range
from protocols.maintenance.firststate import in_pages, page
from protocols.maintenance.tree_sweep import contents, tree_at_work
from protocols.operators.keys import These
from protocols.operators.operator import Span
from protocols.operators.placed import without
from protocols.views.tree import AnyView

#: A relation that has to be read whole is read in pages of so many rows.
PAGE = 20_000


@dataclass(frozen=True)
class Stretch:
    """Values of a handle's columns, each once; the rows of the view that have them."""

    values: pl.DataFrame

    def without(self, others: pl.DataFrame) -> "Stretch":
        """Its values that are not among the others."""
        return Stretch(without(self.values, others, self.values.columns))

    def parts(self, limit: int) -> Iterator["Stretch"]:
        """The stretch in parts of at most so many values."""
        yield from map(Stretch, self.values.iter_slices(limit))


def whole(view: AnyView, mailbox: Mailbox[Frame]) -> Maintenance[Frame, pl.DataFrame]:
    """All rows of the view as of the mailbox's start, with their counts."""
    found = yield from contents(as_tree(view), mailbox, mailbox.start, in_pages(PAGE))
    return found.data


def worked_out(
    view: AnyView, mailbox: Mailbox[Frame], stretch: Stretch
) -> Maintenance[Frame, pl.DataFrame]:
    """The rows of a stretch as of the mailbox's start, with their counts."""
    position = mailbox.start
    operator = tree_at_work(as_tree(view), mailbox, None, in_pages(PAGE))
    rows = yield from operator.before(Span(position + 1, position), These(stretch.values))
    return rows


def drawn(
    mailbox: Mailbox[Frame], handle: Handle, stored: pl.DataFrame, limit: int, random: Random
) -> Maintenance[Frame, Stretch]:
    """Draws a stretch: values that a root has at the source, and values that the view shows.

    `stored` has the values that the view shows and that were not drawn yet. If they are keys, the
    stretch is a range of keys: everything that either side has there. Otherwise it begins at the
    source near a row that the view shows.
    """
    root = random.choice(handle.roots) if handle.roots else None
    if root is None:
        return Stretch(_some(stored, limit, random))
    if not root.atom.relation.key:
        there, _ = yield from _page(mailbox, root, None, limit)
        return _stretch(handle, _some(there, limit, random), _some(stored, limit, random))
    if root.keyed:
        after = _one_before(stored, root, limit, random)
        there, last = yield from _page(mailbox, root, after, limit)
        return _stretch(handle, there, _between(stored, root, after, last))
    shown = _some(stored, limit, random)
    after = yield from _near(mailbox, root, shown.head(1), random)
    there, _ = yield from _page(mailbox, root, after, limit)
    return _stretch(handle, there, shown)


def following(
    mailbox: Mailbox[Frame],
    handle: Handle,
    root: Root,
    stored: pl.DataFrame,
    after: Key | None,
    limit: int,
) -> Maintenance[Frame, tuple[Stretch, Key | None]]:
    """The stretch of the root's next page after a key, and the key after which the next begins.

    If its values are keys, it is a range, with all that the view shows there.
    """
    there, last = yield from _page(mailbox, root, after, limit)
    shown = _between(stored, root, after, last) if root.keyed else stored.clear()
    return _stretch(handle, there, shown), last


def _stretch(handle: Handle, there: pl.DataFrame, shown: pl.DataFrame) -> Stretch:
    columns = list(handle.columns)
    ours = picked(shown, columns)
    theirs = picked(there, columns).cast(ours.schema)
    return Stretch(once(pl.concat([theirs, ours])))


def _some(values: pl.DataFrame, limit: int, random: Random) -> pl.DataFrame:
    return values.sample(min(limit, values.height), seed=random.getrandbits(32))


def _page(
    mailbox: Mailbox[Frame], root: Root, after: Key | None, limit: int
) -> Maintenance[Frame, tuple[pl.DataFrame, Key | None]]:
    """The values that the root has after a key, as of the mailbox's start."""
    atom = replace(root.atom, columns=tuple(dict.fromkeys(root.names.values())))
    rows, last = yield from page(mailbox, atom, after, limit, mailbox.start)
    there = rows.data.filter(pl.col(COUNT) > 0)
    return once(picked(there, [*root.names.items()])), last


def _one_before(stored: pl.DataFrame, root: Root, limit: int, random: Random) -> Key | None:
    """A key after which a range may begin: one that is shown, or None for the first one.

    The first range is drawn more often than any other: few others reach the first keys.
    """
    place = random.randrange(stored.height + limit)
    return None if place >= stored.height else _key_in(stored, root, place)


def _key_in(values: pl.DataFrame, root: Root, place: int) -> Key:
    keys = _as_keys(values.slice(place, 1), root).data
    return keys.select(root.atom.relation.key).row(0)


def _between(stored: pl.DataFrame, root: Root, after: Key | None, last: Key | None) -> pl.DataFrame:
    """The shown values in a range of the root's keys."""
    inside = key_range(root.atom.relation, after, last)
    if inside is None:
        return stored
    found = _as_keys(stored, root).where(inside).data
    return picked(found, list(root.names.items())).cast(stored.schema)


def _near(
    mailbox: Mailbox[Frame], root: Root, shown: pl.DataFrame, random: Random
) -> Maintenance[Frame, Key | None]:
    """A key of the root at a row that the view shows; None, now and then, for the first key."""
    if shown.is_empty() or not random.randrange(8) or _null_in(shown):
        return None
    relation = root.atom.relation
    columns = tuple(dict.fromkeys((*relation.key, *root.names.values())))
    atom, asked = replace(root.atom, columns=columns), _as_keys(shown, root)
    rows = yield from asof(mailbox, atom, asked, mailbox.start, mailbox.start)
    keys = picked(rows.data, [(column, atom.qualified(column)) for column in relation.key])
    return keys.row(random.randrange(keys.height)) if keys.height else None


def _as_keys(values: pl.DataFrame, root: Root) -> Frame:
    """Values of the handle as rows of the root's columns."""
    names = {column: name for name, column in root.names.items()}
    types = pl.Schema((column, root.atom.relation.type_of(column).dtype) for column in names)
    return Frame(with_columns(picked(values, names.items()).cast(types), {COUNT: 1}))


def _null_in(values: pl.DataFrame) -> bool:
    """A source matches no NULL in a key."""
    return any(column.null_count() for column in values)
