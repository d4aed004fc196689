"""Values and conditions of SQL drawn at random, over the columns that are visible at a place.

Types are given by their names. Every type has a value at every place: at least a constant. A
condition always reads a column, or its view would be refused.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeAlias

from protocols.algebra.expressions import COMPARISONS

CONSTANTS: Mapping[str, Sequence[str]] = {
    "BIGINT": ("0", "1", "2"),
    "DECIMAL(38,0)": ("0", "1", "3"),
    "DECIMAL(38,2)": ("0.00", "1.50", "3.50"),
    "VARCHAR": ("''", "'ä'"),
    "DOUBLE": ("CAST(0 AS DOUBLE)", "CAST(1 AS DOUBLE)", "CAST('NaN' AS DOUBLE)"),
    "DECIMAL(6,2)": ("1.50", "2.00", "0.25"),
    "DATE": ("DATE '2024-02-29'", "DATE '1969-12-31'"),
    "TIMESTAMP": ("TIMESTAMP '2024-02-29 12:00:00'", "TIMESTAMP '1969-12-31 00:00:00'"),
    "BOOLEAN": ("TRUE", "FALSE"),
}
#: Type → the types that can be cast to it.
_CASTS: Mapping[str, Sequence[str]] = {
    "DOUBLE": ("BIGINT", "DECIMAL(6,2)"),
    "DECIMAL(6,2)": ("BIGINT",),
    "BIGINT": ("DECIMAL(6,2)",),
    "VARCHAR": ("BIGINT", "DECIMAL(6,2)", "DATE", "TIMESTAMP", "BOOLEAN"),
    "TIMESTAMP": ("DATE",),
    "DATE": ("TIMESTAMP",),
    "DECIMAL(38,0)": ("BIGINT",),
    "DECIMAL(38,2)": ("BIGINT", "DECIMAL(6,2)"),
}
_COMPARISONS = tuple(COMPARISONS)
#: The types of columns for which tests with many members are drawn, and their probability.
_CALLED, _MANY = ("BIGINT", "VARCHAR"), 0.15
#: How deep values and conditions are nested at most.
_DEEP = 2


@dataclass(frozen=True)
class VisibleColumn:
    """A visible column, or the expression that replaces one above a grouping."""

    text: str
    type: str


#: Draws a condition with a subquery, or a subquery as a value of this type; None: not here.
Asking: TypeAlias = Callable[[Sequence[VisibleColumn], str], str | None]


class ScalarDice:
    """Draws values and conditions."""

    def __init__(self, rng: Random, asking: Asking) -> None:
        self._rng = rng
        self._asking = asking

    # -- values ----------------------------------------------------------------------------------

    def value(self, type_: str, columns: Sequence[VisibleColumn], depth: int = 0) -> str:
        """Draws a value of this type."""
        own = [shown.text for shown in columns if shown.type == type_]
        if own and self._rng.random() < 0.5 + depth * 0.25:
            return self._rng.choice(own)
        if depth < _DEEP:
            drawn = self._rng.choice((self._of_numbers, self._chosen, self._cast, self._asked))
            found = drawn(type_, columns, depth + 1)
            if found is not None:
                return found
        return self._rng.choice(own) if own else self.constant(type_)

    def constant(self, type_: str) -> str:
        """Draws a constant, cast to its type."""
        text = "NULL" if self._rng.random() < 0.1 else self._rng.choice(CONSTANTS[type_])
        return f"CAST({text} AS {type_})"

    def _of_numbers(self, type_: str, columns: Sequence[VisibleColumn], depth: int) -> str | None:
        one = self.value(type_, columns, depth)
        match type_:
            case "BIGINT":
                other = self.value(type_, columns, depth)
                forms = (f"({one} + {other})", f"({one} - {other})", f"({one} * 2)", f"(- {one})")
                return self._rng.choice((*forms, f"abs({one})", f"({one} % 2)"))
            case "DOUBLE":
                other = self.value(type_, columns, depth)
                return self._rng.choice((f"({one} + {other})", f"({one} / {other})"))
            case "DECIMAL(6,2)":
                half = f"({one} {self._rng.choice('+-')} 0.50)"
                return f"CAST({half} AS DECIMAL(6,2))"
        return None

    def _chosen(self, type_: str, columns: Sequence[VisibleColumn], depth: int) -> str:
        """Draws a value chosen by a condition (CASE) or by NULL (COALESCE, NULLIF)."""
        one = self.value(type_, columns, depth)
        other = self._rng.choice((self.value(type_, columns, depth), self.constant(type_)))
        form = self._rng.choice(("case", "case", "coalesce", "nullif"))
        if form == "coalesce":
            return f"coalesce({one}, {other})"
        if form == "nullif":
            return f"nullif({one}, {other})"
        test = self.condition(columns, depth)
        if self._rng.random() < 0.3:
            return f"CASE WHEN {test} THEN {one} END"
        return f"CASE WHEN {test} THEN {one} ELSE {other} END"

    def _cast(self, type_: str, columns: Sequence[VisibleColumn], depth: int) -> str | None:
        if type_ not in _CASTS:
            return None
        source = self._rng.choice(_CASTS[type_])
        return f"CAST({self.value(source, columns, depth)} AS {type_})"

    def _asked(self, type_: str, columns: Sequence[VisibleColumn], _: int) -> str | None:
        return self._asking(columns, type_)

    # -- conditions ------------------------------------------------------------------------------

    def condition(self, columns: Sequence[VisibleColumn], depth: int = 0) -> str:
        """Draws a condition that reads a column."""
        if depth < _DEEP and self._rng.random() < 0.4:
            one, other = (self.condition(columns, depth + 1) for _ in range(2))
            return self._rng.choice(
                (
                    f"({one} AND {other})",
                    f"({one} OR {other})",
                    f"({one} OR {other})",
                    f"NOT ({one})",
                    f"(({one}) IS TRUE)",
                    f"(({one}) IS FALSE)",
                    f"(({one}) IS NULL)",
                )
            )
        if self._rng.random() < 0.25:
            asked = self._asking(columns, "a condition")
            if asked is not None:
                return asked
        return self._test(columns, depth)

    def _test(self, columns: Sequence[VisibleColumn], depth: int) -> str:
        shown = self._rng.choice(columns)
        other = self.value(shown.type, columns, depth + 1)
        if self._rng.random() < 0.4:
            other = self._rng.choice(CONSTANTS[shown.type])
        op = self._rng.choice(_COMPARISONS)
        constants = CONSTANTS[shown.type]
        forms = [f"{shown.text} {op} {other}"] * 4
        forms += [f"{shown.text} IS NULL", f"{shown.text} IS NOT NULL"]
        forms += [f"{shown.text} IS {self._rng.choice(('', 'NOT '))}DISTINCT FROM {other}"]
        forms += [f"{shown.text} IN ({', '.join(constants[:2])})"]
        forms += [f"{shown.text} NOT IN ({constants[0]}, {other})"]
        forms += [f"{shown.text} BETWEEN {constants[0]} AND {other}"]
        if shown.type == "BOOLEAN":
            forms += [shown.text] * 3
        drawn = self._rng.choice(forms)
        # Drawn with a generator of its own, so that the other draws of a seed stay the same.
        rng = Random(f"many members: {drawn}")
        return _many(rng, shown) if rng.random() < _MANY and shown.type in _CALLED else drawn


def _many(rng: Random, shown: VisibleColumn) -> str:
    """Draws a test with many members and functions; some fail for rows that CASE keeps from them.

    Under AND and OR such members are not drawn: DuckDB, the judge, may evaluate any part first.
    """
    count = rng.randint(3, 9)
    if shown.type == "VARCHAR":
        among = ", ".join(f"'{chr(ord('a') + n)}'" for n in range(count))
        likes = " OR ".join(f"{shown.text} LIKE '%{n % 3}_'" for n in range(count))
        start = f"SUBSTRING({shown.text}, 1, 1)"
        return rng.choice((f"({start} IN ('', 'ä', {among}))", f"({likes})"))
    x, numbers = shown.text, range(count)
    branches = " ".join(f"WHEN {n + 2} % {x} = {n % 3} THEN {n} % {x}" for n in numbers)
    forms = (
        f"({x} % {count} {rng.choice(('', 'NOT '))}IN (NULL, 0, {count - 1}))",
        f"({x} + 1 IN ({', '.join(map(str, numbers))}))",
        f"({' OR '.join(f'{x} + {n} = {2 * n}' for n in numbers)})",
        f"({' AND '.join(f'{x} - {n} <> {2 * n}' for n in numbers)})",
    )
    case = f"(CASE WHEN {x} = 0 THEN {rng.choice('01')} {branches} ELSE {x} END > 0)"
    return rng.choice((*forms, *[case] * 3))
