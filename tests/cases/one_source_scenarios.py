"""Random scenarios with all relations at one source, for the ECA family.

As in random_scenarios.py everything is small, so that most rows match, and is made in the JSON form
of scenarios. Freed keys are reused at once, and a transaction may change several relations. With
`all_keys` every relation has a key and the view shows it.
"""

from random import Random
from typing import Any

from tests.cases.random_scenarios import COLUMNS, LINKED, SHAPES, Shaped

_Rows = dict[str, list[list[Any]]]


def one_source_scenario(seed: int, updates: int = 9, all_keys: bool = False) -> Shaped:
    """The scenario of this seed."""
    rng = Random(f"one source {seed}")
    shape = rng.choice(SHAPES)
    atoms = 2 if shape == "self-join" else 3 if shape == "triangle" else rng.randint(2, 5)
    repeated = shape.startswith("self")
    names = [f"r{i}" for i in range(atoms - repeated)]
    keyed = {name for name in names if all_keys or rng.random() < 0.5}
    linked = rng.choice(list(LINKED))
    held: _Rows = {name: [] for name in names}
    for name in names:
        for _ in range(rng.randint(0, 4)):
            _insert(rng, held[name], name in keyed, LINKED[linked])
    types = dict(zip(COLUMNS, ("BIGINT", linked, linked, "BIGINT"), strict=True))
    relations = {
        name: {
            "columns": types,
            "rows": list(held[name]),
            **({"key": ["id"]} if name in keyed else {}),
        }
        for name in names
    }
    form = {
        "name": f"{shape} {seed}",
        "view": _sql(rng, shape, [*names, *([names[0]] if repeated else [])], all_keys),
        "sources": {"s": {"relations": relations}},
        "updates": [_update(rng, held, keyed, LINKED[linked]) for _ in range(updates)],
    }
    return Shaped(shape, form)


def _sql(rng: Random, shape: str, names: list[str], all_keys: bool) -> str:
    last = len(names) - 1
    if shape == "star":
        links = [f"a0.{rng.choice('xy')} = a{i}.x" for i in range(1, last + 1)]
    else:
        links = [f"a{i}.y = a{i + 1}.x" for i in range(last)]
    if shape == "triangle":
        links.append(f"a{last}.y = a0.x")
    others = [
        f"a0.v {rng.choice(['<', '<>', '>='])} a{last}.v",
        f"(a0.v = a{last}.v OR a{last}.v IS NULL)",
        f"a{rng.randint(0, last)}.v <> 1",
        f"a{rng.randint(0, last)}.v IS NOT NULL",
    ]
    conditions = [*links, *rng.sample(others, rng.choice((0, 0, 0, 1, 2)))]
    shown = [f"a{i}.{column} AS {column}{i}" for i in range(last + 1) for column in "vy"]
    keys = [f"a{i}.id AS id{i}" for i in range(last + 1) if all_keys or rng.random() < 0.4]
    outputs = [*rng.sample(shown, rng.randint(1, len(shown))), *keys]
    rng.shuffle(outputs)
    tables = ", ".join(f"s.{name} AS a{i}" for i, name in enumerate(names))
    return f"SELECT {', '.join(outputs)} FROM {tables} WHERE {' AND '.join(conditions)}"


def _update(rng: Random, held: _Rows, keyed: set[str], values: list[Any]) -> dict[str, Any]:
    """A transaction of one to four inserts, deletes and modifications."""
    changes = []
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        name = rng.choice(list(held))
        rows, kind = held[name], rng.choice(("insert", "delete", "modify"))
        if kind != "insert" and rows:
            gone = rows.pop(rng.randrange(len(rows)))
            changes.append({"relation": name, "row": gone, "count": -1})
        if kind != "delete" or not changes:
            row = _insert(rng, rows, name in keyed, values)
            changes.append({"relation": name, "row": row, "count": 1})
    return {"source": "s", "changes": changes}


def _insert(rng: Random, rows: list[list[Any]], keyed: bool, values: list[Any]) -> list[Any]:
    """A row of the columns id, x, y, v; a key is the least free number."""
    used = {row[0] for row in rows}
    free = next(i for i in range(len(rows) + 1) if i not in used)
    id_ = free if keyed else rng.choice((0, 1))
    row = [id_, rng.choice(values), rng.choice(values), rng.choice((0, 1, 2, None))]
    rows.append(row)
    return row
