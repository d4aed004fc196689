"""Scenarios drawn from a seed: small relations with small domains, so that rows find partners.

A scenario is made in the JSON form of the contract and goes through the parser like a user's. All
relations have the columns `id, x, y, v`: `id` is the key of the keyed ones, `x` and `y` are linked
(NULLs and NaN among their values), `v` is filtered, compared across relations and shown. Keys are
used again as soon as they are free, and every third change is a modification.
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Any, TypeAlias

from protocols.errors import WrongUse
from protocols.maintenance.registry import Entry
from protocols.simulation.scenario import Scenario, scenario_from_json
from protocols.simulation.setting import setting_of

SHAPES = ("chain", "star", "tree", "cycle", "clique", "self-join", "self-join in a chain")
#: Type of the linked columns → its values; few, so that links meet.
LINKED: Mapping[str, list[Any]] = {
    "BIGINT": [0, 1, None],
    "VARCHAR": ["", "ä", None],
    "DOUBLE": [-0.0, 0.0, "NaN", None],
    "DECIMAL(6,2)": ["1.50", "2.00", None],
    "DATE": ["2024-02-29", "1969-12-31", None],
    "TIMESTAMP": ["2024-02-29 12:00:00", "2024-02-29 12:00:00.000001", None],
    "BOOLEAN": [True, False, None],
}
COLUMNS = ("id", "x", "y", "v")
#: (source, relation).
Place: TypeAlias = tuple[str, str]
#: After so many drawn views that the protocol refuses it is an error.
_ATTEMPTS = 50


@dataclass(frozen=True)
class Shaped:
    """A scenario and its drawn shape, from which a campaign reports its coverage."""

    shape: str
    form: dict[str, Any]

    @cached_property
    def scenario(self) -> Scenario:
        return scenario_from_json(self.form)


def scenario_for(seed: int, entry: Entry, updates: int = 9) -> Shaped:
    """Draws the scenario of this seed that the protocol can keep."""
    refusal: Exception | None = None
    for attempt in range(_ATTEMPTS):
        shaped = random_scenario(
            f"{seed}.{attempt}" if attempt else seed,
            updates,
            one_source=entry.one_source,
            keys=entry.needs_keys,
            globals_=entry.transactions == "global",
        )
        try:
            setting_of(shaped.scenario, entry, "bag")
            return shaped
        except WrongUse as error:
            refusal = error
    raise WrongUse(f"no random scenario can be generated for protocol {entry.name}: {refusal}")


def random_scenario(
    seed: int | str,
    updates: int = 9,
    shape: str | None = None,
    one_source: bool = False,
    keys: bool = False,
    globals_: bool = False,
    together: bool = False,
) -> Shaped:
    """Draws the scenario of this seed.

    `one_source`, `keys` (all relations have one and the view shows it) and `globals_` (some
    transactions span several sources) depend on the protocol. Some scenarios have several views;
    with `together` all that have two relations do.
    """
    rng = Random(seed)
    shape = shape or rng.choice(SHAPES)
    atoms = _number_of_atoms(rng, shape)
    linked = rng.choice(list(LINKED))
    repeated = 1 if shape == "self-join in a chain" else atoms - 1 if shape == "self-join" else 0
    relations = places(rng, atoms - repeated, one_source)
    # The atoms beyond the relations repeat the first of them.
    of_atom = [*relations, *[relations[0]] * repeated]
    types = dict(zip(COLUMNS, ("BIGINT", linked, linked, "BIGINT"), strict=True))
    maker = Maker(rng, dict.fromkeys(relations, types), keys)
    sources: dict[str, Any] = {}
    for source, name in relations:
        form = maker.relation(source, name)
        sources.setdefault(source, {"relations": {}})["relations"][name] = form
    form = {
        "name": f"{shape} {seed}",
        "view": _sql(rng, shape, of_atom, keys),
        "sources": sources,
        "updates": [maker.update() for _ in range(updates)],
    }
    if globals_ and rng.random() < 0.4:
        join_some(rng, form["updates"])
    beside = _beside(rng, relations, keys, together)
    return Shaped(shape, {**form, "beside": beside} if beside else form)


def _beside(rng: Random, relations: list[Place], keys: bool, always: bool) -> list[str]:
    """Sometimes draws further views over the same relations, with other columns and conditions."""
    if len(relations) < 2 or (rng.random() < 0.75 and not always):
        return []
    views = []
    for _ in range(rng.choice((1, 1, 2))):
        read = rng.sample(relations, rng.randint(2, len(relations)))
        views.append(_sql(rng, rng.choice(("chain", "star")), read, keys))
    return views


def _number_of_atoms(rng: Random, shape: str) -> int:
    match shape:
        case "self-join":
            return rng.choice((2, 2, 3))
        case "cycle" | "clique":
            return rng.choice((3, 3, 4))
        case "tree":
            return rng.choice((4, 5))
    return rng.choice((2, 3, 3, 4, 5))


def places(rng: Random, count: int, one_source: bool) -> list[Place]:
    """Draws relations over one to `count` sources; several may be at the same one."""
    sources = [f"s{i}" for i in range(1 if one_source else rng.randint(1, count))]
    return [(rng.choice(sources), f"r{i}") for i in range(count)]


def _sql(rng: Random, shape: str, of_atom: list[Place], keys: bool) -> str:
    tables = ", ".join(f"{source}.{name} AS a{i}" for i, (source, name) in enumerate(of_atom))
    last = len(of_atom) - 1
    residuals = [
        f"a0.v {rng.choice(['<', '<>', '>='])} a{last}.v",
        f"(a0.v = a{last}.v OR a{last}.v IS NULL)",
        f"NOT (a0.id = a{last}.id)",
        f"a{rng.randint(0, last)}.v <> 1",
        f"a{rng.randint(0, last)}.v IS NOT NULL",
        "a0.v IN (0, 1)",
    ]
    links = _LINKS.get(shape, _chain)(rng, last)
    conditions = [*links, *rng.sample(residuals, rng.choice((0, 0, 1, 2)))]
    shown = [f"a{i}.{column} AS {column}{i}" for i in range(last + 1) for column in "vy"]
    outputs = rng.sample(shown, rng.randint(1, len(shown)))
    if keys:
        outputs += [f"a{i}.id AS id{i}" for i in range(last + 1)]
    return f"SELECT {', '.join(outputs)} FROM {tables} WHERE {' AND '.join(conditions)}"


def _chain(_: Random, last: int) -> list[str]:
    return [f"a{i}.y = a{i + 1}.x" for i in range(last)]


def _star(rng: Random, last: int) -> list[str]:
    return [f"a0.{rng.choice('xy')} = a{i}.x" for i in range(1, last + 1)]


def _tree(rng: Random, last: int) -> list[str]:
    return [f"a{rng.randrange(i)}.{rng.choice('xy')} = a{i}.x" for i in range(1, last + 1)]


def _cycle(rng: Random, last: int) -> list[str]:
    return [*_chain(rng, last), f"a{last}.y = a0.x"]


def _clique(rng: Random, last: int) -> list[str]:
    pairs = itertools.combinations(range(last + 1), 2)
    return [f"a{i}.{rng.choice('xy')} = a{j}.{rng.choice('xy')}" for i, j in pairs]


_LINKS: Mapping[str, Callable[[Random, int], list[str]]] = {
    "star": _star,
    "tree": _tree,
    "cycle": _cycle,
    "clique": _clique,
}


def join_some(rng: Random, updates: list[dict[str, Any]]) -> None:
    """Makes some of the updates parts of global ones; at two sources the orders may differ."""
    free = list(range(len(updates)))
    for number in range(rng.randint(1, 3)):
        rng.shuffle(free)
        parts: dict[str, int] = {}
        for index in free:
            parts.setdefault(updates[index]["source"], index)
        chosen = list(parts.values())[: rng.choice((2, 2, 3))]
        if len(chosen) > 1:
            for index in chosen:
                updates[index]["global"] = f"g{number}"
                free.remove(index)


class Maker:
    """Makes rows and updates, and tracks the contents of the relations, so that all are possible.

    The first column of a relation is its key, if it has one; a column `v` has small numbers, and
    every other column has the values of its type in `LINKED`.
    """

    def __init__(self, rng: Random, columns: Mapping[Place, Mapping[str, str]], keys: bool) -> None:
        self._rng = rng
        self._columns = columns
        self._held: dict[Place, list[list[Any]]] = {place: [] for place in columns}
        self._keyed = {place for place in columns if keys or rng.random() < 0.6}

    def relation(self, source: str, name: str) -> dict[str, Any]:
        place = (source, name)
        for _ in range(self._rng.choice((0, 1, 2, 3, 4, 5))):
            self._insert(place)
        form: dict[str, Any] = {"columns": dict(self._columns[place])}
        if place in self._keyed:
            form["key"] = ["id"]
        return {**form, "rows": list(self._held[place])}

    def update(self) -> dict[str, Any]:
        """Draws a transaction of one to three inserts, deletes and modifications at one source."""
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
                row = self._insert(place, gone)
                changes.append({"relation": place[1], "row": row, "count": 1})
        return {"source": source, "changes": changes}

    def _insert(self, place: Place, instead: list[Any] | None = None) -> list[Any]:
        (_, *others) = self._columns[place].items()
        row = [self._key(place, instead), *(self._value(*column) for column in others)]
        self._held[place].append(row)
        return row

    def _value(self, name: str, type_: str) -> Any:
        """Draws a value of a column; in links rarely NULL, or large joins would be empty."""
        if name == "v":
            return self._rng.choice((0, 1, 1, 2, None))
        *values, null = LINKED[type_]
        return null if self._rng.random() < 0.15 else self._rng.choice(values)

    def _key(self, place: Place, instead: list[Any] | None) -> int:
        if place not in self._keyed:
            return self._rng.choice((0, 1))
        if instead is not None and self._rng.random() < 0.8:
            key: int = instead[0]
            return key
        used = {row[0] for row in self._held[place]}
        return next(i for i in itertools.count() if i not in used)

    def _delete(self, place: Place) -> list[Any]:
        return self._held[place].pop(self._rng.randrange(len(self._held[place])))
