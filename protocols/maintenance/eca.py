"""ECA, the eager compensating algorithm [ZGHW95]: strong consistency, one query per update.

Zhuge, Garcia-Molina, Hammer, Widom: View maintenance in a warehousing environment, SIGMOD 1995.

The source evaluates whole joins. For an update U_i it is sent the query V<U_i>: the view with one
relation replaced by the change. Updates that the source commits before it evaluates that query are
in the answer too, and are taken out again by the *next* queries: an update U that arrives while Q
is unanswered adds the terms -Q<U> to its own query, for every such Q. The answers are collected,
and once none is missing their sum is exactly the change that the view lacks:

    view + COLLECT + (all unanswered queries, evaluated now) = V over the source as it is now

An update keeps this true, because Q = Q[now with U] - Q<U>; so does an answer.

It relies on: one source; one FIFO channel for updates and answers, so that an answer contains
exactly the updates that come before it; a query evaluated in a single state. The view changes only
when no query is unanswered, so under a stream of updates without a pause it never changes. With K
updates unanswered in a join of n relations the next query has Theta(K^(n-2)) terms.

Deviations from the pseudo-code:

* An update is a transaction. It is treated as a sequence of changes, each of one occurrence of a
  relation, in the order of FROM; the later ones compensate the terms of the earlier ones too, and
  all terms are sent in one query. That makes self-joins right too.
* Terms with all relations replaced need no source and are evaluated here; terms without rows are
  dropped, and a query without terms is not asked.
* Terms that are sent are never merged, though their sum could be written shorter: the growth of the
  messages is a property of ECA that is measured here (Table 1 of the SWEEP paper calls it
  quadratic, which is all queries of n = 3 together).
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from protocols.algebra.delta import Delta
from protocols.exchange.mailbox import Mailbox
from protocols.exchange.protocol import UNBOUNDED, Install, Work
from protocols.exchange.questions import Joint
from protocols.views.partials import extended, total
from protocols.views.plan import Plan, plan
from protocols.views.view import Atom, View

D = TypeVar("D", bound=Delta)


@dataclass(frozen=True, eq=False)
class SignedTerm(Generic[D]):
    """The view with some atoms replaced by rows (atom index → rows), added or subtracted."""

    rows: Mapping[int, D]
    sign: int = 1

    @property
    def asked(self) -> Mapping[int, D]:
        """The form that is sent: with the sign in the counts of one atom's rows."""
        if self.sign > 0:
            return self.rows
        first = min(self.rows)
        return {**self.rows, first: self.rows[first].negated()}


class Eca(Generic[D]):
    """The protocol for one view, over one mailbox."""

    #: Every update begins a piece, whatever is under way.
    width = UNBOUNDED

    def __init__(self, view: View, mailbox: Mailbox[D]) -> None:
        self._view = view
        self._mailbox = mailbox
        #: The position of the last update that was taken in.
        self._seen = mailbox.start
        #: UQS, the unanswered query set: position → terms.
        self._unanswered: dict[int, list[SignedTerm[D]]] = {}
        #: COLLECT: what answers and local terms have brought since the last install.
        self._collected: list[D] = []
        self._installed = mailbox.start

    def begin(self) -> Work[D] | None:
        """At the source's update U_i: Q_i = V<U_i> - sum of Q_j<U_i> over Q_j in UQS; send it."""
        if self._seen == self._mailbox.last_position:
            return None
        self._seen += 1
        terms = self._query(changed_rows(self._view, self._mailbox, self._seen))
        local, remote = divided(self._view, terms)
        self._collected += local
        if remote:
            self._unanswered[self._seen] = remote
        return self._answered(self._seen, remote)

    def _query(self, changes: list[tuple[Atom, D]]) -> list[SignedTerm[D]]:
        terms: list[SignedTerm[D]] = []
        for atom, rows in changes:
            unanswered = [term for query in self._unanswered.values() for term in query]
            corrections = compensating([*unanswered, *terms], atom, rows)
            terms += [SignedTerm({atom.index: rows}), *corrections]
        return terms

    def _answered(self, position: int, terms: list[SignedTerm[D]]) -> Work[D]:
        """At the answer A_i: COLLECT += A_i; if UQS is empty, the view += COLLECT."""
        if terms:
            (answer,) = yield [Joint(self._view, tuple(term.asked for term in terms), position)]
            self._collected.append(answer.rows)
            del self._unanswered[position]
        return self._when_quiet()

    def _when_quiet(self) -> list[Install[D]]:
        if self._unanswered or self._installed == self._seen:
            return []
        change, self._collected = total(self._collected), []
        self._installed = self._seen
        return [Install(self._seen, change)]


def changed_rows(view: View, mailbox: Mailbox[D], position: int) -> list[tuple[Atom, D]]:
    """The changes of an update for each atom, as the view sees them; only atoms with changes."""
    found = []
    for atom in view.atoms:
        change = mailbox.change(atom.relation, position)
        if change is not None:
            change = change if atom.condition is None else change.where(atom.condition)
            change = change.select(atom.renaming).consolidated()
            if not change.is_empty():
                found.append((atom, change))
    return found


def compensating(terms: list[SignedTerm[D]], atom: Atom, rows: D) -> list[SignedTerm[D]]:
    """-Q<U>: the rows that an atom's change adds to the answers of these terms, with opposite sign.

    A term in which the atom is already replaced does not read it, and so has no error from it.
    """
    return [
        SignedTerm({**term.rows, atom.index: rows}, -term.sign)
        for term in terms
        if atom.index not in term.rows
    ]


def divided(view: View, terms: list[SignedTerm[D]]) -> tuple[list[D], list[SignedTerm[D]]]:
    """Splits terms into the values of those that need no source, and the terms that do."""
    local = [term for term in terms if len(term.rows) == len(view.atoms)]
    remote = [term for term in terms if len(term.rows) < len(view.atoms)]
    way = plan(view, view.atoms[0])
    return [_joined(view, way, term) for term in _merged(local)], remote


def _merged(terms: list[SignedTerm[D]]) -> list[SignedTerm[D]]:
    """Merges local terms that differ only in one atom's rows into one with the sum of these rows.

    A join is linear in each of its relations, so this only saves work: after K updates a query has
    K^(n-1) local terms, which are nearly all the pairs, triples, … of the pending updates.
    """
    by_id = {id(rows): rows for term in terms for rows in term.rows.values()}
    #: For each term its sign and, for each atom, the ids of its rows.
    cells = [
        (term.sign, {atom: frozenset({id(rows)}) for atom, rows in term.rows.items()})
        for term in terms
    ]
    for atom in terms[0].rows if terms else ():
        alike: dict[Hashable, tuple[int, dict[int, frozenset[int]]]] = {}
        for sign, cell in cells:
            others = (sign, *(cell[other] for other in sorted(cell) if other != atom))
            if others in alike and not alike[others][1][atom] & cell[atom]:
                cell = {**cell, atom: alike[others][1][atom] | cell[atom]}
            elif others in alike:
                others = (*others, len(alike))
            alike[others] = (sign, cell)
        cells = list(alike.values())
    sums = {ids: total(by_id[each] for each in ids) for _, cell in cells for ids in cell.values()}
    merged = []
    for sign, cell in cells:
        rows = {atom: sums[ids] for atom, ids in cell.items()}
        there = {atom: each for atom, each in rows.items() if each is not None}
        if len(there) == len(rows):
            merged.append(SignedTerm(there, sign))
    return merged


def _joined(view: View, way: Plan, term: SignedTerm[D]) -> D:
    """The view over the rows of a term that replaces all atoms."""
    rows = term.asked
    partial = rows[0] if way.residual is None else rows[0].where(way.residual)
    for step in way.steps:
        partial = extended(partial, rows[step.atom.index], step)
    return partial.select(view.projection)
