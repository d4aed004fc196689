"""From an answer to the relation at a cut: all corrections of answers.

An answer shows the moment at which its source was read, never the moment that a protocol needs.
Three steps correct that, all of them in this file:

    snapshot    an answer and its inclusion (inclusion.py) → the rows at one version
    at_cut      a snapshot → the rows at one cut
    over_span   a snapshot → the rows at all cuts of a batch, each with its lifetime

All of them rely on Lemma 1 (algorithms.md, section 5): if A are the rows of R that match a
restriction (keys, a condition, a stretch of the key), and it is known of every update whether A
contains it, then

    R@cut = A - (updates in A, after the cut) + (updates not in A, up to the cut)

each restricted as A was. Selection and semi-join are linear, so it does not matter that the source
applied them to the relation and we apply them to changes. SWEEP calls this on-line error correction
(section 4 of the paper). Unlike its Figure 4, nothing is concluded from the updates that have or
have not arrived here before the answer.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from protocols.algebra.delta import POSITION, Delta
from protocols.algebra.expressions import Condition
from protocols.exchange.inclusion import Prefix, Window
from protocols.exchange.mailbox import Log, Mailbox, Received
from protocols.exchange.questions import Answer, Query, Question, Snapshot
from protocols.exchange.stretch import Key, key_range
from protocols.views.catalog import Relation
from protocols.views.view import Atom

D = TypeVar("D", bound=Delta)

# -- from the inclusion of an answer to one version ----------------------------------------------


def came_too_late(received: Received[D], question: Question[D], answer: Answer[D]) -> bool:
    """Whether the answer lacks an update that is forgotten here: then the question is asked again.

    PostgreSQL publishes a transaction a moment before its snapshots show it.
    """
    kept = received.forgotten(question.source)
    return any(_first_lacking(inclusion) <= kept for _, inclusion in _readings(answer))


def _first_lacking(inclusion: Prefix | Window) -> int:
    if isinstance(inclusion, Window):
        return inclusion.low + 1
    return min((inclusion.upto + 1, *inclusion.without))


def snapshot(received: Received[D], question: Question[D], answer: Answer[D]) -> Snapshot[D]:
    """The answer at one version; all updates that it contains have been received."""
    readings = _readings(answer)
    version = max(inclusion.version for _, inclusion in readings)
    rows = answer.rows
    if isinstance(question, Query):
        log = received.logs[question.relation]
        # A shared question, or one that closes a window, returns more columns than were asked for.
        told = question
        if rows.columns != question.columns:
            told = replace(question, columns=rows.columns)
        for condition, inclusion in readings:
            if isinstance(inclusion, Window):
                rows = _closed(log, told, answer, inclusion)
            else:
                for change in _towards(log, inclusion, version):
                    part = change if condition is None else change.where(condition)
                    rows = rows.plus(restricted(part, told, answer.last_key))
        if rows.columns != question.columns:
            rows = rows.select([(name, name) for name in question.columns])
    return Snapshot(rows, version, answer.last_key)


def _readings(answer: Answer[D]) -> Sequence[tuple[Condition | None, Prefix | Window]]:
    """The parts of an answer with their inclusions; None stands for all rows."""
    if answer.parts:
        return answer.parts
    inclusion = answer.inclusion
    return ((None, inclusion.longest() if isinstance(inclusion, Prefix) else inclusion),)


def _towards(log: Log[D], inclusion: Prefix, version: int) -> Iterator[D]:
    """The changes to add to an answer to get to a version at or after the end of its prefix.

    Exceptions do not depend on the version: a transaction contained after the prefix is in the rows
    already, wherever the version lies, and one that the prefix lacks is missing in any case.
    """
    change = log.between(inclusion.upto, version) if inclusion.upto < version else None
    if change is not None:
        yield change
    for number in inclusion.besides:
        change = log.between(number - 1, number)
        if change is not None:
            yield change.negated()
    for number in inclusion.without:
        change = log.between(number - 1, number)
        if change is not None:
            yield change


def _closed(log: Log[D], question: Query[D], answer: Answer[D], window: Window) -> D:
    """The rows at the window's end; rows whose keys were touched in the window come from the log.

    A row that was not touched is the same whenever it was read. Of a touched row the answer may
    show any state that it had in the window, or none, or two; the log has the last one. A
    transaction that deletes a row and inserts the same row again has not touched it.
    """
    numbers = range(-window.low - 1, -window.high - 1, -1)
    touched = log.placed(window.low, window.high, numbers)
    if touched is None:
        return answer.rows
    key, touched = question.relation.key, touched.consolidated()
    _, untouched = answer.rows.apart(touched, key)
    # The numbers are negative, so the smallest is the last transaction.
    last = touched.earliest(key, POSITION).positive()
    return untouched.plus(restricted(last, question, answer.last_key))


def widened(question: Query[D]) -> Query[D]:
    """The question for a source with windows: with the key among the columns."""
    names = {*question.columns, *question.relation.key}
    columns = tuple(name for name in question.relation.column_names if name in names)
    return replace(question, columns=columns)


# -- from a version to a cut ---------------------------------------------------------------------


def ahead(mailbox: Mailbox[D], question: Question[D], found: Snapshot[D]) -> int:
    """The number of transactions in a snapshot after the position it was asked for."""
    return found.version - mailbox.version_at(question.source, question.position)


def at_cut(mailbox: Mailbox[D], question: Query[D], found: Snapshot[D], cut: int) -> D:
    """The rows that the question asks for, as of a cut."""
    error = _difference(mailbox, question.relation, found.version, cut)
    if error is None:
        return found.rows
    return found.rows.plus(restricted(error, question, found.last_key))


def _difference(mailbox: Mailbox[D], relation: Relation, version: int, cut: int) -> D | None:
    """The change from a relation at a version to the relation at a cut."""
    wanted = mailbox.version_at(relation.source, cut)
    if version > wanted:
        error = mailbox.logged(relation, wanted, version)
        return None if error is None else error.negated()
    return mailbox.logged(relation, version, wanted)


def over_span(
    mailbox: Mailbox[D], atom: Atom, keys: Sequence[D], found: Snapshot[D], first: int, last: int
) -> D:
    """The rows of an atom at every cut from `first - 1` to `last`, its columns qualified.

    Without lifetimes if they are the same at all these cuts. Otherwise rows that no update touches
    live throughout; the lifetimes of the others follow from their state at the end, by going back
    over each change at its position.
    """
    rows = found.rows.select(atom.renaming)
    names = [(name, name) for name in atom.qualified_columns]
    source = atom.relation.source
    begin, end = (mailbox.version_at(source, cut) for cut in (first - 1, last))
    too_much = _logged(mailbox, atom, keys, end, found.version)
    missing = _logged(mailbox, atom, keys, found.version, end)
    errors = [] if too_much is None else [too_much.negated().select(names)]
    errors += [] if missing is None else [missing.select(names)]
    changes = _logged(mailbox, atom, keys, begin, end)
    touching = errors if changes is None else [*errors, changes.select(names)]
    if not touching:
        return rows
    touched, steady = rows.apart(_sum(touching), _identity(atom))
    ends = _sum([touched, *errors])
    if changes is None:
        return steady.plus(ends.consolidated())
    return steady.throughout().plus(ends.lifetimes(changes))


def _logged(mailbox: Mailbox[D], atom: Atom, keys: Sequence[D], after: int, upto: int) -> D | None:
    """The changes of an atom in these versions, each with its position.

    Changes that match no key are dropped, since no tag would use them; only done for a single key
    set, the most frequent case.
    """
    rows = mailbox.placed(atom.relation, after, upto) if after < upto else None
    if rows is not None and len(keys) == 1:
        rows = rows.matching(keys[0])
    if rows is not None and atom.condition is not None:
        rows = rows.where(atom.condition)
    if rows is None or rows.is_empty():
        return None
    return rows.select([*atom.renaming, (POSITION, POSITION)])


def _identity(atom: Atom) -> tuple[str, ...]:
    """The columns that identify a touched row: the key if the view reads it, else all columns."""
    names = dict(zip(atom.columns, atom.qualified_columns, strict=True))
    key = atom.relation.key
    return tuple(names[name] for name in (key if key and set(key) <= names.keys() else names))


def _sum(parts: Sequence[D]) -> D:
    first, *others = parts
    for other in others:
        first = first.plus(other)
    return first


# -- restrictions --------------------------------------------------------------------------------


def restricted(changes: D, question: Query[D], last_key: Key | None = None) -> D:
    """The changes of the relation that match the question, with its columns."""
    if question.page is not None:
        inside = key_range(question.relation, question.page.after, last_key)
        changes = changes if inside is None else changes.where(inside)
    if question.keys is not None:
        changes = _matching_any(changes, question.keys)
    if question.condition is not None:
        changes = changes.where(question.condition)
    return changes.select([(name, name) for name in question.columns])


def _matching_any(changes: D, keys: Sequence[D]) -> D:
    """The changes that match one of the key sets, each once."""
    if len(keys) == 1:
        return changes.matching(keys[0])
    first, *others = keys
    found, rest = changes.apart(first, first.columns)
    for key_set in others:
        part, rest = rest.apart(key_set, key_set.columns)
        found = found.plus(part)
    return found
