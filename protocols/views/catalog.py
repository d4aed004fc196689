"""What the sources hold: relations with typed columns, by `source.relation`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from protocols.algebra.types import ColumnType, column_type
from protocols.errors import WrongUse


@dataclass(frozen=True)
class Relation:
    """A base table at one source. Without a key it is a bag: equal rows may occur many times."""

    source: str
    name: str
    columns: tuple[tuple[str, ColumnType], ...]
    key: tuple[str, ...] = ()

    def __hash__(self) -> int:
        # Relations are keys everywhere, and two of one name hardly ever meet.
        return hash((self.source, self.name))

    def __str__(self) -> str:
        return f"{self.source}.{self.name}"

    @cached_property
    def column_names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.columns)

    def type_of(self, column: str) -> ColumnType:
        return dict(self.columns)[column]

    def to_json(self) -> dict[str, Any]:
        """The form that scenarios, traces and query servers use."""
        form: dict[str, Any] = {"columns": {name: type_.name for name, type_ in self.columns}}
        if self.key:
            form["key"] = list(self.key)
        return form


def refuse_name(what: str, name: str, without: str = "") -> None:
    """WrongUse when nobody could write or show a name, or it has one of these characters."""
    if not name or name != name.strip() or not name.isprintable() or set(name) & set(without):
        others = f", none of {' '.join(without)}" if without else ""
        raise WrongUse(
            f"{what} {name!r}: a name has at least one character, no blank at either end, no"
            f" control characters{others}. Give it another one"
        )


def refuse_source_name(name: str) -> None:
    """The same for a source, after which topics and files are named as well."""
    refuse_name("source", name, without="/\\")


def relation_from_json(source: str, name: str, form: Mapping[str, Any]) -> Relation:
    """Reads the JSON form of a relation; WrongUse names what is wrong with it."""
    refuse_source_name(source)
    refuse_name(f"source {source}: relation", name)
    where = f"relation {source}.{name}"
    columns = form.get("columns")
    if not isinstance(columns, Mapping) or not columns:
        raise WrongUse(f'{where}: "columns" must map column names to types')
    try:
        typed = tuple((column, column_type(str(type_))) for column, type_ in columns.items())
    except ValueError as error:
        raise WrongUse(f"{where}: {error}") from None
    reserved = [column for column, _ in typed if column.startswith("_")]
    if reserved:
        raise WrongUse(f"{where}: column {reserved[0]!r}: names with a leading _ are reserved")
    key = tuple(form.get("key") or ())
    unknown = [column for column in key if column not in columns]
    if unknown:
        raise WrongUse(f"{where}: key column {unknown[0]!r} is not among its columns")
    return Relation(source, name, typed, key)


@dataclass(frozen=True)
class Catalog:
    """All relations that a view may name."""

    relations: tuple[Relation, ...]

    def __iter__(self) -> Iterator[Relation]:
        return iter(self.relations)

    def find(self, source: str, name: str) -> Relation | None:
        matches = (r for r in self.relations if (r.source, r.name) == (source, name))
        return next(matches, None)

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(relation.source for relation in self.relations))


def catalog_from_json(sources: Mapping[str, Any]) -> Catalog:
    """Reads the "sources" part of a scenario or a trace."""
    for source in sources:
        refuse_source_name(source)
    return Catalog(
        tuple(
            relation_from_json(source, name, form)
            for source, body in sources.items()
            for name, form in body.get("relations", {}).items()
        )
    )
