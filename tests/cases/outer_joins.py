"""Random outer-join views over small random relations, and DuckDB to evaluate them.

Four relations r, s, t and u have the columns id, x and y with few values and NULL among them. Views
join two to four of them by LEFT, RIGHT, FULL and INNER JOIN in any nesting.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from random import Random
from typing import Any, TypeAlias

import duckdb

from protocols.analysis.block import Block, Conditions, Joined, Leaf, NullIf, Selection
from protocols.analysis.normalform import NormalForm, Term
from protocols.analysis.subsumption import subsumption_graph
from protocols.analysis.wording import conditions_text
from protocols.views.catalog import Catalog, catalog_from_json

ALIASES = ("r", "s", "t", "u")
COLUMNS = ("id", "x", "y")
Rows: TypeAlias = list[tuple[int | None, ...]]
Tables: TypeAlias = Mapping[str, Rows]


def catalog(*, keyed: bool) -> Catalog:
    """The four relations, with id as their key or as bags."""
    form: dict[str, Any] = {"columns": dict.fromkeys(COLUMNS, "BIGINT")}
    if keyed:
        form["key"] = ["id"]
    return catalog_from_json({"db": {"relations": dict.fromkeys(ALIASES, form)}})


#: Few values, so that rows match.
_VALUES = (0, 1, 1, 1, 2, None)


def bags(dice: Random) -> dict[str, Rows]:
    """Rows of all relations, with repetitions and with NULL in every column."""
    return {alias: _rows(dice, lambda _: dice.choice(_VALUES)) for alias in ALIASES}


def keyed(dice: Random) -> dict[str, Rows]:
    """Rows of all relations with keys."""
    return {alias: _rows(dice, lambda number: number) for alias in ALIASES}


def _rows(dice: Random, identity: Callable[[int], int | None]) -> Rows:
    numbers = range(dice.choice((0, 2, 3, 4)))
    return [(identity(n), dice.choice(_VALUES), dice.choice(_VALUES)) for n in numbers]


def view(dice: Random, including: str = "") -> str:
    """The SQL of a view that shows all columns, as r_id, r_x and so on."""
    others = [alias for alias in ALIASES if alias not in including]
    aliases = [*including, *dice.sample(others, dice.choice((2, 3, 4)) - len(including))]
    dice.shuffle(aliases)
    shown = ", ".join(f"{a}.{c} AS {a}_{c}" for a in sorted(aliases) for c in COLUMNS)
    where = f" WHERE {_more(dice, aliases)}" if dice.random() < 0.2 else ""
    return f"SELECT {shown} FROM {_joined(dice, aliases)}{where}"


#: Some tests have a foreign key on this join.
KEY_JOIN = "u.x = t.id"


def _joined(dice: Random, aliases: list[str]) -> str:
    """FROM over these aliases, with brackets around each side of a join."""
    if len(aliases) == 1:
        return f"db.{aliases[0]} {aliases[0]}"
    cut = dice.randint(1, len(aliases) - 1)
    left, right = aliases[:cut], aliases[cut:]
    kind = dice.choice(("LEFT", "RIGHT", "FULL", "FULL", "INNER"))
    condition = f"{_column(dice, left)} = {_column(dice, right)}"
    if {"t", "u"} <= {*aliases} and len({"t", "u"} & {*left}) == 1 and dice.random() < 0.5:
        condition = KEY_JOIN
    if dice.random() < 0.3:
        condition += f" AND {_more(dice, aliases)}"
    sides = [_joined(dice, side) for side in (left, right)]
    a, b = (side if side.count(" ") == 1 else f"({side})" for side in sides)
    return f"{a} {kind} JOIN {b} ON {condition}"


def _column(dice: Random, aliases: list[str]) -> str:
    return f"{dice.choice(aliases)}.{dice.choice(COLUMNS)}"


def _more(dice: Random, aliases: list[str]) -> str:
    """A condition that fails for NULL."""
    one, other = _column(dice, aliases), _column(dice, aliases)
    return dice.choice((f"{one} < 2", f"{one} <> 2", f"{one} IN (0, 1)", f"{one} <= {other}"))


class Database:
    """The relations in DuckDB, and the change of the updated one, if any."""

    def __init__(self) -> None:
        self.connection = duckdb.connect(":memory:", config={"threads": 1})
        self.connection.execute("CREATE SCHEMA db")

    def fill(self, tables: Tables, changes: Tables | None = None) -> None:
        for name, rows in tables.items():
            self._table(f"db.{name}", rows)
        for name, rows in (changes or {}).items():
            self._table(f"db.change_of_{name}", rows)

    def rows(self, sql: str) -> "Counter[tuple[Any, ...]]":
        return Counter(self.connection.execute(sql).fetchall())

    def _table(self, name: str, rows: Rows) -> None:
        self.connection.execute(f"CREATE OR REPLACE TABLE {name} (id BIGINT, x BIGINT, y BIGINT)")
        if rows:
            places = ", ".join(["(?, ?, ?)"] * len(rows))
            self.connection.execute(f"INSERT INTO {name} VALUES {places}", list(chain(*rows)))


def columns(aliases: Iterable[str]) -> list[str]:
    return [f"{alias}_{column}" for alias in sorted(aliases) for column in COLUMNS]


# -- terms -----------------------------------------------------------------------------------------


def term_sql(term: Term) -> str:
    """All rows of a term, subsumed or not."""
    return _inner_join(term.aliases, term.conditions)


def padded_sql(inner: str, aliases: Iterable[str], all_aliases: Iterable[str]) -> str:
    """Pads rows over some aliases to rows over all, whatever columns a simplified delta has."""
    there = set(columns(aliases))
    shown = ", ".join(c if c in there else f"NULL AS {c}" for c in columns(all_aliases))
    return f"SELECT {shown} FROM ({inner}) padded"


def net_contributions_sql(form: NormalForm, terms: Iterable[Term], subsumption: bool) -> str:
    """The union of the net contributions of these terms; of all their rows without subsumption."""
    graph = subsumption_graph(form)
    parts = []
    for term in terms:
        own = f"SELECT * FROM ({term_sql(term)}) own"
        parents = graph.parents(term) if subsumption else ()
        tests = [
            f"NOT EXISTS (SELECT 1 FROM ({term_sql(parent)}) parent WHERE "
            + " AND ".join(
                f"parent.{c} IS NOT DISTINCT FROM own.{c}" for c in columns(term.aliases)
            )
            + ")"
            for parent in parents
        ]
        where = f" WHERE {' AND '.join(tests)}" if tests else ""
        parts.append(padded_sql(own + where, term.aliases, form.aliases))
    return " UNION ALL ".join(parts) or f"{padded_sql('SELECT 1', (), form.aliases)} WHERE FALSE"


# -- blocks ----------------------------------------------------------------------------------------


def block_sql(block: Block, *, drop_subsumed: bool = True) -> str:
    """The SQL of a block, with the change of the updated relation in its place.

    If λ does not drop subsumed rows, it only drops duplicates, as in the paper.
    """

    def below(input_: Block) -> str:
        return block_sql(input_, drop_subsumed=drop_subsumed)

    match block:
        case Leaf(aliases, _, conditions, updated):
            return _inner_join(aliases, conditions, updated)
        case Selection(input_, conditions):
            return f"SELECT * FROM ({below(input_)}) below WHERE {_text(conditions)}"
        case Joined(kind, left, right, conditions):
            return (
                f"SELECT {', '.join(columns(block.aliases))} FROM ({below(left)}) a"
                f" {kind} JOIN ({below(right)}) b ON {_text(conditions)}"
            )
        case NullIf():
            return _null_if_sql(block, below(block.input), drop_subsumed)


def _null_if_sql(block: NullIf, below: str, drop_subsumed: bool) -> str:
    """Rows padded where a part is missing, each once; the relations have keys here."""
    missing = " AND ".join(f"{alias}_id IS NULL" for alias in block.missing)
    padded = set(columns(block.padded))
    names = columns(block.aliases)
    shown = ", ".join(
        f"CASE WHEN {missing} THEN NULL ELSE {c} END AS {c}" if c in padded else c for c in names
    )
    rest = [c for c in names if c not in padded | set(columns(block.missing))]
    agree = " AND ".join(f"other.{c} IS NOT DISTINCT FROM own.{c}" for c in rest)
    more = " OR ".join(f"other.{a}_id IS NOT NULL" for a in (*block.missing, *block.padded))
    less = " AND ".join(f"own.{a}_id IS NULL" for a in (*block.missing, *block.padded))
    nulled = f"SELECT DISTINCT {shown} FROM ({below}) below"
    if not drop_subsumed:
        return nulled
    return (
        f"WITH nulled AS ({nulled}) SELECT * FROM nulled own WHERE NOT ({less} AND EXISTS"
        f" (SELECT 1 FROM nulled other WHERE {agree} AND ({more})))"
    )


def _inner_join(
    aliases: tuple[str, ...], conditions: Conditions, updated: str | None = None
) -> str:
    shown = ", ".join(f"{a}.{c} AS {a}_{c}" for a in sorted(aliases) for c in COLUMNS)
    tables = ", ".join(f"db.{'change_of_' if a == updated else ''}{a} {a}" for a in aliases)
    return f"SELECT {shown} FROM {tables} WHERE {conditions_text(conditions)}"


def _text(conditions: Conditions) -> str:
    return re.sub(r"\b([rstu])\.(\w+)", r"\1_\2", conditions_text(conditions))
