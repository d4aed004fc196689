"""The constraints that a relation declares: its keys, its foreign keys, and what updates change.

    {"key": ["id"], "keys": [["shop", "number"]],
     "foreign_keys": [{"columns": ["shop"], "references": "shops", "to": ["id"],
                       "mandatory": true}],
     "updates": ["price"]}

`key` addresses rows, `keys` are further ones; none of their columns is ever NULL. `references`
names a relation of the same source, or `source.relation`; without `to` its `key` is meant. A row
with NULL in a column of a foreign key references nothing. With `mandatory` there is no such row.
`updates` names the columns that a modification of a row may change: without it any, with `[]` none.

Constraints are read relation by relation. The catalog checks whether a foreign key fits the
relation that it references.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from protocols.errors import WrongUse
from protocols.forms import refuse_unknown_fields


@dataclass(frozen=True)
class Reference:
    """A foreign key as its relation declares it."""

    columns: tuple[str, ...]
    #: `source.relation`, or the name of a relation of the same source.
    target: str
    #: The referenced columns, one for each of ours; none for the key of that relation.
    to: tuple[str, ...] = ()
    #: Whether none of the columns is ever NULL, so that every row has its parent there.
    mandatory: bool = False

    def __str__(self) -> str:
        to = f"({', '.join(self.to)})" if self.to else ""
        return f"({', '.join(self.columns)}) -> {self.target}{to}"

    def to_json(self) -> dict[str, Any]:
        form: dict[str, Any] = {"columns": list(self.columns), "references": self.target}
        if self.to:
            form["to"] = list(self.to)
        if self.mandatory:
            form["mandatory"] = True
        return form


def key_in(place: str, form: Mapping[str, Any], columns: Collection[str]) -> tuple[str, ...]:
    """Reads `key` in the JSON form of a relation; empty for a bag."""
    value = form.get("key")
    return _named(place, "key", value, columns) if value else ()


def further_keys_in(
    place: str, form: Mapping[str, Any], columns: Collection[str]
) -> tuple[tuple[str, ...], ...]:
    """Reads `keys` in the JSON form of a relation."""
    keys = form.get("keys") or []
    if not isinstance(keys, list):
        raise WrongUse(f'{place}: its "keys" must be a list of lists of column names, not {keys!r}')
    return tuple(_named(place, "further key", each, columns) for each in keys)


def references_in(
    place: str, form: Mapping[str, Any], columns: Collection[str]
) -> tuple[Reference, ...]:
    """Reads `foreign_keys` in the JSON form of a relation."""
    keys = form.get("foreign_keys") or []
    if not isinstance(keys, list):
        raise WrongUse(f'{place}: its "foreign_keys" must be a list of objects, not {keys!r}')
    return tuple(
        _reference(f"{place}: foreign_keys[{number}]", each, columns)
        for number, each in enumerate(keys)
    )


def updates_in(
    place: str, form: Mapping[str, Any], columns: Collection[str]
) -> tuple[str, ...] | None:
    """Reads `updates` in the JSON form of a relation; None if any column may change."""
    if form.get("updates") == []:
        return ()
    return _named(place, "updates", form["updates"], columns) if "updates" in form else None


def _reference(place: str, form: Any, columns: Collection[str]) -> Reference:
    if not isinstance(form, Mapping):
        raise WrongUse(f'{place} must be an object with "columns" and "references", not {form!r}')
    refuse_unknown_fields(place, form, ("columns", "references", "to", "mandatory"))
    target, mandatory = form.get("references"), form.get("mandatory", False)
    if not isinstance(target, str) or not target:
        raise WrongUse(f'{place}: "references" must be the name of a relation, not {target!r}')
    if not isinstance(mandatory, bool):
        raise WrongUse(f'{place}: "mandatory" must be true or false, not {mandatory!r}')
    own = _named(place, "foreign key", form.get("columns"), columns)
    to = _named(place, '"to"', form["to"]) if "to" in form else ()
    return Reference(own, target, to, mandatory)


def _named(
    place: str, what: str, names: Any, columns: Collection[str] | None = None
) -> tuple[str, ...]:
    """Reads a list of at least one column name, each once; checks them if the columns are known."""
    if not (
        isinstance(names, list | tuple) and names and all(isinstance(name, str) for name in names)
    ):
        raise WrongUse(f"{place}: its {what} must be a list of column names, not {names!r}")
    for number, name in enumerate(names):
        if columns is not None and name not in columns:
            there = ", ".join(columns)
            raise WrongUse(f"{place}: {what} column {name!r} is not among its columns: {there}")
        if name in names[:number]:
            raise WrongUse(f"{place}: its {what} names column {name!r} twice")
    return tuple(names)
