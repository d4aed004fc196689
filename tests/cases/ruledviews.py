"""Random views of the language of rules, over four relations of one database.

`t` has a key and is referenced by `u`, which follows its deletions; `w` has two keys; `n` is a bag.
All values are small, so that rows meet, and columns that are in no key are often NULL.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random

from protocols.views.catalog import Catalog, catalog_from_json

_BIGINT = "BIGINT"
SOURCES = {
    "a": {
        "relations": {
            "t": {"columns": dict.fromkeys(("id", "x", "y"), _BIGINT), "key": ["id"]},
            "u": {"columns": dict.fromkeys(("id", "t", "x", "y"), _BIGINT), "key": ["id"]},
            "w": {
                "columns": dict.fromkeys(("x", "y", "z"), _BIGINT),
                "key": ["x", "y"],
                "keys": [["z"]],
            },
            "n": {"columns": dict.fromkeys(("x", "y"), _BIGINT)},
        }
    }
}
CATALOG: Catalog = catalog_from_json(SOURCES)
COLUMNS = {relation.name: relation.column_names for relation in CATALOG}
TABLES = """
CREATE SCHEMA a;
CREATE TABLE a.t (id bigint PRIMARY KEY, x bigint, y bigint);
CREATE TABLE a.u (id bigint PRIMARY KEY, t bigint, x bigint, y bigint,
                  FOREIGN KEY (t) REFERENCES a.t ON DELETE CASCADE ON UPDATE CASCADE);
CREATE TABLE a.w (x bigint, y bigint, z bigint NOT NULL UNIQUE, PRIMARY KEY (x, y));
CREATE TABLE a.n (x bigint, y bigint);
"""
_COMPARISONS = ("=", "=", "=", "<", "<=", ">", "<>")


@dataclass(frozen=True)
class _From:
    """Tables under their aliases."""

    tables: Sequence[tuple[str, str]]

    def __str__(self) -> str:
        return ", ".join(f"a.{name} AS {alias}" for alias, name in self.tables)

    def column(self, dice: Random) -> str:
        alias, name = dice.choice(self.tables)
        return f"{alias}.{dice.choice(COLUMNS[name])}"


def random_view(dice: Random) -> str:
    """A SELECT, or up to three under set operators."""
    number = 1 if dice.random() < 0.65 else dice.randint(2, 3)
    if number == 1:
        return _select(dice, "b", dice.randint(1, 3), shared=False)
    width = dice.randint(1, 2)
    text = _select(dice, "b", width, shared=True)
    for letter in "cd"[: number - 1]:
        operator = dice.choice(("UNION", "UNION", "INTERSECT", "EXCEPT"))
        text = f"({text}) {operator} ({_select(dice, letter, width, shared=True)})"
    return text


def _select(dice: Random, letter: str, width: int, *, shared: bool) -> str:
    from_ = _from(dice, letter, dice.choice((1, 1, 1, 2, 2, 2, 3)))
    items = [_item(dice, from_) for _ in range(width)]
    if dice.random() < 0.5 and not shared:
        items += [f"{alias}.{key}" for alias, name in from_.tables for key in _key(name)]
    named = ", ".join(f"{item} AS c{number}" for number, item in enumerate(items))
    conditions = [*_joins(dice, from_)]
    conditions += [_simple(dice, from_, from_) for _ in range(dice.choice((0, 0, 1)))]
    conditions += [_nested(dice, letter + str(n), from_) for n in range(dice.choice((0, 1, 1, 2)))]
    distinct = "DISTINCT " if dice.random() < 0.4 else ""
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"SELECT {distinct}{named} FROM {from_}{where}"


def _from(dice: Random, letter: str, number: int) -> _From:
    return _From([(f"{letter}{n}", dice.choice(tuple(COLUMNS))) for n in range(number)])


def _key(name: str) -> Sequence[str]:
    return {"w": ("z",), "n": ()}.get(name, ("id",))


def _item(dice: Random, from_: _From) -> str:
    column = from_.column(dice)
    return column if dice.random() < 0.9 else f"{column} + 1"


def _joins(dice: Random, from_: _From) -> list[str]:
    """Equalities of neighbours; sometimes none, and it is a product."""
    single = [_From([each]) for each in from_.tables]
    pairs = pairwise(single)
    return [
        f"{one.column(dice)} {'=' if dice.random() < 0.85 else '<'} {other.column(dice)}"
        for one, other in pairs
        if dice.random() < 0.9
    ]


def _simple(dice: Random, one: _From, other: _From) -> str:
    left, comparison = one.column(dice), dice.choice(_COMPARISONS)
    right = str(dice.randint(1, 4)) if dice.random() < 0.5 else other.column(dice)
    test = f"{left} {comparison} {right}"
    if dice.random() < 0.15:
        return f"({test} OR {one.column(dice)} IS NULL)"
    return test


def _nested(dice: Random, letter: str, around: _From) -> str:
    """A condition with a subquery, now and then below OR, where the criteria do not reach."""
    below = _from(dice, letter, dice.choice((1, 1, 2)))
    conditions = _joins(dice, below)
    conditions += [_simple(dice, below, below)] if dice.random() < 0.3 else []
    correlated = [
        f"{below.column(dice)} {dice.choice(_COMPARISONS)} {around.column(dice)}"
        for _ in range(dice.choice((0, 1, 1, 2)))
    ]
    where = " AND ".join((*conditions, *correlated))
    body = f"FROM {below}" + (f" WHERE {where}" if where else "")
    value, item = around.column(dice), below.column(dice)
    test = dice.choice(
        (
            f"EXISTS (SELECT 1 {body})",
            f"NOT EXISTS (SELECT * {body})",
            f"NOT EXISTS (SELECT 1 {body})",
            f"{value} IN (SELECT {item} {body})",
            f"{value} NOT IN (SELECT {item} {body})",
            f"({value}, {around.column(dice)}) IN (SELECT {item}, {below.column(dice)} {body})",
            f"{value} {dice.choice(('<', '>=', '<>', '='))} ANY (SELECT {item} {body})",
            f"{value} {dice.choice(('<', '>=', '<>', '='))} ALL (SELECT {item} {body})",
            f"NOT {value} < ANY (SELECT {item} {body})",
        )
    )
    return f"({test} OR {_simple(dice, around, around)})" if dice.random() < 0.05 else test


# -- statements ------------------------------------------------------------------------------------


def random_statement(dice: Random) -> str:
    """A statement on one of the tables, or on several."""
    name = dice.choice(tuple(COLUMNS))
    kinds = (_insert, _insert, _insert, _delete, _update, _update, _upsert, _merge, _several)
    if dice.random() < 0.003:
        return f"TRUNCATE a.{name} CASCADE"
    return dice.choice(kinds)(dice, name)


def _value(dice: Random, name: str, column: str) -> str:
    if column in ("id", "z"):
        return str(dice.randint(1, 7))
    if name == "w" and column in ("x", "y"):
        return str(dice.randint(1, 4))
    return dice.choice(("NULL", "1", "2", "3", "4"))


def _row(dice: Random, name: str) -> str:
    return f"({', '.join(_value(dice, name, column) for column in COLUMNS[name])})"


def _rows(dice: Random, name: str) -> str:
    return ", ".join(_row(dice, name) for _ in range(dice.choice((1, 1, 2, 3))))


def _ignoring(name: str) -> str:
    """Most conflicts are ignored: a statement that fails changes nothing."""
    return "" if name == "n" else " ON CONFLICT DO NOTHING"


def _insert(dice: Random, name: str) -> str:
    return f"INSERT INTO a.{name} VALUES {_rows(dice, name)}{_ignoring(name)}"


def _which(dice: Random, name: str) -> str:
    if name == "n" and dice.random() < 0.3:
        # The only table that could grow without end.
        return "true"
    column = dice.choice(COLUMNS[name])
    return f"{column} {dice.choice(('=', '=', '<', '>'))} {dice.randint(1, 6)}"


def _delete(dice: Random, name: str) -> str:
    return f"DELETE FROM a.{name} WHERE {_which(dice, name)}"


def _update(dice: Random, name: str) -> str:
    column = dice.choice(COLUMNS[name])
    value = _value(dice, name, column) if dice.random() < 0.7 else f"{column} + 1"
    return f"UPDATE a.{name} SET {column} = {value} WHERE {_which(dice, name)}"


def _upsert(dice: Random, name: str) -> str:
    if name not in ("t", "u"):
        return _insert(dice, name)
    column = dice.choice(COLUMNS[name][1:])
    change = f"ON CONFLICT (id) DO UPDATE SET {column} = excluded.{column}"
    return f"INSERT INTO a.{name} VALUES {_row(dice, name)}, {_row(dice, name)} {change}"


def _merge(dice: Random, name: str) -> str:
    """Rows that are there go or change, others come, all in one statement."""
    if name == "n":
        return _delete(dice, name)
    columns, key = COLUMNS[name], {"w": "z"}.get(name, "id")
    other = dice.choice([column for column in columns if column != key])
    return (
        f"MERGE INTO a.{name} AS old USING (SELECT DISTINCT ON ({key}) * FROM (VALUES"
        f" {_rows(dice, name)}) AS new ({', '.join(columns)})) AS new ON old.{key} = new.{key}"
        f" WHEN MATCHED AND old.{key} < {dice.randint(1, 7)} THEN DELETE"
        f" WHEN MATCHED THEN UPDATE SET {other} = new.{other}::bigint"
        f" WHEN NOT MATCHED THEN INSERT VALUES"
        f" ({', '.join(f'new.{column}::bigint' for column in columns)})"
    )


def _several(dice: Random, name: str) -> str:
    """Two tables, changed by one statement."""
    others = [each for each in COLUMNS if each != name]
    first, second = (
        dice.choice((_insert, _delete, _update)),
        dice.choice((_insert, _delete, _update)),
    )
    return f"WITH first AS ({first(dice, name)} RETURNING 1) {second(dice, dice.choice(others))}"
