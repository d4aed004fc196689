"""The relations of a database, as its adapter found them in the database's catalog."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from protocols.views.catalog import Relation, relation_from_json
from sources.debezium.layout import TableLayout


@dataclass(frozen=True)
class FoundColumn:
    """A column that views can use."""

    #: Our type.
    type: str
    #: The form of its values in records, by the names in `layout.READERS`.
    form: str
    #: Its type at the database, by which it is asked.
    stored: str


@dataclass(frozen=True)
class FoundKey:
    """A primary or unique key."""

    table: str
    columns: Sequence[str]
    is_primary: bool
    never_null: bool


@dataclass(frozen=True)
class FoundReference:
    """A foreign key."""

    table: str
    columns: Sequence[str]
    target: str
    to: Sequence[str]
    never_null: bool


@dataclass(frozen=True)
class DescribedSchema:
    """The relations of a schema."""

    tables: Mapping[str, TableLayout]
    #: Relation → column → its type at the database.
    types: Mapping[str, Mapping[str, str]]
    indexes: Mapping[str, Sequence[str]]
    #: Tables that no view can be over, and columns that none can use, each with the reason.
    left_out: Mapping[str, str]

    @property
    def relations(self) -> dict[str, Relation]:
        """Name → relation."""
        return {name: layout.relation for name, layout in self.tables.items()}


def described(
    source: str,
    schema: str,
    columns: Mapping[str, Mapping[str, FoundColumn]],
    keys: Sequence[FoundKey],
    references: Sequence[FoundReference],
    indexes: Mapping[str, Sequence[str]],
    left_out: Mapping[str, str],
) -> DescribedSchema:
    """The relations, with the keys whose columns can be used."""
    forms: dict[str, dict[str, Any]] = {
        table: {"columns": {name: each.type for name, each in of.items()}}
        for table, of in columns.items()
    }
    _add_keys(forms, [each for each in keys if each.never_null and _has(forms, each)])
    for each in references:
        if _has(forms, each) and set(each.to) <= set(forms.get(each.target, _NONE)["columns"]):
            _add_reference(forms, each)
    return DescribedSchema(
        {
            table: TableLayout(
                relation_from_json(source, table, form),
                (schema, table),
                {name: each.form for name, each in columns[table].items()},
            )
            for table, form in forms.items()
        },
        {table: {name: each.stored for name, each in of.items()} for table, of in columns.items()},
        {t: [name for name in indexes.get(t, ()) if name in of] for t, of in columns.items()},
        left_out,
    )


_NONE: Mapping[str, Any] = {"columns": ()}


def _has(forms: Mapping[str, Any], found: FoundKey | FoundReference) -> bool:
    return found.table in forms and set(found.columns) <= set(forms[found.table]["columns"])


def _add_keys(forms: dict[str, dict[str, Any]], keys: Sequence[FoundKey]) -> None:
    """Adds the primary keys; a table without one is known by its first unique key."""
    for each in sorted(keys, key=lambda key: not key.is_primary):
        form = forms[each.table]
        if "key" in form:
            form.setdefault("keys", []).append(list(each.columns))
        else:
            form["key"] = list(each.columns)


def _add_reference(forms: dict[str, dict[str, Any]], each: FoundReference) -> None:
    """Adds a foreign key, if what it references is a key that can be used."""
    target = forms[each.target]
    known = [target.get("key"), *target.get("keys", ())]
    if not any(key and sorted(key) == sorted(each.to) for key in known):
        return
    reference: dict[str, Any] = {"columns": list(each.columns), "references": each.target}
    if list(each.to) != target.get("key"):
        reference["to"] = list(each.to)
    if each.never_null:
        reference["mandatory"] = True
    forms[each.table].setdefault("foreign_keys", []).append(reference)
