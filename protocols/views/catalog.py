"""The relations that the sources hold, with typed columns, by `source.relation`.

A foreign key holds in every state of its source. It may also be declared across sources, but there
it does not hold on prefixes of the delivery order, from which a view is made: a child may arrive
before its parent. So nothing is concluded from a foreign key that is not `within_source`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from protocols.algebra.types import ColumnType, declared_type
from protocols.errors import WrongUse
from protocols.forms import refuse_unknown_fields
from protocols.views.constraints import (
    Reference,
    further_keys_in,
    key_in,
    references_in,
    updates_in,
)
from protocols.views.statistics import statistics_from_json

_FIELDS = ("columns", "key", "keys", "foreign_keys", "updates")


@dataclass(frozen=True)
class Relation:
    """A base table at one source. Without a key it is a bag: equal rows may occur many times.

    Two relations are equal if they have the same columns and the same key. Further keys and foreign
    keys say more about the rows; a question that omits them is still about the same relation.
    """

    source: str
    name: str
    columns: tuple[tuple[str, ColumnType], ...]
    #: The columns that address its rows.
    key: tuple[str, ...] = ()
    #: Further keys beside `key`; none of their columns is ever NULL either.
    further_keys: tuple[tuple[str, ...], ...] = field(default=(), compare=False)
    references: tuple[Reference, ...] = field(default=(), compare=False)
    #: The columns that modifications may change; None for any. A row with another `key` is another
    #: row: such a change is a deletion and an insertion.
    updates: tuple[str, ...] | None = field(default=None, compare=False)

    def __hash__(self) -> int:
        # Relations are used as keys everywhere, and two of one name hardly ever meet.
        return hash((self.source, self.name))

    def __str__(self) -> str:
        return f"{self.source}.{self.name}"

    @cached_property
    def column_names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.columns)

    def type_of(self, column: str) -> ColumnType:
        return dict(self.columns)[column]

    @cached_property
    def all_keys(self) -> tuple[tuple[str, ...], ...]:
        """All keys, `key` first if there is one."""
        keys = dict.fromkeys((self.key, *self.further_keys))
        return tuple(key for key in keys if key)

    @cached_property
    def never_null(self) -> frozenset[str]:
        """The columns that hold NULL in no row."""
        mandatory = (each.columns for each in self.references if each.mandatory)
        return frozenset[str]().union(*self.all_keys, *mandatory)

    @cached_property
    def modifiable(self) -> frozenset[str]:
        """The columns in which a row may change and stay the same row."""
        named = self.column_names if self.updates is None else self.updates
        return frozenset(named) - set(self.key)

    def why_never_null(self, column: str) -> str:
        """The reason why such a column is never NULL, for messages."""
        in_key = any(column in key for key in self.all_keys)
        return "key column" if in_key else "column of a mandatory foreign key"

    def schema(self) -> dict[str, Any]:
        """Columns and key in JSON, on which questions, traces and stored views agree."""
        form: dict[str, Any] = {"columns": {name: type_.name for name, type_ in self.columns}}
        if self.key:
            form["key"] = list(self.key)
        return form

    def to_json(self) -> dict[str, Any]:
        """The whole declaration, in the form of scenarios and query servers."""
        form = self.schema()
        if self.further_keys:
            form["keys"] = [list(key) for key in self.further_keys]
        if self.references:
            form["foreign_keys"] = [reference.to_json() for reference in self.references]
        if self.updates is not None:
            form["updates"] = list(self.updates)
        return form


@dataclass(frozen=True)
class ForeignKey:
    """Child rows reference a row of the parent by one of its keys, unless NULL is in it."""

    child: Relation
    columns: tuple[str, ...]
    parent: Relation
    parent_columns: tuple[str, ...]

    @property
    def within_source(self) -> bool:
        """Whether it holds on the prefixes of the delivery order."""
        return self.child.source == self.parent.source

    def __str__(self) -> str:
        ours, theirs = ", ".join(self.columns), ", ".join(self.parent_columns)
        return f"{self.child}({ours}) -> {self.parent}({theirs})"


def refuse_name(what: str, name: str, without: str = "") -> None:
    """Raises WrongUse for a name that cannot be written or shown or has one of these characters."""
    if not name or name != name.strip() or not name.isprintable() or set(name) & set(without):
        others = f", none of {' '.join(without)}" if without else ""
        raise WrongUse(
            f"{what} {name!r}: a name must have at least one character, no leading or trailing"
            f" blanks, no control characters{others}. Choose another name"
        )


def refuse_source_name(name: str) -> None:
    """Raises WrongUse for an unfit name of a source, which also names topics and files."""
    refuse_name("source", name, without="/\\")


def relation_from_json(source: str, name: str, form: Mapping[str, Any]) -> Relation:
    """Reads the JSON form of a relation; WrongUse names what is wrong with it."""
    refuse_source_name(source)
    refuse_name(f"source {source}: relation", name)
    where = f"relation {source}.{name}"
    refuse_unknown_fields(where, form, _FIELDS)
    columns = form.get("columns")
    if not isinstance(columns, Mapping) or not columns:
        raise WrongUse(f'{where}: "columns" must map column names to types')
    try:
        typed = tuple((column, declared_type(str(type_))) for column, type_ in columns.items())
    except ValueError as error:
        raise WrongUse(f"{where}: {error}") from None
    reserved = [column for column, _ in typed if column.startswith("_")]
    if reserved:
        raise WrongUse(f"{where}: column {reserved[0]!r}: names with a leading _ are reserved")
    return Relation(
        source,
        name,
        typed,
        key_in(where, form, columns),
        further_keys_in(where, form, columns),
        references_in(where, form, columns),
        updates_in(where, form, columns),
    )


@dataclass(frozen=True)
class Catalog:
    """All relations that a view may name."""

    relations: tuple[Relation, ...]
    #: source.relation, or source.relation.column, that a view cannot use → the reason.
    left_out: Mapping[str, str] = field(default_factory=dict, compare=False)

    def __iter__(self) -> Iterator[Relation]:
        return iter(self.relations)

    def find(self, source: str, name: str) -> Relation | None:
        matches = (r for r in self.relations if (r.source, r.name) == (source, name))
        return next(matches, None)

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(relation.source for relation in self.relations))

    @cached_property
    def foreign_keys(self) -> tuple[ForeignKey, ...]:
        """The foreign keys whose parent is in the catalog too, across sources as well."""
        return tuple(
            key
            for relation in self.relations
            for reference in relation.references
            if (key := self._foreign_key(relation, reference)) is not None
        )

    def refuse_impossible_references(self, *, whole: bool = True) -> None:
        """Raises WrongUse for a foreign key that does not fit the relation that it references.

        Unless the catalog is `whole`, a relation may be at a source that is not part of it.
        """
        for relation in self.relations:
            for reference in relation.references:
                self.refuse_impossible(relation, reference, whole=whole)

    def refuse_impossible(self, relation: Relation, reference: Reference, *, whole: bool) -> None:
        """Raises WrongUse if this foreign key does not fit."""
        place = f"relation {relation}: foreign key {reference}"
        key = self._foreign_key(relation, reference)
        if key is not None:
            _refuse_impossible(place, key)
        elif whole or not self.is_elsewhere(reference.target):
            there = ", ".join(map(str, self.relations))
            raise WrongUse(
                f"{place}: there is no relation {reference.target!r}; choose one of: {there}"
            )

    def _foreign_key(self, child: Relation, reference: Reference) -> ForeignKey | None:
        parent = self.find(child.source, reference.target) or next(
            (relation for relation in self.relations if str(relation) == reference.target), None
        )
        if parent is None:
            return None
        to = reference.to or parent.key
        return ForeignKey(child, reference.columns, parent, to)

    def is_elsewhere(self, target: str) -> bool:
        """Whether the target of a reference is at a source that is not part of the catalog."""
        return "." in target and not any(target.startswith(f"{own}.") for own in self.sources)


def _refuse_impossible(place: str, key: ForeignKey) -> None:
    child, parent = key.child, key.parent
    for column in key.parent_columns:
        if column not in parent.column_names:
            there = ", ".join(parent.column_names)
            raise WrongUse(f"{place}: {parent} has no column {column!r}; its columns are: {there}")
    if set(key.parent_columns) not in map(set, parent.all_keys):
        keys = " and ".join(f"({', '.join(each)})" for each in parent.all_keys)
        known = f"the keys of {parent} are {keys}" if keys else f"{parent} has none"
        raise WrongUse(f'{place}: it has to reference a key; {known}. Name one with "to"')
    if len(key.columns) != len(key.parent_columns):
        theirs = ", ".join(key.parent_columns)
        raise WrongUse(f"{place}: it needs one column for each of ({theirs}) of {parent}")
    for ours, theirs in zip(key.columns, key.parent_columns, strict=True):
        types = child.type_of(ours), parent.type_of(theirs)
        if types[0] != types[1]:
            raise WrongUse(
                f"{place}: {ours} is {types[0].name}, and {theirs} of {parent} is {types[1].name};"
                " they must have the same type"
            )


def catalog_from_json(sources: Mapping[str, Any], *, whole: bool = True) -> Catalog:
    """Reads the relations in the "sources" part of a scenario or a trace, without their rows.

    Unless it is `whole`, foreign keys may reference sources that are not part of it.
    """
    relations = []
    for source, body in sources.items():
        refuse_source_name(source)
        place = f"source {source}"
        held = body.get("relations") if isinstance(body, Mapping) else None
        if not isinstance(held, Mapping):
            raise WrongUse(f'{place}: "relations" has to map names to relations')
        refuse_unknown_fields(place, body, ("relations",))
        for name, form in held.items():
            if not isinstance(form, Mapping):
                raise WrongUse(f"relation {source}.{name} has to be an object")
            beside = ("rows", "statistics")
            declared = {field: value for field, value in form.items() if field not in beside}
            relation = relation_from_json(source, name, declared)
            statistics_from_json(f"relation {relation}", form, relation.column_names)
            relations.append(relation)
    catalog = Catalog(tuple(relations))
    catalog.refuse_impossible_references(whole=whole)
    return catalog
