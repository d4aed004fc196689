"""The secondary delta: orphans that come and go because another relation changed (Section 5).

After an insertion, orphans of an indirectly affected term that found a partner leave the view;
after a deletion, rows that lost their last partner enter it. Both follow from the primary delta
and, where that is enough, from the view as it stands:

    insertion   of the view's rows of the term, those that are part of a new row of a direct parent
    deletion    of the parts of deleted rows of direct parents, those that no row of the view has

For both the view must show columns that determine the term's rows. For an insertion it must also
tell the term's rows from those of every other term, by a column that is NULL in one of them and
never in the other. Otherwise the relations have to be read, to find the rows that had, or still
have, a partner in a direct parent (Section 5.3).

Two things are different from the printed paper. Terms are computed from large to small, each
against a view that already has the orphans of the larger ones; or a candidate is left out if it is
joined with an alias that only an indirect parent adds (`unless`), which the paper requires in
Section 5.3 only. Taken literally, 5.2 makes orphans of rows that another orphan contains.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, TypeAlias

from protocols.analysis.dependencies import Facts, inner_join, lacking_least, mark
from protocols.analysis.maintenancegraph import Affected, MaintenanceGraph
from protocols.analysis.normalform import NormalForm, Term
from protocols.analysis.wording import listed

UpdateKind: TypeAlias = Literal["insertion", "deletion"]


@dataclass(frozen=True)
class SecondaryDelta:
    """The way in which the orphans of one term follow one kind of update."""

    term: Term
    updated: str
    update: UpdateKind
    #: The direct parents, whose rows in the primary delta have the term's rows as parts.
    parents: tuple[Term, ...]
    #: A row of the primary delta that has one of these contains a larger orphan instead.
    unless: tuple[str, ...]
    #: The columns that the view lacks for it; if none is missing, the view is enough.
    missing: tuple[str, ...]
    #: Otherwise: the relations that have to be read, by alias.
    reads: tuple[str, ...]

    @property
    def from_view(self) -> bool:
        return not self.reads

    def __str__(self) -> str:
        parents = listed([parent.name for parent in self.parents])
        if self.update == "insertion":
            what = f"orphans {self.term.name} that are part of a new row {parents} leave the view"
        else:
            what = f"parts {self.term.name} of deleted rows {parents} enter the view as orphans"
            what += ", unless a row of the view contains them"
        if self.unless:
            what += f"; rows with {listed(self.unless)} do not count"
        if self.from_view:
            return f"{what}: from the view"
        needed = f"; with {listed(self.missing)} in the select list the view would do"
        return f"{what}: from {listed(self.reads)}{needed if self.missing else ''}"


def secondary_deltas(
    form: NormalForm,
    graph: MaintenanceGraph,
    update: UpdateKind,
    exposed: Collection[str] | None,
) -> tuple[SecondaryDelta, ...]:
    """The secondary delta of every indirectly affected term, from large to small.

    `exposed` are the columns `alias.column` that the view shows; None if its rows are not those of
    the block, as in a view that aggregates: then no further column would help.
    """
    return tuple(_secondary(form, graph, each, update, exposed) for each in graph.indirect)


def _secondary(
    form: NormalForm,
    graph: MaintenanceGraph,
    affected: Affected,
    update: UpdateKind,
    exposed: Collection[str] | None,
) -> SecondaryDelta:
    term = affected.term
    shown = frozenset(exposed or ())
    added = None if exposed is None else _key_columns_wanted(form, term, shown)
    possible = added is not None
    if added is not None and update == "insertion":
        telling = _telling_columns_wanted(form, term, shown | set(added))
        possible = telling is not None
        added += telling or ()
    unless = {a for p in affected.indirect_parents for a in p.aliases} - term.sources
    further = {a for p in affected.direct_parents for a in p.aliases} - term.sources
    sufficient = possible and not added
    return SecondaryDelta(
        term,
        graph.updated,
        update,
        affected.direct_parents,
        tuple(alias for alias in form.aliases if alias in unless),
        tuple(added or ()) if possible else (),
        () if sufficient else tuple(alias for alias in form.aliases if alias in further),
    )


def _facts_of(form: NormalForm, term: Term) -> Facts | None:
    """The facts about the rows of a term; None if one of its leaves is not a relation."""
    if not term.sources <= form.known_relations.keys():
        return None
    return inner_join(((a, form.known_relations[a]) for a in term.aliases), term.conditions)


def _key_columns_wanted(
    form: NormalForm, term: Term, shown: frozenset[str]
) -> tuple[str, ...] | None:
    """The columns to add so that the shown ones determine the term's rows; None if none suffice."""
    known = _facts_of(form, term)
    if known is None:
        return None
    own = {column for column in shown if column.rpartition(".")[0] in term.sources}
    wanted: list[str] = []
    for alias in term.aliases:
        there = known.determined_by(own)
        if mark(alias) not in there:
            lacking = lacking_least(alias, form.known_relations[alias], there)
            wanted += lacking
            own.update(lacking)
    return tuple(wanted) if known.tell_rows_apart(own) else None


def _telling_columns_wanted(
    form: NormalForm, term: Term, shown: frozenset[str]
) -> tuple[str, ...] | None:
    """The columns to add so that no other term has rows that look alike; None if none suffice."""
    wanted: list[str] = []
    for other in form.terms:
        if other == term:
            continue
        telling = _telling_columns(form, term, other)
        if telling and not (shown | set(wanted)) & set(telling):
            wanted.append(telling[0])
        if not telling:
            return None
    return tuple(wanted)


def _telling_columns(form: NormalForm, one: Term, other: Term) -> tuple[str, ...]:
    """The columns that are NULL in one of two terms and never in the other."""
    found: list[str] = []
    for here, there in ((one, other), (other, one)):
        known = _facts_of(form, here)
        never_null = known.never_null if known is not None else frozenset()
        own = here.sources - there.sources
        found += sorted(c for c in never_null if c.rpartition(".")[0] in own)
    return tuple(found)
