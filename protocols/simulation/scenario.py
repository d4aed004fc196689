"""A scenario: the contents of the sources, their updates, and the view that is kept.

A scenario gives the updates and their order at each source. The times of commits, arrivals and
questions are the schedule, which the simulator draws from a seed. A scenario with an update that no
real database could have committed is refused with the index of the update: a failure on it would
prove nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from protocols.algebra.bag import Bag, Row, bag
from protocols.errors import WrongUse
from protocols.forms import refuse_unknown_fields
from protocols.simulation.possible import (
    refuse_impossible,
    refuse_orphans,
    refuse_other_modifications,
)
from protocols.views.catalog import Catalog, Relation, catalog_from_json
from protocols.views.dialects import Dialect, dialect_named

#: The fields of a scenario.
FIELDS = ("name", "view", "dialect", "beside", "sources", "updates")
#: The rows of the relations of a source at one version.
Contents = Mapping[Relation, Bag]


@dataclass(frozen=True)
class Update:
    """A transaction at one source, as its net effect; unchanged relations are left out."""

    source: str
    changes: Contents
    #: Commits happen in the order of these times; those without one when the seed says so.
    at: float | None = None
    global_id: str | None = None


@dataclass(frozen=True, eq=False)
class Scenario:
    """A scenario, before a schedule is chosen. It is compared by identity."""

    name: str
    #: The SQL text.
    view: str
    catalog: Catalog
    initial: Contents
    #: In an order that keeps each source's own.
    updates: tuple[Update, ...]
    #: SQL of further views that are kept beside it.
    beside: tuple[str, ...] = ()
    #: The dialect of all these texts.
    dialect: Dialect | None = None


def scenario_from_json(form: Any) -> Scenario:
    """Reads and validates a scenario; raises WrongUse with the wrong part."""
    for key, kind in (("view", str), ("sources", dict), ("updates", list)):
        if not isinstance(form, dict) or not isinstance(form.get(key), kind):
            raise WrongUse(
                'a scenario needs "view", "sources" and "updates";'
                f" {key!r} is missing or has the wrong type"
            )
    refuse_unknown_fields("the scenario", form, FIELDS)
    catalog = catalog_from_json(form["sources"])
    initial = {relation: _initial(relation, form["sources"]) for relation in catalog}
    refuse_orphans(catalog, initial, initial)
    updates = []
    now, times = dict(initial), dict.fromkeys(catalog.sources, float("-inf"))
    for index, update_form in enumerate(form["updates"]):
        try:
            update = _update(update_form, catalog)
            now = {**now, **after(now, update.changes)}
            refuse_orphans(catalog, now, update.changes)
            times[update.source] = _time(update, times[update.source])
        except WrongUse as error:
            raise WrongUse(f"updates[{index}]: {error}") from None
        updates.append(update)
    name, beside = str(form.get("name", "")), form.get("beside", [])
    if not isinstance(beside, list) or not all(isinstance(sql, str) for sql in beside):
        raise WrongUse('"beside" has to be a list of further views, each a SELECT')
    dialect = dialect_named(form.get("dialect"))
    return Scenario(name, form["view"], catalog, initial, tuple(updates), tuple(beside), dialect)


def after(before: Contents, changes: Contents) -> dict[Relation, Bag]:
    """The changed relations after the changes; raises WrongUse if no database could commit them."""
    changed = {relation: before[relation].plus(change) for relation, change in changes.items()}
    for relation, rows in changed.items():
        refuse_impossible(relation, rows)
    return changed


def _initial(relation: Relation, sources: Mapping[str, Any]) -> Bag:
    rows = sources[relation.source]["relations"][relation.name].get("rows", [])
    if not isinstance(rows, list):
        raise WrongUse(f'relation {relation}: "rows" has to be a list, not {rows!r}')
    try:
        held = bag(relation.column_names, ((_row(relation, row), 1) for row in rows))
        refuse_impossible(relation, held)
    except WrongUse as error:
        raise WrongUse(f"initial rows: {error}") from None
    return held


def _update(form: Any, catalog: Catalog) -> Update:
    changes = form.get("changes") if isinstance(form, dict) else None
    if not isinstance(changes, list) or form.get("source") not in catalog.sources:
        raise WrongUse(f'it needs "changes" and a "source", one of: {", ".join(catalog.sources)}')
    refuse_unknown_fields("the update", form, ("source", "changes", "at", "global"))
    net: dict[Relation, Bag] = {}
    for change in changes:
        relation, row, count = _change(form["source"], change, catalog)
        one = bag(relation.column_names, [(row, count)])
        net[relation] = net[relation].plus(one) if relation in net else one
    kept = {relation: rows for relation, rows in net.items() if not rows.is_empty()}
    for relation, rows in kept.items():
        refuse_other_modifications(relation, rows)
    global_id = form.get("global")
    if global_id is not None and not isinstance(global_id, str):
        raise WrongUse(f'"global" has to be the name of a global transaction, not {global_id!r}')
    return Update(form["source"], kept, form.get("at"), global_id)


def _change(source: str, form: Any, catalog: Catalog) -> tuple[Relation, Row, int]:
    name, count = (form.get("relation"), form.get("count")) if isinstance(form, dict) else ("", 0)
    relation = catalog.find(source, str(name))
    if relation is None:
        raise WrongUse(f"source {source} has no relation {name!r}")
    refuse_unknown_fields("the change", form, ("relation", "row", "count"))
    if not isinstance(count, int) or isinstance(count, bool) or count == 0:
        raise WrongUse(f'"count" has to be a whole number other than 0, not {count!r}')
    return relation, _row(relation, form.get("row")), count


def _row(relation: Relation, values: Any) -> Row:
    if not isinstance(values, list) or len(values) != len(relation.columns):
        raise WrongUse(
            f"{relation} has {len(relation.columns)} columns, so {values!r} is not a row of it"
        )
    try:
        pairs = zip(relation.columns, values, strict=True)
        return tuple(type_.decode(value) for (_, type_), value in pairs)
    except ValueError as error:
        raise WrongUse(f"{relation}: {error}") from None


def _time(update: Update, before: float) -> float:
    if update.at is None:
        return before
    if not isinstance(update.at, int | float) or update.at < before:
        raise WrongUse(
            f'"at" must be a time no earlier than {before}, the time of the source\'s previous'
            f" update, but it is {update.at!r}"
        )
    return update.at
