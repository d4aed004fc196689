"""The one primitive: the rows of an atom that match a set of keys, as of a cut.

Ask the source, get its rows *now*, take out what the answer holds from after the cut, add what it
lacks from before (Lemma 1 of algorithms.md, section 5; in SWEEP's words, section 4 of the paper:
on-line error correction). Selection and semi-join are linear, so they are applied to the error just
as the source applied them to the relation.

Where this is better than the paper's Figure 4: nothing is concluded from what has or has not
arrived here before the answer. An answer says at which version it was read, so an update that
arrived between the answer's arrival and the test of the queue is not mistaken for a concurrent one
(the race in the printed Figure 4).
"""

from collections.abc import Callable
from typing import TypeAlias, TypeVar

from protocols.algebra.delta import Delta
from protocols.exchange.mailbox import Mailbox
from protocols.exchange.questions import Answer, Maintenance, Query
from protocols.views.view import Atom

D = TypeVar("D", bound=Delta)

#: How a protocol reads: (mailbox, atom, keys, cut, position asked for) → rows, columns qualified.
Reading: TypeAlias = Callable[[Mailbox[D], Atom, D | None, int, int], Maintenance[D, D]]


def asof(
    mailbox: Mailbox[D], atom: Atom, keys: D | None, cut: int, position: int
) -> Maintenance[D, D]:
    """The rows of the atom that match the keys, as of the cut; without keys all its rows."""
    answer = yield from ask(atom, keys, position)
    return corrected(mailbox, atom, answer, keys, cut)


def as_answered(
    _mailbox: Mailbox[D], atom: Atom, keys: D | None, _cut: int, position: int
) -> Maintenance[D, D]:
    """The control: whatever the source holds when it is asked, errors included."""
    answer = yield from ask(atom, keys, position)
    return answer.rows.select(atom.renaming)


def ask(atom: Atom, keys: D | None, position: int) -> Maintenance[D, Answer[D]]:
    """One question about an atom, in a round of its own; without keys about all its rows."""
    key_sets = None if keys is None else (keys,)
    answers = yield [Query(atom.relation, atom.columns, atom.condition, key_sets, None, position)]
    return answers[0]


def corrected(mailbox: Mailbox[D], atom: Atom, answer: Answer[D], keys: D | None, cut: int) -> D:
    """An answer without its errors: the rows of the atom as of the cut."""
    rows = answer.rows.select(atom.renaming)
    for condition, version in answer.readings:
        error = mailbox.difference(atom.relation, version, cut)
        if error is None:
            continue
        if condition is not None:
            error = error.where(condition)
        if keys is not None:
            error = error.matching(keys)
        if atom.condition is not None:
            error = error.where(atom.condition)
        rows = rows.plus(error.select(atom.renaming))
    return rows
