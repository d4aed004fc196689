"""The transition of a rule: which rows have changed, and tables as they were before (Section 3).

    inserted_T    rows that came; also the new values of updated rows
    deleted_T     rows that went; also the old values of updated rows
    old_T         all rows of T before the transition, and perhaps those that came with it

Only the columns that the view uses count. So an update of others is no change, and neither is a row
that was deleted and inserted again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from protocols.rules.names import SCHEMA, quoted, table
from protocols.rules.substitution import used_columns
from protocols.rules.view import RuledView
from protocols.views.catalog import Relation

Event: TypeAlias = Literal["insert", "delete", "update"]
EVENTS: tuple[Event, ...] = ("insert", "delete", "update")
#: The names of a trigger's transition tables.
NEW, OLD = "new_rows", "old_rows"
#: The column that tells inserted rows from deleted ones where they are collected.
CAME = "viewsweep_came"


@dataclass(frozen=True)
class Changed:
    """Two queries, for the rows of one relation that came and that went; None if none can have."""

    inserted: str | None
    deleted: str | None


@dataclass(frozen=True)
class Transition:
    """Which relations change together, and how the changed rows are read."""

    view: RuledView
    changed: Mapping[Relation, Changed]

    def inserted(self, relation: Relation) -> str:
        return f"inserted_{tag(self.view, relation)}"

    def deleted(self, relation: Relation) -> str:
        return f"deleted_{tag(self.view, relation)}"

    def old(self, relation: Relation) -> str:
        return f"old_{tag(self.view, relation)}"

    def loses(self, relation: Relation) -> bool:
        return relation in self.changed and self.changed[relation].deleted is not None

    def gains(self, relation: Relation) -> bool:
        return relation in self.changed and self.changed[relation].inserted is not None

    def defined(self, named: Iterable[str]) -> str:
        """WITH, for those of the tables above that a statement names; empty if it names none."""
        wanted = set(named)
        parts = []
        for relation, each in self.changed.items():
            if self.old(relation) in wanted:
                wanted.add(self.deleted(relation))
            for name, query in (
                (self.inserted(relation), each.inserted),
                (self.deleted(relation), each.deleted),
                (self.old(relation), self._before(relation)),
            ):
                parts += [f"{quoted(name)} AS NOT MATERIALIZED ({query})"] if name in wanted else []
        return ",\n     ".join(parts)

    def _before(self, relation: Relation) -> str:
        columns = shown(self.view, relation)
        return (
            f"SELECT {columns} FROM {table(relation)}"
            f" UNION ALL SELECT {columns} FROM {quoted(self.deleted(relation))}"
        )


def direct(view: RuledView, relation: Relation, event: Event) -> Transition:
    """One operation on one relation, as the transition tables of its trigger have it."""
    columns = shown(view, relation)
    new, old = f"SELECT {columns} FROM {NEW}", f"SELECT {columns} FROM {OLD}"
    changed = {
        "insert": Changed(new, None),
        "delete": Changed(None, old),
        "update": Changed(f"{new} EXCEPT ALL {old}", f"{old} EXCEPT ALL {new}"),
    }
    return Transition(view, {relation: changed[event]})


def collected(view: RuledView) -> Transition:
    """Any operations on all relations, as they were collected."""
    changed = {}
    for relation in view.relations:
        rows = f"SELECT {shown(view, relation)} FROM {collection(view, relation)} WHERE"
        came, went = f"{rows} {CAME}", f"{rows} NOT {CAME}"
        changed[relation] = Changed(f"{came} EXCEPT ALL {went}", f"{went} EXCEPT ALL {came}")
    return Transition(view, changed)


def collection(view: RuledView, relation: Relation) -> str:
    """The table that collects the changed rows of a relation."""
    return f"{SCHEMA}.{quoted(view.names.within(f'changes of {relation}'))}"


def shown(view: RuledView, relation: Relation) -> str:
    """The columns of a relation that the view uses, as SQL."""
    if any(relation in branch.elsewhere for branch in view.branches):
        return ", ".join(map(quoted, relation.column_names))
    nodes = [
        place.node
        for branch in view.branches
        for place in branch.places
        if place.reference.relation == relation
    ]
    return ", ".join(map(quoted, used_columns(view.query, relation, nodes)))


def tag(view: RuledView, relation: Relation) -> str:
    """The relation's name, with its source if two of the view's relations have the same."""
    same = [each for each in view.relations if each.name == relation.name]
    return relation.name if len(same) == 1 else f"{relation.source}_{relation.name}"
