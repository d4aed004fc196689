"""The independent oracle: DuckDB evaluates the view's own SQL over the relations at a vector.

It uses none of viewsweep's algebra, compensation or view parser. All versions of a relation are in
one table.
"""

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any, ClassVar

import duckdb

from protocols.simulation.scenario import Scenario
from protocols.views.catalog import Relation

Rows = Counter[tuple[Any, ...]]


class Oracle:
    """The right contents of a scenario's view at any vector.

    All oracles share the database, because opening one costs more than a whole run; it holds the
    relations of the oracle that asked last. They also share its answers: the same scenarios run
    under many protocols and schedules.
    """

    _db = duckdb.connect(":memory:", config={"threads": 1})
    _asked_by: ClassVar["Oracle | None"] = None
    #: Text of the whole scenario → vector → rows.
    _answers: ClassVar[dict[str, dict[tuple[tuple[str, int], ...], Rows]]] = {}

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._known = self._answers.setdefault(_text(scenario), {})

    def at(self, vector: Mapping[str, int]) -> Rows:
        """The rows of the view at a vector, with their counts."""
        key = tuple(sorted(vector.items()))
        if key not in self._known:
            self._take_the_database()
            for source, version in vector.items():
                self._db.execute(f"SET VARIABLE at_{source} = {version}")
            found = self._db.execute(self._scenario.view).fetchall()
            self._known[key] = Counter(tuple(map(_one_nan, row)) for row in found)
        return self._known[key]

    def _take_the_database(self) -> None:
        if Oracle._asked_by is self:
            return
        Oracle._asked_by = self
        for source in self._scenario.catalog.sources:
            self._db.execute(f'DROP SCHEMA IF EXISTS "{source}" CASCADE; CREATE SCHEMA "{source}"')
        for relation in self._scenario.catalog:
            self._load(relation, _versions(self._scenario, relation))

    def _load(self, relation: Relation, versions: list[Rows]) -> None:
        """Loads all versions of the relation, and creates a view under its name that shows one."""
        columns = ", ".join(f'"{name}" {type_.name}' for name, type_ in relation.columns)
        table = f'"{relation.source}"."{relation.name} versions"'
        self._db.execute(f"CREATE TABLE {table} ({columns}, _version BIGINT)")
        rows = [
            (*row, version)
            for version, held in enumerate(versions)
            for row, count in held.items()
            for _ in range(count)
        ]
        if rows:
            places = ", ".join(["(" + ", ".join("?" * len(rows[0])) + ")"] * len(rows))
            values = [value for row in rows for value in row]
            self._db.execute(f"INSERT INTO {table} VALUES {places}", values)
        self._db.execute(
            f'CREATE VIEW "{relation.source}"."{relation.name}" AS SELECT * EXCLUDE (_version) '
            f"FROM {table} WHERE _version = getvariable('at_{relation.source}')"
        )


def _text(scenario: Scenario) -> str:
    """The text of everything that the view's rows depend on."""
    initial = [
        (str(relation), relation.to_json(), sorted(rows.counts.items(), key=repr))
        for relation, rows in scenario.initial.items()
    ]
    updates = [
        (
            update.source,
            [(str(r), sorted(rows.counts.items(), key=repr)) for r, rows in update.changes.items()],
        )
        for update in scenario.updates
    ]
    return repr((scenario.view, initial, updates))


def _versions(scenario: Scenario, relation: Relation) -> list[Rows]:
    """The rows of the relation at version 0, 1, … of its source."""
    versions = [Counter(scenario.initial[relation].counts)]
    for update in scenario.updates:
        if update.source == relation.source:
            held = versions[-1].copy()
            change = update.changes.get(relation)
            held.update({} if change is None else change.counts)
            versions.append(held)
    return versions


def _one_nan(value: Any) -> Any:
    return math.nan if isinstance(value, float) and math.isnan(value) else value
