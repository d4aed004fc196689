"""Random scenarios: small relations with small domains, so that everything meets everything.

A scenario is made in the JSON form of the contract and goes through the parser like a user's. All
relations have the columns `id, x, y, v`: `id` is the key of the keyed ones, `x` and `y` are linked
(NULLs and NaN among their values), `v` is filtered, compared across relations and shown.
"""

import itertools
from dataclasses import dataclass
from random import Random
from typing import Any

from protocols.simulation.scenario import Scenario, scenario_from_json

SHAPES = ("chain", "star", "triangle", "self-join", "self-join in a chain")
#: Type of the linked columns → its values; few, so that links meet.
LINKED: dict[str, list[Any]] = {
    "BIGINT": [0, 1, None],
    "VARCHAR": ["", "ä", None],
    "DOUBLE": [-0.0, 0.0, "NaN", None],
    "DECIMAL(6,2)": ["1.50", "2.00", None],
    "DATE": ["2024-02-29", "1969-12-31", None],
    "TIMESTAMP": ["2024-02-29 12:00:00", "2024-02-29 12:00:00.000001", None],
    "BOOLEAN": [True, False, None],
}
COLUMNS = ("id", "x", "y", "v")


@dataclass(frozen=True)
class Shaped:
    """A scenario and what was drawn for it, so that a campaign can tell what it has covered."""

    shape: str
    form: dict[str, Any]

    @property
    def scenario(self) -> Scenario:
        return scenario_from_json(self.form)


def random_scenario(seed: int, updates: int = 9, shape: str | None = None) -> Shaped:
    """The scenario of this seed."""
    rng = Random(seed)
    shape = shape or rng.choice(SHAPES)
    atoms = 2 if shape == "self-join" else 3 if shape == "triangle" else rng.randint(2, 4)
    linked = rng.choice(list(LINKED))
    relations = _places(rng, atoms - shape.startswith("self"))
    # The atom of index -1 repeats the first relation in a self-join.
    of_atom = [*relations, *([relations[0]] if shape.startswith("self") else [])]
    maker = _Maker(rng, linked, relations)
    sources: dict[str, Any] = {}
    for source, name in relations:
        form = maker.relation(source, name)
        sources.setdefault(source, {"relations": {}})["relations"][name] = form
    form = {
        "name": f"{shape} {seed}",
        "view": _sql(rng, shape, of_atom),
        "sources": sources,
        "updates": [maker.update() for _ in range(updates)],
    }
    return Shaped(shape, form)


def _places(rng: Random, count: int) -> list[tuple[str, str]]:
    """Relations over one to `count` sources; several may live at the same one."""
    sources = [f"s{i}" for i in range(rng.randint(1, count))]
    return [(rng.choice(sources), f"r{i}") for i in range(count)]


def _sql(rng: Random, shape: str, of_atom: list[tuple[str, str]]) -> str:
    tables = ", ".join(f"{source}.{name} AS a{i}" for i, (source, name) in enumerate(of_atom))
    last = len(of_atom) - 1
    if shape == "star":
        links = [f"a0.{rng.choice('xy')} = a{i}.x" for i in range(1, last + 1)]
    else:
        links = [f"a{i}.y = a{i + 1}.x" for i in range(last)]
    if shape == "triangle":
        links.append(f"a{last}.y = a0.x")
    residuals = [
        f"a0.v {rng.choice(['<', '<>', '>='])} a{last}.v",
        f"(a0.v = a{last}.v OR a{last}.v IS NULL)",
        f"NOT (a0.id = a{last}.id)",
        f"a{rng.randint(0, last)}.v <> 1",
        f"a{rng.randint(0, last)}.v IS NOT NULL",
        "a0.v IN (0, 1)",
    ]
    conditions = [*links, *rng.sample(residuals, rng.choice((0, 0, 1, 2)))]
    shown = [f"a{i}.{column} AS {column}{i}" for i in range(last + 1) for column in "vy"]
    outputs = ", ".join(rng.sample(shown, rng.randint(1, len(shown))))
    return f"SELECT {outputs} FROM {tables} WHERE {' AND '.join(conditions)}"


class _Maker:
    """Makes rows and updates, and remembers what the relations hold, so that all of it can be."""

    def __init__(self, rng: Random, linked: str, relations: list[tuple[str, str]]) -> None:
        self._rng = rng
        self._linked = linked
        self._held: dict[tuple[str, str], list[list[Any]]] = {place: [] for place in relations}
        self._keyed = {place for place in relations if rng.random() < 0.6}

    def relation(self, source: str, name: str) -> dict[str, Any]:
        place = (source, name)
        for _ in range(self._rng.randint(0, 5)):
            self._insert(place)
        types = ("BIGINT", self._linked, self._linked, "BIGINT")
        form: dict[str, Any] = {"columns": dict(zip(COLUMNS, types, strict=True))}
        if place in self._keyed:
            form["key"] = ["id"]
        return {**form, "rows": list(self._held[place])}

    def update(self) -> dict[str, Any]:
        """A transaction of one to three inserts, deletes and modifications at one source."""
        source = self._rng.choice(list(self._held))[0]
        own = [place for place in self._held if place[0] == source]
        changes = []
        for _ in range(self._rng.choice((1, 1, 1, 2, 3))):
            place = self._rng.choice(own)
            kind = self._rng.choice(("insert", "delete", "modify"))
            gone = self._delete(place) if kind != "insert" and self._held[place] else None
            if gone is not None:
                changes.append({"relation": place[1], "row": gone, "count": -1})
            if kind != "delete" or gone is None:
                row = self._insert(place)
                changes.append({"relation": place[1], "row": row, "count": 1})
        return {"source": source, "changes": changes}

    def _insert(self, place: tuple[str, str]) -> list[Any]:
        used = {row[0] for row in self._held[place]}
        free = (i for i in itertools.count() if i not in used)
        key = next(free) if place in self._keyed else self._rng.choice((0, 1))
        values = LINKED[self._linked]
        row = [key, self._rng.choice(values), self._rng.choice(values)]
        row.append(self._rng.choice((0, 1, 2, None)))
        self._held[place].append(row)
        return row

    def _delete(self, place: tuple[str, str]) -> list[Any]:
        return self._held[place].pop(self._rng.randrange(len(self._held[place])))
