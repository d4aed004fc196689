"""Batched complete SWEEP (beyond the paper; proof in algorithms.md, section 5).

Complete in delivery order like SWEEP, at a cost per *batch*: at most n + I - 1 questions, where n
is the number of atoms and I the number of inner atoms of the join tree, however many updates the
batch has. A batch is whatever was delivered while the one before was at work, so under load the
cost per update falls, and the states of all updates become visible all the same.

Every changed row is a partial of its own and carries a *tag*: the position k of its update (a
column) and the atom a where it begins (partials of one origin lie in one delta). The row tagged
(k, a) needs an atom b at the cut k if b stands before a in FROM, else at k - 1; this tie-break adds
up to V@k - V@(k-1), also when one transaction changes several relations or one relation occurs
twice. All tags share one question per visit: the union of their keys. Its answer belongs to no cut,
so each tag takes out, and adds, what its own cut does not want, and wants:

    rows = answer - (updates in the answer, behind the cut) + (updates not in it, up to the cut)

The corrections are joined with the partials like the answer itself; the comparison of two columns,
the position of the correcting update and the tag, says which of them a tag needs.

The visits follow a tree in the join graph. Gather: each inner atom, from below, for the origins
below it. Then the root. Scatter: every other atom, from above, for all that still lack it. Atoms of
one depth are asked in one round.

Assumptions: versions in answers; none about channels. Deviation from algorithms.md: the correction
is joined per tag and filtered, not indexed by (key, position).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from protocols.algebra.delta import POSITION, Delta
from protocols.algebra.expressions import Column, Comparison
from protocols.maintenance.mailbox import Mailbox
from protocols.maintenance.partials import extended, seed, total
from protocols.maintenance.protocol import Install, Work
from protocols.maintenance.questions import Answer, Maintenance, Query
from protocols.views.jointree import join_tree
from protocols.views.plan import plan, step_to
from protocols.views.view import Atom, View

D = TypeVar("D", bound=Delta)

#: The position of a correcting update, beside the tag (POSITION) of the partial that it corrects.
_AT = "_at"


@dataclass(frozen=True)
class _Visit:
    """One question: an atom, for the origins that lack it at this point."""

    atom: Atom
    origins: frozenset[Atom]


@dataclass
class _Partial(Generic[D]):
    """The rows of all tags with one origin, joined with the atoms visited so far."""

    origin: Atom
    bound: list[Atom]
    rows: D


class BatchedSweep(Generic[D]):
    """The protocol over one view and one mailbox."""

    def __init__(self, view: View, mailbox: Mailbox[D]) -> None:
        self._view = view
        self._mailbox = mailbox
        self._plans = {atom: plan(view, atom) for atom in view.atoms}
        self._rounds = tuple(_rounds(view))
        self._begun = mailbox.start
        self._busy = False

    def begin(self) -> Work[D] | None:
        """Everything that was delivered while the batch before was at work."""
        first, last = self._begun + 1, self._mailbox.last_position
        if self._busy or first > last:
            return None
        self._busy, self._begun = True, last
        return self._batch(first, last)

    def _batch(self, first: int, last: int) -> Work[D]:
        partials = [p for atom in self._view.atoms for p in self._seeded(atom, first, last)]
        for visits in self._rounds:
            yield from self._round(visits, partials, first, last)
        self._busy = False
        shown = [*self._view.projection, (POSITION, POSITION)]
        change = total(p.rows.select(shown) for p in partials if not p.rows.is_empty())
        changes = {} if change is None else change.split(POSITION)
        return [Install(position, changes.get(position)) for position in range(first, last + 1)]

    def _seeded(self, atom: Atom, first: int, last: int) -> Iterator[_Partial[D]]:
        """The changes of an atom in the batch, each row tagged with its position."""
        after, upto = self._versions(atom, first - 1), self._versions(atom, last)
        changes = self._mailbox.placed(atom.relation, after, upto)
        if changes is not None:
            yield _Partial(atom, [atom], seed(self._plans[atom], changes, (POSITION,)))

    def _round(
        self, visits: Sequence[_Visit], partials: Sequence[_Partial[D]], first: int, last: int
    ) -> Maintenance[D, None]:
        """Visits that do not depend on each other; those for which no tag is left are saved."""
        concerned, questions = [], []
        for visit in visits:
            here = [p for p in partials if p.origin in visit.origins and not p.rows.is_empty()]
            keys = self._keys(visit.atom, here)
            if keys:
                atom = visit.atom
                query = Query(atom.relation, atom.columns, atom.condition, keys, None, last)
                questions.append(query)
            concerned.append((visit.atom, here, bool(keys)))
        answers = iter((yield [*questions]) if questions else ())
        for atom, here, was_asked in concerned:
            answer = next(answers) if was_asked else None
            for partial in here:
                if answer is None or partial.rows.is_empty():
                    # Without a link value other than NULL no tag finds a partner.
                    partial.rows = partial.rows.plus(partial.rows.negated()).consolidated()
                else:
                    self._extend(partial, atom, answer, first, last)

    def _keys(self, atom: Atom, partials: Sequence[_Partial[D]]) -> tuple[D, ...]:
        """The distinct link values of all tags, one set per combination of columns."""
        sets: dict[tuple[str, ...], D] = {}
        for partial in partials:
            step = step_to(self._view, partial.bound, atom)
            keys = partial.rows.keys(step.keys)
            if keys.is_empty():
                continue
            there = sets.get(keys.columns)
            names = [(name, name) for name in keys.columns]
            sets[keys.columns] = keys if there is None else there.plus(keys).keys(names)
        return tuple(sets.values())

    def _extend(
        self, partial: _Partial[D], atom: Atom, answer: Answer[D], first: int, last: int
    ) -> None:
        """Takes the atom into a partial, for each tag as of its own cut."""
        step = step_to(self._view, partial.bound, atom)
        partial.bound.append(atom)
        columns = [(name, name) for name in (*partial.rows.columns, *atom.qualified_columns)]
        rows = extended(partial.rows, answer.rows.select(atom.renaming), step)
        for errors, unwanted in self._errors(atom, answer, first, last):
            # The tag's cut is k for an atom before the origin, k - 1 for one behind it.
            before = atom.index < partial.origin.index
            op = (">" if before else ">=") if unwanted else ("<=" if before else "<")
            needed = Comparison(Column(_AT), op, Column(POSITION))
            joined = extended(partial.rows, errors, step).where(needed)
            rows = rows.plus(joined.select(columns))
        partial.rows = rows.consolidated()

    def _errors(
        self, atom: Atom, answer: Answer[D], first: int, last: int
    ) -> Iterator[tuple[D, bool]]:
        """What some tag may have to take out of the answer (negated), or add to it."""
        earliest, latest = self._versions(atom, first - 1), self._versions(atom, last)
        for condition, version in answer.readings:
            for after, upto, unwanted in (
                (earliest, version, True),
                (version, latest, False),
            ):
                if after >= upto:
                    continue
                rows = self._mailbox.placed(atom.relation, after, upto)
                if rows is None:
                    continue
                for test in (condition, atom.condition):
                    rows = rows if test is None else rows.where(test)
                rows = rows.select([*atom.renaming, (_AT, POSITION)])
                yield rows.negated() if unwanted else rows, unwanted

    def _versions(self, atom: Atom, cut: int) -> int:
        return self._mailbox.version_at(atom.relation.source, cut)


def _rounds(view: View) -> Iterator[tuple[_Visit, ...]]:
    """Gather, root, scatter."""
    tree = join_tree(view)
    all_atoms = frozenset(view.atoms)
    below = {
        atom: frozenset(a for a in view.atoms if tree.is_below(a, atom)) for atom in view.atoms
    }
    for level in reversed(tree.levels[1:]):
        yield tuple(_Visit(atom, below[atom]) for atom in level if below[atom])
    yield (_Visit(tree.root, below[tree.root]),)
    for level in tree.levels[1:]:
        yield tuple(_Visit(atom, all_atoms - below[atom] - {atom}) for atom in level)
