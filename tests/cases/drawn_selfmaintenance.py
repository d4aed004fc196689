"""Random views over random relations, with declarations: a case is its seed.

Every relation has the key k, foreign keys to others (to itself, in circles), numbers, and a random
set of columns that updates change. A view joins along foreign keys most of the time.
"""

from itertools import pairwise
from random import Random
from typing import Any

from tests.cases.selfmaintenance import Case, case, relation

_NAMES = ("a", "b", "c")
_NUMBERS = ("n", "m")


def drawn(seed: int) -> Case:
    """The case of a seed."""
    dice = Random(seed)
    names = _NAMES[: dice.randrange(2, 4)]
    parents = {name: [p for p in names if dice.random() < 0.6] for name in names}
    relations = {name: _relation(dice, parents[name]) for name in names}
    places = [(f"t{i}", dice.choice(names)) for i in range(dice.randrange(1, 5))]
    tests = [_join(dice, one, places[: index + 1], parents) for index, one in _joined(places)]
    tests += [_condition(dice, places) for _ in range(dice.randrange(0, 3))]
    if dice.random() < 0.3:
        tests.append(_join(dice, dice.choice(places), places, parents))
    columns = [f"{alias}.{c}" for alias, name in places for c in relations[name]["columns"]]
    shown = dice.sample(columns, min(len(columns), dice.randrange(1, 5)))
    if dice.random() < 0.6:
        shown = list(dict.fromkeys([f"{places[0][0]}.k", *shown]))
    listed = ", ".join(f"{each} AS {each.replace('.', '_')}" for each in shown)
    tables = ", ".join(f"s.{name} {alias}" for alias, name in places)
    where = f" WHERE {' AND '.join(tests)}" if tests else ""
    return case(f"SELECT {listed} FROM {tables}{where}", **relations)


def _joined(places: list[tuple[str, str]]) -> list[tuple[int, tuple[str, str]]]:
    return [(index, new) for index, (_, new) in enumerate(pairwise(places), start=1)]


def _relation(dice: Random, parents: list[str]) -> dict[str, Any]:
    columns = [*(f"to_{parent}" for parent in parents), *_NUMBERS]
    keys = [{"columns": [f"to_{p}"], "references": p} for p in parents if dice.random() < 0.85]
    updates = [c for c in columns if dice.random() < dice.choice((0.0, 0.2, 0.5))]
    declared = {"updates": updates} if dice.random() < 0.9 else {}
    return relation(" ".join(["k", *columns]), foreign_keys=keys, **declared)


def _join(
    dice: Random,
    new: tuple[str, str],
    places: list[tuple[str, str]],
    parents: dict[str, list[str]],
) -> str:
    """A condition that joins a relation with one before it, or with itself if it is alone."""
    alias, name = new
    other, theirs = dice.choice([place for place in places if place != new] or [new])
    along = []
    if theirs in parents[name]:
        along.append(f"{alias}.to_{theirs} = {other}.k")
    if name in parents[theirs]:
        along.append(f"{other}.to_{name} = {alias}.k")
    if len(along) == 2 and dice.random() < 0.5:
        return " AND ".join(along)
    if along and dice.random() < 0.9:
        return dice.choice(along)
    return f"{alias}.{dice.choice(_NUMBERS)} = {other}.{dice.choice(_NUMBERS)}"


def _condition(dice: Random, places: list[tuple[str, str]]) -> str:
    alias, _ = dice.choice(places)
    column, number = dice.choice(("n", "n", "m", "k")), dice.randrange(4)
    operator = dice.choice(("=", "<", "<>"))
    if dice.random() < 0.2:
        other, _ = dice.choice(places)
        return f"{alias}.{column} {operator} {other}.{dice.choice(_NUMBERS)}"
    return f"{alias}.{column} {operator} {number}"
