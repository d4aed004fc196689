"""The first state of a view: a sweep whose change is a whole relation, in pages.

The view starts at a version vector (position 0), while the sources continue to commit. One keyed
relation, the *root*, is read in pages in key order; a page is the relation restricted to a range
of keys, and a restriction is linear, so it can be corrected to position 0 like any other answer:
rows of the range deleted since are put back, rows inserted since are taken out. The page is then
swept through the other relations, all read as of position 0. The sum over the pages is the view
at that vector. Without a keyed relation there is a single page with all rows.

A view that is more than an inner join is not such a sum. Its inner joins are read as a whole, their
first relations still in pages, and the operators above them compute the view at once.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from protocols.algebra.delta import Delta
from protocols.algebra.expressions import columns_of
from protocols.algebra.frame import Frame
from protocols.exchange.asof import Reading, asof
from protocols.exchange.correction import at_cut
from protocols.exchange.mailbox import Mailbox
from protocols.exchange.questions import Maintenance, Page, Query
from protocols.exchange.stretch import Key
from protocols.maintenance.sweep import Sweep
from protocols.maintenance.tree_sweep import contents
from protocols.operators.memory import Memories
from protocols.views.catalog import Relation
from protocols.views.partials import total
from protocols.views.plan import plan
from protocols.views.tree import AnyView, TreeView
from protocols.views.view import Atom, View

D = TypeVar("D", bound=Delta)


@dataclass(frozen=True)
class FirstStatePart(Generic[D]):
    """A part of the first state."""

    #: None when it has no row.
    rows: D | None
    #: The key after which the next part begins; None after the last one.
    last_key: Key | None


def root_of(view: AnyView) -> Relation | None:
    """The relation whose pages make the stretches of a first state; None if it comes in one."""
    return None if isinstance(view, TreeView) else _root(view).relation


def next_stretch(
    view: AnyView,
    mailbox: Mailbox[Any],
    after: Key | None,
    limit: int,
    memories: Memories,
) -> Maintenance[Any, FirstStatePart[Any]]:
    """Reads the next part of the first state, after the key `after` of the root.

    The operators remember in `memories` what they learn from it.
    """
    if not isinstance(view, TreeView):
        part = yield from stretch(view, mailbox, after, limit)
        return part
    rows = yield from contents(view, mailbox, 0, in_pages(limit), memories)
    return FirstStatePart(rows, None)


def stretch(
    view: View, mailbox: Mailbox[D], after: Key | None, limit: int
) -> Maintenance[D, FirstStatePart[D]]:
    """The rows of an inner join that come from the page of its root after the key `after`."""
    root = _root(view)
    # The sweep applies the condition to its change again, so it needs the condition's columns.
    tested = columns_of(root.condition) if root.condition else ()
    rows, last = yield from page(mailbox, root, after, limit, 0, tested)
    sweep = Sweep(view, mailbox)
    part, _ = yield from sweep.view_change(plan(view, root), rows, position=0, before=0)
    return FirstStatePart(None if part is None else total([part]), last)


def in_pages(limit: int) -> Reading[Frame]:
    """As-of reads that read a whole keyed relation in answers no larger than a page."""

    def read(
        mailbox: Mailbox[Frame], atom: Atom, keys: Frame | None, cut: int, position: int
    ) -> Maintenance[Frame, Frame]:
        if keys is not None or not atom.relation.key:
            rows = yield from asof(mailbox, atom, keys, cut, position)
            return rows
        rows, last = yield from page(mailbox, atom, None, limit, cut)
        while last is not None:
            more, last = yield from page(mailbox, atom, last, limit, cut)
            rows = rows.plus(more)
        return rows.select(atom.renaming)

    return read


def _root(view: View) -> Atom:
    """The atom that is read in pages: the first one with a key, else the first one."""
    keyed = (atom for atom in view.atoms if atom.relation.key)
    return next(keyed, view.atoms[0])


def page(
    mailbox: Mailbox[D],
    atom: Atom,
    after: Key | None,
    limit: int,
    cut: int,
    further: Collection[str] = (),
) -> Maintenance[D, tuple[D, Key | None]]:
    """The rows of an atom after a key, as of a cut, and the key after which the next page begins.

    They have the atom's columns, its key, and further ones. Without a key one page has all rows.
    """
    relation, condition = atom.relation, atom.condition
    needed = {*atom.columns, *relation.key, *further}
    columns = tuple(column for column in relation.column_names if column in needed)
    wanted = Page(after, limit) if relation.key else None
    question: Query[D] = Query(relation, columns, condition, None, wanted)
    (found,) = yield [question]
    return at_cut(mailbox, question, found, cut), found.last_key
