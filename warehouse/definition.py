"""The definition of a stored view, beside its tables: its SQL and the relations it is over.

`view.json` is written before the first table and never changed. If the view or its sources look
different now, the job must not write into these tables; the comparison here says what differs.
"""

import difflib
import os
from pathlib import Path
from typing import Any

import orjson

from protocols.errors import WrongUse
from protocols.views.catalog import catalog_from_json
from protocols.views.dialects import dialect_named
from protocols.views.sql import parse_view, plain_lines
from protocols.views.tree import AnyView

FORMAT = 1
#: The tables of a view, first the one that the others are derived from.
TABLES = ("changes", "progress", "current")
_WAY_OUT = "Restore it, or remove the view's directory to recreate the view"


def definition_of(view: AnyView) -> dict[str, Any]:
    """The parts of a view that must not change, as JSON."""
    sources: dict[str, Any] = {source: {"relations": {}} for source in view.sources}
    for relation in view.relations:
        sources[relation.source]["relations"][relation.name] = relation.schema()
    form = {"format": FORMAT, "view": view.name, "sql": view.sql, "sources": sources}
    return form if view.dialect is None else {**form, "dialect": view.dialect}


def write_definition(directory: Path, view: AnyView) -> None:
    """Writes it, whole or not at all, also when others write it at the same time."""
    part = directory / f"view.json.{os.getpid()}.part"
    with part.open("wb") as file:
        file.write(orjson.dumps(definition_of(view), option=orjson.OPT_INDENT_2))
        file.flush()
        os.fsync(file.fileno())
    part.replace(directory / "view.json")


def is_kept(directory: Path) -> bool:
    """Whether the directory has a table, which needs its definition."""
    return any((directory / name / "_delta_log").exists() for name in TABLES)


def read_definition(directory: Path) -> dict[str, Any] | None:
    """The stored definition; None when there is no view here yet."""
    file = directory / "view.json"
    if not file.exists():
        return None
    try:
        definition = orjson.loads(file.read_bytes())
    except orjson.JSONDecodeError:
        raise WrongUse(f"{file} is damaged: it is not JSON. {_WAY_OUT}") from None
    if not isinstance(definition, dict) or definition.get("format") != FORMAT:
        raise WrongUse(f"{file} was written by another version of viewsweep; it was left unchanged")
    kinds = {"view": str, "sql": str, "sources": dict}
    if not all(isinstance(definition.get(key), kind) for key, kind in kinds.items()):
        raise WrongUse(f"{file} is damaged: it does not define a view. {_WAY_OUT}")
    return definition


def stored_view(directory: Path) -> AnyView:
    """The view that is kept in this directory."""
    definition = read_definition(directory)
    if definition is None:
        raise WrongUse(f"there is no view in {directory}; 'viewsweep run' creates it")
    catalog = catalog_from_json(definition["sources"])
    dialect = dialect_named(definition.get("dialect"))
    return parse_view(definition["view"], definition["sql"], catalog, dialect)


def refuse_another_view(directory: Path, view: AnyView) -> None:
    """WrongUse when the directory holds another view, or this one over other relations."""
    stored = read_definition(directory)
    if stored is None:
        return
    wanted = definition_of(view)
    way_out = "Give the new view another name, or remove that directory to start again"
    if (difference := _difference(stored["sql"], view.sql)) is not None:
        raise WrongUse(f"{directory} holds a view with different SQL: {difference}. {way_out}")
    if (before := stored.get("dialect")) != view.dialect:
        raise WrongUse(
            f"{directory} holds the view in the dialect {before or 'of all databases'}, and now it"
            f" is to be {view.dialect or 'that of all databases'}. {way_out}"
        )
    for relation in view.relations:
        before = stored["sources"].get(relation.source, {}).get("relations", {})
        if (
            before.get(relation.name)
            != wanted["sources"][relation.source]["relations"][relation.name]
        ):
            raise WrongUse(
                f"{directory}: relation {relation} had the schema {before.get(relation.name)} when"
                f" the view was made and has {relation.schema()} now. {way_out}"
            )


def _difference(stored: str, wanted: str) -> str | None:
    """The difference of two view texts, besides comments, spaces and the case of keywords."""
    before, now = plain_lines(stored), plain_lines(wanted)
    if before == now:
        return None
    changed = [line for line in difflib.ndiff(before, now) if line[0] in "-+"]
    gone = " ".join(line[2:].strip() for line in changed if line[0] == "-")
    new = " ".join(line[2:].strip() for line in changed if line[0] == "+")
    return f"it has {gone!r} where the new one has {new!r}"
