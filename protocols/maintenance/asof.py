"""The one primitive: the rows of a relation that match some keys, *as of a cut*.

A source can only tell how things are now. `asof` asks it, and turns the answer into the state at
the wanted position with what the mailbox holds (Lemma 1 of algorithms.md; "on-line error
correction" in section 4 of the SWEEP paper). It needs no channel to be FIFO: the answer says at
which version it was read, so an update that arrived between the answer's arrival and the test of
the queue is not mistaken for a concurrent one (the race in the printed Figure 4).
"""

from collections.abc import Callable
from typing import TypeAlias, TypeVar

from protocols.algebra.delta import Delta
from protocols.maintenance.mailbox import Mailbox
from protocols.maintenance.questions import Answer, Maintenance, Query
from protocols.views.view import Atom

D = TypeVar("D", bound=Delta)

#: How a protocol reads: (mailbox, atom, keys, cut, position asked for) → rows, columns qualified.
Reading: TypeAlias = Callable[[Mailbox[D], Atom, D, int, int], Maintenance[D, D]]


def asof(mailbox: Mailbox[D], atom: Atom, keys: D, cut: int, position: int) -> Maintenance[D, D]:
    """The rows of the atom that match the keys, as of the cut."""
    answer = yield from ask(atom, keys, position)
    rows = answer.rows.select(atom.renaming)
    error = mailbox.difference(atom.relation, answer.version, cut)
    if error is None:
        return rows
    error = error.matching(keys)
    if atom.condition is not None:
        error = error.where(atom.condition)
    return rows.plus(error.select(atom.renaming))


def as_answered(
    _mailbox: Mailbox[D], atom: Atom, keys: D, _cut: int, position: int
) -> Maintenance[D, D]:
    """The control: whatever the source holds when it is asked, errors included."""
    answer = yield from ask(atom, keys, position)
    return answer.rows.select(atom.renaming)


def ask(atom: Atom, keys: D, position: int) -> Maintenance[D, Answer[D]]:
    """One question about an atom, in a round of its own."""
    answers = yield [Query(atom.relation, atom.columns, atom.condition, (keys,), None, position)]
    return answers[0]
