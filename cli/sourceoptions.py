"""The relations, keys and indexes in the options of `sources init` and `sources index`."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from protocols.errors import WrongUse
from protocols.views.catalog import Catalog
from sources.simulated.loading import load_relation

#: customers, crm.customers, customers(id), customers(id, part)
_REFERENCED = re.compile(r"(?P<relation>[^()]+?)(\((?P<columns>[^()]+)\))?")


def pairs(options: Sequence[str], option: str) -> dict[str, str]:
    """name → value of `name=value`, each name once."""
    found: dict[str, str] = {}
    for each in options:
        name, value = _pair(each, option)
        if name in found:
            raise WrongUse(f"{option} {each}: {name} is given twice")
        found[name] = value
    return found


def columns_in(lists: Mapping[str, str]) -> dict[str, list[str]]:
    """name → the columns of "column,column"."""
    return {name: _columns(text) for name, text in lists.items()}


def declared(
    keys: Sequence[str], foreign_keys: Sequence[str], mandatory: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Relation → its keys and foreign keys, in the JSON form of relations.

    Keys are `name=column,column`; rows are addressed by the first key of their relation. Foreign
    keys are `name.column,column=relation(column,column)`.
    """
    found: dict[str, dict[str, Any]] = {}
    for each in keys:
        name, text = _pair(each, "--key")
        form = found.setdefault(name, {})
        if "key" in form:
            form.setdefault("keys", []).append(_columns(text))
        else:
            form["key"] = _columns(text)
    read = [_foreign_key(each, "--foreign-key") for each in foreign_keys]
    for name, key in [_foreign_key(each, "--mandatory-foreign-key") for each in mandatory]:
        read.append((name, {**key, "mandatory": True}))
    for name, key in read:
        found.setdefault(name, {}).setdefault("foreign_keys", []).append(key)
    return found


def loaded(
    source: str,
    files: Mapping[str, str],
    said: Mapping[str, Mapping[str, Any]],
    types: Mapping[str, str],
) -> tuple[Catalog, dict[str, pl.DataFrame]]:
    """The relations in these files and their rows; `types` maps `name.column` to a type."""
    by_relation: dict[str, dict[str, str]] = {}
    for place, type_ in types.items():
        name, _, column = place.partition(".")
        by_relation.setdefault(name, {})[column] = type_
    for option, named in (("--key or --foreign-key", said), ("--type", by_relation)):
        for without_file in sorted(set(named) - set(files)):
            raise WrongUse(f"{option} {without_file}…: there is no --relation {without_file}=…")
    found = [
        load_relation(source, name, Path(file), said.get(name, {}), by_relation.get(name))
        for name, file in files.items()
    ]
    catalog = Catalog(tuple(relation for relation, _ in found))
    return catalog, {relation.name: rows for relation, rows in found}


def told(form: Mapping[str, Any]) -> str:
    """The keys of a relation's JSON form in words."""
    first = f"key {', '.join(form['key'])}" if "key" in form else "no key"
    parts = [first, *(f"further key {', '.join(key)}" for key in form.get("keys", ()))]
    for key in form.get("foreign_keys", ()):
        to = f"({', '.join(key['to'])})" if "to" in key else ""
        kind = "mandatory foreign key" if key.get("mandatory") else "foreign key"
        parts.append(f"{kind} {', '.join(key['columns'])} -> {key['references']}{to}")
    return ", ".join(parts)


def _pair(text: str, option: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise WrongUse(f"{option} {text}: needs the form name=value")
    return name, value


def _columns(text: str) -> list[str]:
    return [column for each in text.split(",") if (column := each.strip())]


def _foreign_key(text: str, option: str) -> tuple[str, dict[str, Any]]:
    place, target = _pair(text, option)
    name, _, columns = place.partition(".")
    referenced = _REFERENCED.fullmatch(target)
    if not (name and columns and referenced):
        raise WrongUse(
            f"{option} {text}: needs the form name.column,column=relation(column,column)"
        )
    form: dict[str, Any] = {"columns": _columns(columns), "references": referenced["relation"]}
    if referenced["columns"]:
        form["to"] = _columns(referenced["columns"])
    return name, form
