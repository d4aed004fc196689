"""What small worlds are about: relations, a view over them, and rows to insert."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Row = tuple[Any, ...]

#: (relation, row, change of its count).
Change = tuple[str, Row, int]


@dataclass(frozen=True)
class Story:
    """The sources, the view over them, and a generator of rows to insert."""

    forms: Mapping[str, Any]
    sql: str
    #: (source, dice) → relation and row.
    row: Callable[[str, random.Random], tuple[str, Row]]
    first: Mapping[str, Change]


FORMS: dict[str, Any] = {
    "a": {"r": {"columns": {"id": "BIGINT", "x": "BIGINT", "t": "VARCHAR"}, "key": ["id"]}},
    "b": {
        "s": {"columns": {"x": "BIGINT", "y": "BIGINT"}},
        "unused": {"columns": {"n": "BIGINT"}},
    },
    "c": {"u": {"columns": {"y": "BIGINT", "z": "VARCHAR"}, "key": ["y"]}},
}

SQL = "SELECT r.id, r.t, s.y, u.z FROM a.r r JOIN b.s s ON r.x = s.x JOIN c.u u ON s.y = u.y"


def _any_row(source: str, dice: random.Random) -> tuple[str, Row]:
    """A row of few values, so that many rows match."""
    if source == "a":
        return "r", (dice.randint(1, 30), dice.choice([*range(6), None]), dice.choice("pq"))
    if source == "c":
        return "u", (dice.randint(1, 6), dice.choice(["k", "m", None]))
    if dice.random() < 0.2:
        return "unused", (dice.randint(1, 3),)
    return "s", (dice.choice([*range(6), None]), dice.randint(1, 6))


_FIRST: dict[str, Change] = {
    "a": ("r", (1, 1, "p"), 1),
    "b": ("s", (1, 1), 1),
    "c": ("u", (1, "k"), 1),
}

#: A bag in the middle, NULLs in links, a relation that the view does not read.
MIXED = Story(FORMS, SQL, _any_row, _FIRST)

_KEYED_RELATIONS: dict[str, Any] = {
    "r": {"columns": {"id": "BIGINT", "x": "BIGINT", "t": "VARCHAR"}, "key": ["id"]},
    "s": {"columns": {"id": "BIGINT", "x": "BIGINT", "y": "BIGINT"}, "key": ["id"]},
    "u": {"columns": {"y": "BIGINT", "z": "VARCHAR"}, "key": ["y"]},
}

_KEYED_SQL = (
    "SELECT r.id AS r_id, s.id AS s_id, u.y, r.t, u.z"
    " FROM {r}.r r JOIN {s}.s s ON r.x = s.x JOIN {u}.u u ON s.y = u.y WHERE r.t <> 'q'"
)


def _keyed_row(relation: str, dice: random.Random) -> tuple[str, Row]:
    if relation == "r":
        return "r", (dice.randint(1, 12), dice.choice([*range(4), None]), dice.choice("ppq"))
    if relation == "s":
        return "s", (dice.randint(1, 10), dice.choice([*range(4), None]), dice.randint(1, 5))
    return "u", (dice.randint(1, 5), dice.choice(["k", "m", None]))


_KEYED_FIRST = {"r": ("r", (1, 1, "p"), 1), "s": ("s", (1, 1, 1), 1), "u": ("u", (1, "k"), 1)}

#: Every relation has a key, and the view shows it.
KEYED = Story(
    {source: {name: _KEYED_RELATIONS[name]} for source, name in zip("abc", "rsu", strict=True)},
    _KEYED_SQL.format(r="a", s="b", u="c"),
    lambda source, dice: _keyed_row({"a": "r", "b": "s", "c": "u"}[source], dice),
    {source: _KEYED_FIRST[name] for source, name in zip("abc", "rsu", strict=True)},
)

#: The same relations at one source.
ONE_SOURCE = Story(
    {"a": _KEYED_RELATIONS},
    _KEYED_SQL.format(r="a", s="a", u="a"),
    lambda _source, dice: _keyed_row(dice.choice("rsu"), dice),
    {"a": _KEYED_FIRST["r"]},
)
