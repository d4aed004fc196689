"""Random scenarios for protocols that rely on keys: every relation has one, every view shows it.

Keys are few, so that most insertions reuse a deleted one, and a transaction that deletes and
inserts often modifies. Shown, linked and filtered values may be NULL. Global transactions have
parts at two or more sources, and sources may commit two of them in opposite orders.
"""

from dataclasses import dataclass
from random import Random
from typing import Any

from protocols.simulation.scenario import Scenario, scenario_from_json
from tests.cases.random_scenarios import COLUMNS, SHAPES

#: The ids that rows may have.
IDS = range(3)
#: Type of the linked columns → its values; few, so that links match.
LINKED: dict[str, list[Any]] = {
    "BIGINT": [0, 0, 1, None],
    "VARCHAR": ["", "", "ä", None],
    "DOUBLE": ["NaN", "NaN", 0.5, None],
}
Place = tuple[str, str]


@dataclass(frozen=True)
class Keyed:
    """A scenario with figures of its drawing, which show what a campaign has covered."""

    shape: str
    form: dict[str, Any]
    #: How often an insertion used a key that had been deleted, or modified a row.
    reused: int
    modified: int

    @property
    def scenario(self) -> Scenario:
        return scenario_from_json(self.form)


def keyed_scenario(
    seed: int, updates: int = 9, global_share: float = 0.0, fresh_keys: bool = False
) -> Keyed:
    """The scenario of this seed.

    `global_share` of the updates are global, if there are enough sources. With fresh keys no key is
    used twice, so nothing is modified either.
    """
    rng = Random(seed)
    shape = rng.choice(SHAPES)
    atoms = 2 if shape == "self-join" else 3 if shape == "triangle" else rng.randint(2, 4)
    self_joined = shape.startswith("self")
    relations = _places(rng, atoms - self_joined, at_least=2 if global_share else 1)
    of_atom = [*relations, *([relations[0]] if self_joined else [])]
    maker = _Maker(rng, rng.choice(list(LINKED)), relations, fresh_keys)
    sources: dict[str, Any] = {}
    for source, name in relations:
        form = maker.relation((source, name))
        sources.setdefault(source, {"relations": {}})["relations"][name] = form
    changes: list[dict[str, Any]] = []
    while len(changes) < updates:
        if len(sources) > 1 and rng.random() < global_share:
            changes += maker.global_updates(f"g{len(changes)}", f"h{len(changes)}")
        else:
            changes.append(maker.update(rng.choice(relations)[0]))
    form = {
        "name": f"{shape} {seed}",
        "view": _sql(rng, shape, of_atom, maker.keys),
        "sources": sources,
        "updates": changes,
    }
    return Keyed(shape, form, maker.reused, maker.modified)


def _places(rng: Random, count: int, at_least: int) -> list[Place]:
    """Relations at one to `count` sources; several may be at the same one."""
    sources = [f"s{i}" for i in range(rng.randint(min(at_least, count), count))]
    return [(rng.choice(sources), f"r{i}") for i in range(count)]


def _sql(rng: Random, shape: str, of_atom: list[Place], keys: dict[Place, tuple[str, ...]]) -> str:
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
        f"a{rng.randint(0, last)}.v <> 1",
        f"a{rng.randint(0, last)}.v IS NOT NULL",
    ]
    conditions = [*links, *rng.sample(residuals, rng.choice((0, 0, 1)))]
    needed = [f"a{i}.{c} AS {c}{i}" for i, place in enumerate(of_atom) for c in keys[place]]
    others = [f"a{i}.{c} AS {c}{i}" for i in range(last + 1) for c in COLUMNS]
    more = [shown for shown in others if shown not in needed]
    outputs = needed + rng.sample(more, rng.randint(0, len(more)))
    rng.shuffle(outputs)
    return f"SELECT {', '.join(outputs)} FROM {tables} WHERE {' AND '.join(conditions)}"


class _Maker:
    """Makes rows and updates; remembers what the relations hold, so that updates are possible."""

    def __init__(self, rng: Random, linked: str, relations: list[Place], fresh_keys: bool) -> None:
        self._rng = rng
        self._ids = range(10**9) if fresh_keys else IDS
        self._kinds = ("insert", "insert", "delete", "delete" if fresh_keys else "modify")
        self._linked = linked
        self._held: dict[Place, list[list[Any]]] = {place: [] for place in relations}
        self._used: set[tuple[Place, tuple[Any, ...]]] = set()
        self.keys: dict[Place, tuple[str, ...]] = {
            place: ("id", "v") if rng.random() < 0.2 else ("id",) for place in relations
        }
        self.reused = 0
        self.modified = 0

    def relation(self, place: Place) -> dict[str, Any]:
        for _ in range(self._rng.randint(0, 3)):
            self._insert(place)
        types = ("BIGINT", self._linked, self._linked, "BIGINT")
        return {
            "columns": dict(zip(COLUMNS, types, strict=True)),
            "key": list(self.keys[place]),
            "rows": list(self._held[place]),
        }

    def update(self, source: str, global_id: str | None = None) -> dict[str, Any]:
        """A transaction of one to three inserts, deletes and modifications at one source."""
        own = [place for place in self._held if place[0] == source]
        changes = []
        for _ in range(self._rng.choice((1, 1, 1, 2, 3))):
            place = self._rng.choice(own)
            kind = self._rng.choice(self._kinds)
            if kind == "insert" and (row := self._insert(place)) is not None:
                changes.append({"relation": place[1], "row": row, "count": 1})
            elif self._held[place]:
                gone = self._held[place].pop(self._rng.randrange(len(self._held[place])))
                changes.append({"relation": place[1], "row": gone, "count": -1})
                if kind == "modify":
                    self.modified += 1
                    row = self._insert(place, like=gone)
                    changes.append({"relation": place[1], "row": row, "count": 1})
        part = {} if global_id is None else {"global": global_id}
        return {"source": source, "changes": changes, **part}

    def global_updates(self, one: str, other: str) -> list[dict[str, Any]]:
        """The parts of a global transaction, or of two that sources commit in opposite orders."""
        sources = sorted({source for source, _ in self._held})
        taking_part = self._rng.sample(sources, self._rng.randint(2, len(sources)))
        if self._rng.random() < 0.6:
            parts: list[tuple[str, str | None]] = [(source, one) for source in taking_part]
            parts.insert(self._rng.randint(0, len(parts)), (self._rng.choice(sources), None))
        else:
            orders = [(one, other), (other, one)]
            parts = [(s, id_) for place, s in enumerate(taking_part) for id_ in orders[place % 2]]
        return [self.update(source, id_) for source, id_ in parts]

    def _insert(self, place: Place, like: list[Any] | None = None) -> list[Any] | None:
        """A new row, with the key of `like` if given; None if no key is free."""
        values = LINKED[self._linked]
        held = {self._key(place, row) for row in self._held[place]}
        shown = (0, 1) if "v" in self.keys[place] else (0, 1, 2, None)
        for _ in range(8):
            row = [self._rng.choice(self._ids), self._rng.choice(values), self._rng.choice(values)]
            row.append(self._rng.choice(shown))
            if like is not None:
                for column in self.keys[place]:
                    row[COLUMNS.index(column)] = like[COLUMNS.index(column)]
            key = self._key(place, row)
            if key not in held:
                self.reused += (place, key) in self._used
                self._used.add((place, key))
                self._held[place].append(row)
                return row
        return None

    def _key(self, place: Place, row: list[Any]) -> tuple[Any, ...]:
        return tuple(row[COLUMNS.index(column)] for column in self.keys[place])
