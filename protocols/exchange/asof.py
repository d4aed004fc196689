"""The one primitive: the rows of an atom that match a set of keys, as of a cut.

Ask the source and get its rows *now*; the correction then removes the updates after the cut that
they contain, and adds those before the cut that they lack (correction.py).
"""

from collections.abc import Callable
from typing import TypeAlias, TypeVar

from protocols.algebra.delta import Delta
from protocols.exchange.correction import at_cut
from protocols.exchange.mailbox import Mailbox
from protocols.exchange.questions import Maintenance, Query
from protocols.views.view import Atom

D = TypeVar("D", bound=Delta)

#: How a protocol reads: (mailbox, atom, keys, cut, position asked for) → rows, columns qualified.
Reading: TypeAlias = Callable[[Mailbox[D], Atom, D | None, int, int], Maintenance[D, D]]


def asof(
    mailbox: Mailbox[D], atom: Atom, keys: D | None, cut: int, position: int
) -> Maintenance[D, D]:
    """The rows of the atom that match the keys, as of the cut; without keys all its rows."""
    question = about(atom, keys, position)
    (found,) = yield [question]
    return at_cut(mailbox, question, found, cut).select(atom.renaming)


def as_answered(
    _mailbox: Mailbox[D], atom: Atom, keys: D | None, _cut: int, position: int
) -> Maintenance[D, D]:
    """For control protocols (`naive`): the rows as the source answered them, without correction."""
    (found,) = yield [about(atom, keys, position)]
    return found.rows.select(atom.renaming)


def about(atom: Atom, keys: D | None, position: int) -> Query[D]:
    """The question about an atom; without keys it asks for all rows."""
    key_sets = None if keys is None else (keys,)
    return Query(atom.relation, atom.columns, atom.condition, key_sets, None, position)
