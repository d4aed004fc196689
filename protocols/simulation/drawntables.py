"""Parts of FROM and WHERE drawn at random that are more than a join by equalities.

They are drawn with a generator of their own, so that the other draws of a seed stay the same.
"""

import itertools
from collections.abc import Mapping, Sequence
from random import Random

from protocols.simulation.drawnscalars import CONSTANTS, VisibleColumn

#: Relation → column → type.
Relations = Mapping[str, Mapping[str, str]]


class TableDice:
    """Draws what a query may have instead of a plain relation, link or test."""

    def __init__(self, rng: Random, relations: Relations) -> None:
        self.rng = rng
        self._relations = relations

    def happens(self, probability: float) -> bool:
        return self.rng.random() < probability

    # -- tables ----------------------------------------------------------------------------------

    def everything(self, name: str, alias: str) -> tuple[str, list[str]]:
        """Draws SELECT * over two relations joined by their first column, or by all common ones.

        Returns also the types of its columns.
        """
        other = self.rng.choice(list(self._relations))
        ours, theirs = self._relations[name], self._relations[other]
        kind = self.rng.choice(("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"))
        common = [column for column in ours if theirs.get(column) == ours[column]]
        tables = f"{name} AS l{alias}", f"{other} AS r{alias}"
        if len(common) == len(ours.keys() & theirs.keys()) and self._leads(common, ours):
            kind = self.rng.choice((f"NATURAL {kind}", kind))
        merged = common if kind.startswith("NATURAL") else common[:1]
        using = "" if kind.startswith("NATURAL") else f" USING ({merged[0]})"
        rest = [type_ for column, type_ in theirs.items() if column not in merged]
        return f"SELECT * FROM {tables[0]} {kind} {tables[1]}{using}", [*ours.values(), *rest]

    def _leads(self, common: list[str], columns: Mapping[str, str]) -> bool:
        """Whether the databases agree on the order of *: the common columns come first."""
        return list(columns)[: len(common)] == common

    def constants(self, columns: Mapping[str, str], alias: str) -> str:
        """Draws VALUES, or SELECT without FROM, with these columns."""
        if self.happens(0.3):
            items = (f"{self._constant(type_)} AS {name}" for name, type_ in columns.items())
            return f"(SELECT {', '.join(items)}) AS {alias}"
        rows = (map(self._constant, columns.values()) for _ in range(self.rng.choice((1, 2, 3))))
        listed = ", ".join(f"({', '.join(row)})" for row in rows)
        return f"(VALUES {listed}) AS {alias}({', '.join(columns)})"

    def _constant(self, type_: str) -> str:
        text = "NULL" if self.happens(0.1) else self.rng.choice(CONSTANTS[type_])
        return f"CAST({text} AS {type_})"

    # -- groups ----------------------------------------------------------------------------------

    def sets(self, keys: Sequence[str]) -> str:
        """The expressions to group by; sometimes in several sets."""
        listed = ", ".join(keys)
        if not self.happens(0.2):
            return listed
        forms = [f"ROLLUP ({listed})", f"CUBE ({listed})", f"GROUPING SETS (({listed}), ())"]
        if len(keys) > 1:
            forms += [f"{keys[0]}, ROLLUP ({keys[1]})", f"GROUPING SETS ({listed})"]
        return self.rng.choice(forms)

    def decision(self, shown: VisibleColumn) -> str:
        """Draws BOOL_AND or BOOL_OR over a column."""
        test = f"{shown.text} IS NULL"
        if shown.type == "BOOLEAN" or self.happens(0.5):
            test = shown.text if shown.type == "BOOLEAN" else f"{shown.text} = {shown.text}"
        return f"{self.rng.choice(('bool_and', 'bool_or'))}({test})"

    # -- links and tests -------------------------------------------------------------------------

    def link(self, on: str, columns: Sequence[VisibleColumn]) -> str:
        """The link of a join as it is, or one that NULL meets, or one in all arms of an OR."""
        form = self.rng.random()
        if form < 0.12 and on.count(" = ") == 1:
            return on.replace(" = ", " IS NOT DISTINCT FROM ")
        if form > 0.9:
            one, other = (self.rng.choice(columns).text for _ in range(2))
            return f"(({on} AND {one} IS NULL) OR ({other} IS NOT NULL AND {on}))"
        return on

    def test(self, columns: Sequence[VisibleColumn]) -> str | None:
        """Draws a test of a row among rows, or of constants; mostly none."""
        form = self.rng.random()
        if form > 0.9:
            return self.rng.choice(("1 = 1", "'a' <> 'b'", "2 > 1.5"))
        if form > 0.15:
            return None
        own = [self.rng.choice(columns) for _ in range(2)]
        rows = [[self.rng.choice(CONSTANTS[each.type]) for each in own] for _ in range(2)]
        listed = ", ".join(f"({', '.join(row)})" for row in rows)
        return f"({', '.join(each.text for each in own)}) IN ({listed})"


def windowed(
    items: Sequence[tuple[str, str]], columns: Sequence[VisibleColumn]
) -> tuple[list[tuple[str, str]], str]:
    """Sometimes makes window functions of items, and draws QUALIFY.

    The items decide, so that the other draws of a seed stay the same.
    """
    rng = Random(f"windows of {items}")
    if rng.random() > 0.15:
        return list(items), ""

    def over() -> str:
        part, key = rng.choice(columns).text, rng.choice(columns).text
        order = rng.choice(("", f" ORDER BY {key}", f" ORDER BY {key} DESC NULLS LAST"))
        return f"OVER (PARTITION BY {part}{order})"

    drawn = []
    for text, type_ in items:
        value, _, name = text.rpartition(" AS ")
        calls = [f"{f}({value}) {over()} AS {name}" for f in ("min", "max")]
        if type_ == "BIGINT":
            calls += [f"{f} {over()} AS {name}" for f in ("rank()", "dense_rank()", "count(*)")]
        drawn.append((rng.choice((text, *calls)), type_))
    test = f" QUALIFY {rng.choice(('rank()', 'count(*)'))} {over()} < {rng.choice((2, 3))}"
    return drawn, rng.choice(("", test))


def sum_of_doubles(instead_of: str, columns: Sequence[VisibleColumn]) -> str | None:
    """Sometimes draws SUM or AVG of a DOUBLE column, or of halves, whose sum needs no rounding.

    Which aggregate it replaces decides, so that the other draws of a seed stay the same.
    """
    rng = Random(f"doubles instead of {instead_of}")
    own = [each.text for each in columns if each.type == "DOUBLE"]
    own += [f"{e.text} * CAST(0.5 AS DOUBLE)" for e in columns if e.type == "BIGINT"]
    if not own or rng.random() > 0.08:
        return None
    distinct = rng.choice(("", "", "DISTINCT "))
    return f"{rng.choice(('sum', 'avg'))}({distinct}{rng.choice(own)})"


def common_names(
    tables: Mapping[str, list[VisibleColumn]], new: Mapping[str, list[VisibleColumn]]
) -> list[str]:
    """The columns that occur once on both sides, with one type."""
    sides: list[dict[str, list[str]]] = []
    for side in (tables, new):
        found: dict[str, list[str]] = {}
        for shown in itertools.chain.from_iterable(side.values()):
            found.setdefault(name_of(shown), []).append(shown.type)
        sides.append(found)
    left, right = sides
    return [n for n, types in left.items() if len(types) == 1 and right.get(n) == types]


def name_of(shown: VisibleColumn) -> str:
    return shown.text.rpartition(".")[2]


def unambiguous(
    tables: Mapping[str, list[VisibleColumn]], others: Mapping[str, list[VisibleColumn]]
) -> dict[str, list[VisibleColumn]]:
    """The tables without columns that can no longer be named beside others."""
    there = {name_of(each) for columns in others.values() for each in columns}
    return {
        name: [each for each in columns if "." in each.text or each.text not in there]
        for name, columns in tables.items()
    }


def columns_of(alias: str, columns: Mapping[str, str]) -> list[VisibleColumn]:
    dot = "." if alias else ""
    return [VisibleColumn(f"{alias}{dot}{name}", type_) for name, type_ in columns.items()]
