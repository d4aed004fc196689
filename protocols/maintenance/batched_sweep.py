"""Batched complete SWEEP (beyond the paper; proof in algorithms.md, section 5).

Complete in delivery order like SWEEP, at a cost per *batch*: at most n + I - 1 questions, where n
is the number of atoms and I the number of inner atoms of the join tree, however many updates the
batch has. A batch is everything that was delivered while the previous one ran. So under load the
cost per update falls, while the states of all updates still become visible.

Every changed row is a partial of its own and carries a *tag*: the position k of its update (a
column) and the atom a where it begins (partials of one origin are in one delta). The row tagged
(k, a) needs an atom b at the cut k if b is before a in FROM, else at k - 1; this tie-break adds
up to V@k - V@(k-1), also when one transaction changes several relations or one relation occurs
twice. All tags share one question per visit: the union of their keys. Its answer belongs to no cut,
so it is turned into the rows of all cuts of the batch at once (Lemma 1), each with its lifetime:
*since* and *until* which position it is there. A row that no update touches is there throughout. A
tag takes the rows that are alive at its cut:

    end      = answer - (updates in it, after the batch) + (updates not in it, up to its end)
    history  = end, and going back from it the updates of the batch, each at its position
    rows@cut = rows of the history with since <= cut < until

So the correction is computed once per visit, however many tags there are, and no wrong row is
joined that would have to be taken out again.

The visits follow a tree in the join graph. Gather: each inner atom, from below, for the origins
below it. Then the root. Scatter: every other atom, from above, for all origins that still lack it.
Atoms of one depth are asked in one round.

Nothing in this depends on where a batch begins and ends: a stretch of it, swept by itself, yields
the changes of its own positions, and the updates of other stretches are taken out of its answers
like any others. So a batch is begun as a `Stretch`: a large one may be cut, and its slices swept
side by side, elsewhere.

Assumptions: versions in answers; none about channels.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from protocols.algebra.delta import POSITION, SINCE, UNTIL, Delta, Outputs
from protocols.algebra.expressions import And, Column, Comparison
from protocols.exchange.correction import over_span
from protocols.exchange.mailbox import Mailbox
from protocols.exchange.protocol import Stretch
from protocols.exchange.questions import Maintenance, Query
from protocols.views.jointree import join_tree
from protocols.views.partials import extended, seed, total
from protocols.views.plan import plan, step_to
from protocols.views.view import Atom, View

D = TypeVar("D", bound=Delta)

#: Whether a row with this lifetime is alive at the tag's cut: k, …
_ALIVE_AT = And(
    (
        Comparison(Column(SINCE), "<=", Column(POSITION)),
        Comparison(Column(POSITION), "<", Column(UNTIL)),
    )
)
#: … and k - 1.
_ALIVE_BEFORE = And(
    (
        Comparison(Column(SINCE), "<", Column(POSITION)),
        Comparison(Column(POSITION), "<=", Column(UNTIL)),
    )
)


@dataclass(frozen=True)
class Visit:
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

    #: One piece of work at a time.
    width = 1

    def __init__(self, view: View, mailbox: Mailbox[D]) -> None:
        self._view = view
        self._mailbox = mailbox
        self._plans = {atom: plan(view, atom) for atom in view.atoms}
        self._rounds = tuple(rounds(view))
        self._begun = mailbox.start

    def begin(self) -> Stretch[D] | None:
        """The next batch: everything that was delivered while the previous one ran."""
        first, last = self._begun + 1, self._mailbox.last_position
        if first > last:
            return None
        self._begun = last
        return Stretch(first, last, self.change)

    def change(self, first: int, last: int) -> Maintenance[D, D | None]:
        """The change of the view by the updates of a stretch, each row with its position."""
        partials = [p for atom in self._view.atoms for p in self._seeded(atom, first, last)]
        for visits in self._rounds:
            yield from self._round(visits, partials, first, last)
        shown = [*self._view.projection, (POSITION, POSITION)]
        return total(p.rows.select(shown) for p in partials if not p.rows.is_empty())

    def _seeded(self, atom: Atom, first: int, last: int) -> Iterator[_Partial[D]]:
        """The changes of an atom in the batch, each row tagged with its position."""
        changes = self._mailbox.placed(atom.relation, *self._span(atom, first, last))
        if changes is not None:
            rows = seed(self._plans[atom], changes, (POSITION,))
            # Nothing is asked for rows that cancel out. (Without rounds, `total` adds up.)
            yield _Partial(atom, [atom], rows.consolidated() if self._rounds else rows)

    def _round(
        self, visits: Sequence[Visit], partials: Sequence[_Partial[D]], first: int, last: int
    ) -> Maintenance[D, None]:
        """Makes visits that do not depend on each other; skips those for which no tag is left."""
        concerned, questions = [], []
        for visit in visits:
            here = [p for p in partials if p.origin in visit.origins and not p.rows.is_empty()]
            keys = self._keys(visit.atom, here)
            if keys:
                atom = visit.atom
                query = Query(atom.relation, atom.columns, atom.condition, keys, None, last)
                questions.append(query)
            concerned.append((visit.atom, here, keys))
        found = iter((yield [*questions]) if questions else ())
        for atom, here, keys in concerned:
            rows = over_span(self._mailbox, atom, keys, next(found), first, last) if keys else None
            for partial in here:
                if rows is None:
                    # All link values are NULL, so no tag finds a partner.
                    partial.rows = partial.rows.plus(partial.rows.negated()).consolidated()
                else:
                    self._extend(partial, atom, rows)

    def _keys(self, atom: Atom, partials: Sequence[_Partial[D]]) -> tuple[D, ...]:
        """The distinct link values of all tags, one set per combination of columns."""
        sets: dict[tuple[str, ...], list[tuple[D, Outputs]]] = {}
        for partial in partials:
            links = step_to(self._view, partial.bound, atom).keys
            sets.setdefault(tuple(name for name, _ in links), []).append((partial.rows, links))
        united = (rows.keys(links, *more) for (rows, links), *more in sets.values())
        return tuple(keys for keys in united if not keys.is_empty())

    def _extend(self, partial: _Partial[D], atom: Atom, rows: D) -> None:
        """Joins the atom to a partial, for each tag as of its own cut."""
        step = step_to(self._view, partial.bound, atom)
        partial.bound.append(atom)
        alive = None
        if SINCE in rows.columns:
            # The tag's cut is k for an atom before the origin, k - 1 for one after it.
            alive = _ALIVE_AT if atom.index < partial.origin.index else _ALIVE_BEFORE
        partial.rows = extended(partial.rows, rows, step, alive, (SINCE, UNTIL))

    def _span(self, atom: Atom, first: int, last: int) -> tuple[int, int]:
        """The versions (after, upto] of the batch."""
        return self._versions(atom, first - 1), self._versions(atom, last)

    def _versions(self, atom: Atom, cut: int) -> int:
        return self._mailbox.version_at(atom.relation.source, cut)


def rounds(view: View) -> Iterator[tuple[Visit, ...]]:
    """The rounds of visits: gather, root, scatter; none for a single atom."""
    tree = join_tree(view)
    all_atoms = frozenset(view.atoms)
    below = {
        atom: frozenset(a for a in view.atoms if tree.is_below(a, atom)) for atom in view.atoms
    }
    for level in reversed(tree.levels[1:]):
        yield tuple(Visit(atom, below[atom]) for atom in level if below[atom])
    if below[tree.root]:
        yield (Visit(tree.root, below[tree.root]),)
    for level in tree.levels[1:]:
        yield tuple(Visit(atom, all_atoms - below[atom] - {atom}) for atom in level)
