"""Keys of random views against DuckDB: no two rows of the result agree on a key.

A case is its seed. Views join relations with keys in any way, show some of the columns, and may
group or repeat them; others are views as the campaigns draw them.
"""

from collections import Counter
from random import Random

import pytest

from protocols.analysis.keys import ViewKeys, keys_of
from protocols.errors import ViewRefused
from protocols.simulation.drawnsql import NoQuery, drawn_query
from protocols.views.sql import parse_view
from tests.cases.outer_joins import ALIASES, COLUMNS, Database, catalog, keyed, view

DATABASE = Database()
CATALOG = catalog(keyed=True)
SEEDS = range(120)


def _case(seed: int, more: tuple[str, ...] = ()) -> tuple[str, ViewKeys]:
    """A view over filled relations that shows some columns and `more`, and its keys."""
    dice = Random(seed)
    joined = view(dice)
    DATABASE.fill(keyed(dice))
    shown, rest = joined.removeprefix("SELECT ").split(" FROM ", 1)
    every = shown.split(", ")
    some = [each for each in every if dice.random() < 0.7 and "_id" in each] or every[:1]
    some += [each for each in every if dice.random() < 0.3 and each not in some]
    some += [each for each in every if each.split(" ")[0] in more and each not in some]
    sql = f"SELECT {', '.join(some)} FROM {rest}"
    columns = [each.rpartition(" ")[2] for each in some]
    match dice.choice(("plain", "plain", "group", "distinct", "joined")):
        case "group":
            sql = f"SELECT {columns[0]}, count(*) AS n FROM ({sql}) q GROUP BY {columns[0]}"
        case "distinct":
            sql = f"SELECT DISTINCT * FROM ({sql}) q"
        case "joined":
            by, grouped = (
                f"q.{columns[0]}",
                "SELECT r.x AS k, max(r.y) AS m FROM db.r r GROUP BY r.x",
            )
            kind = dice.choice(("LEFT", "FULL", "RIGHT"))
            sql = f"SELECT * FROM ({sql}) q {kind} JOIN ({grouped}) g ON {by} = g.k"
    return sql, keys_of(parse_view("v", sql, CATALOG))


def _has_repetitions(sql: str, key: tuple[str, ...]) -> bool:
    shown = ", ".join(f'"{column}"' for column in key) or "1"
    rows = DATABASE.rows(f"SELECT {shown} FROM ({sql}) q")
    return max(Counter(rows).values(), default=0) > 1


@pytest.mark.parametrize("seed", SEEDS)
def test_no_two_rows_agree_on_a_key(seed: int) -> None:
    sql, found = _case(seed)
    for key in found.keys:
        assert not _has_repetitions(sql, key), key


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_said_to_be_missing_makes_a_key(seed: int) -> None:
    sql, found = _case(seed)
    if found.missing and "(SELECT" not in sql:
        again, keys = _case(seed, found.missing)
        assert keys.keys, again


@pytest.mark.parametrize("seed", range(60))
def test_no_two_rows_of_a_view_of_the_campaigns_agree_on_a_key(seed: int) -> None:
    dice = Random(seed)
    sql, found = _drawn(dice)
    for _ in range(3):
        DATABASE.fill(keyed(dice))
        for key in found.keys:
            assert not _has_repetitions(sql, key), (key, sql)


def _drawn(dice: Random) -> tuple[str, ViewKeys]:
    """A supported view, and its keys."""
    relations = {f"db.{alias}": dict.fromkeys(COLUMNS, "BIGINT") for alias in ALIASES}
    while True:
        try:
            sql = drawn_query(dice, relations, room=3)
            view = parse_view("v", sql, CATALOG)
            # DuckDB has other names for items without AS.
            names = ", ".join(f'"{name}"' for name in view.schema)
            return f"SELECT * FROM ({sql}) AS v({names})", keys_of(view)
        except (NoQuery, ViewRefused):
            continue


def test_keys_are_found_and_none_of_their_columns_can_be_spared() -> None:
    """The control: without one column, many of these keys are no longer keys."""
    with_key, with_less = 0, 0
    for seed in SEEDS:
        sql, found = _case(seed)
        with_key += bool(found.keys)
        with_less += any(
            _has_repetitions(sql, tuple(c for c in key if c != spared))
            for key in found.keys
            for spared in key
        )
    assert with_key > 60
    assert with_less > 40
