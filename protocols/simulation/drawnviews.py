"""Scenarios whose views go beyond inner joins: random SQL over random schemas.

The family "views" of campaigns. Text that `parse_view` refuses is drawn again. The reasons are
counted, because a generator whose views are mostly refused tests little.
"""

from collections import Counter
from random import Random
from typing import Any

from protocols.errors import ViewRefused
from protocols.maintenance.registry import Entry
from protocols.simulation.drawn import LINKED, Maker, Place, Shaped, join_some, places
from protocols.simulation.drawnsql import NoQuery, drawn_query
from protocols.views.catalog import catalog_from_json
from protocols.views.dialects import Dialect
from protocols.views.sql import parse_view
from protocols.views.tree import TreeView

#: The approximate number of relations that a view names.
_ROOM = (2, 2, 3, 3, 4, 5)
#: At most so many texts are drawn.
_ATTEMPTS = 200


def view_scenario(
    seed: int | str, entry: Entry, updates: int = 9, refused: Counter[str] | None = None
) -> Shaped:
    """Draws the scenario of this seed; `refused` counts refused texts by reason."""
    rng = Random(f"view {seed}")
    schema = _schema(rng)
    maker = Maker(rng, schema, keys=False)
    sources: dict[str, Any] = {}
    for source, name in schema:
        form = maker.relation(source, name)
        sources.setdefault(source, {"relations": {}})["relations"][name] = form
    dialect = _dialect(seed)
    form = {
        "name": f"view {seed}",
        "view": _view(rng, schema, sources, dialect, Counter() if refused is None else refused),
        **({} if dialect is None else {"dialect": dialect}),
        "sources": sources,
        "updates": [maker.update() for _ in range(updates)],
    }
    if "/" in form["view"]:
        form = _with_one_zero(form)
    if entry.transactions == "global" and rng.random() < 0.4:
        join_some(rng, form["updates"])
    return Shaped("view", form)


def _dialect(seed: int | str) -> Dialect | None:
    """Drawn with a generator of its own, so that the other draws of a seed stay the same."""
    rng = Random(f"dialect {seed}")
    return rng.choice(("duckdb", "postgres")) if rng.random() < 0.12 else None


def _with_one_zero(form: Any) -> Any:
    """The same form without -0.0, which equals 0.0, so that rows with either are merged.

    Which of the two remains matters only to a division by it: that is a known gap.
    """
    if isinstance(form, dict):
        return {name: _with_one_zero(each) for name, each in form.items()}
    if isinstance(form, list):
        return [_with_one_zero(each) for each in form]
    return form + 0.0 if isinstance(form, float) else form


def _schema(rng: Random) -> dict[Place, dict[str, str]]:
    """Draws relations with columns of few types, so that they can be linked."""
    linked = rng.choice(list(LINKED))
    schema: dict[Place, dict[str, str]] = {}
    for place in places(rng, rng.choice((1, 2, 2, 3, 3)), one_source=False):
        columns = {"id": "BIGINT", "x": linked, "v": "BIGINT"}
        if rng.random() < 0.6:
            columns["y"] = linked
        if rng.random() < 0.4:
            columns["w"] = rng.choice(list(LINKED))
        schema[place] = columns
    return schema


def _view(
    rng: Random,
    schema: dict[Place, dict[str, str]],
    sources: Any,
    dialect: Dialect | None,
    refused: Counter[str],
) -> str:
    relations = {f"{source}.{name}": columns for (source, name), columns in schema.items()}
    catalog = catalog_from_json(sources)
    keyed = [str(relation) for relation in catalog if relation.key]
    for _ in range(_ATTEMPTS):
        try:
            sql = drawn_query(rng, relations, rng.choice(_ROOM), keyed)
            if dialect is not None:
                sql = sql.replace(" % 2)", " / 2)").replace(" % 3)", " / 2.5)")
            if isinstance(parse_view("view", sql, catalog, dialect), TreeView):
                return sql
            refused["an inner join"] += 1
        except (NoQuery, ViewRefused) as error:
            refused[str(error)] += 1
    raise AssertionError(f"no view could be drawn: {refused.most_common(3)}")
