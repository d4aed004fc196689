"""A question as one SELECT for MariaDB.

Its own comparison of texts, by which more of them are equal, stands beside that by bytes for the
sake of its index.
"""

import math
from collections.abc import Sequence
from typing import Any

import polars as pl

from protocols.algebra.frame import Frame
from protocols.algebra.types import ColumnType
from sources.debezium.lookup import Lookup, Parameters

#: Types that are not sent as the records have them, and the form in which they are.
_FORMS = {
    "bit": "({} + 0)",
    "float": "({} + 0e0)",
    "year": "({} + 0)",
    "bigint unsigned": "CAST({} AS DECIMAL(20,0))",
}
_BYTES = "{} COLLATE utf8mb4_nopad_bin"
_TEXTS = {"char", "varchar", "tinytext", "text", "mediumtext", "longtext"}


class MariaDBLookup(Lookup):
    """Keys go as lists of values and of rows."""

    def quoted(self, name: str) -> str:
        """The name in backticks."""
        return f"`{name.replace('`', '``')}`".replace("%", "%%")

    def _fetched(
        self, cursor: Any, statement: str, parameters: Parameters
    ) -> Sequence[tuple[Any, ...]]:
        cursor.execute(statement, parameters)
        found: Sequence[tuple[Any, ...]] = cursor.fetchall()
        return found

    def _cells(self, cells: Sequence[Any], type_: ColumnType) -> pl.Series:
        if type_.name == "BOOLEAN":
            cells = [None if cell is None else bool(cell) for cell in cells]
        return pl.Series(cells, dtype=type_.dtype)

    def _sent(self, name: str) -> str:
        return _FORMS.get(self._types[name], "{}").format(self._place(name))

    def _ordered(self, name: str) -> str:
        if not self._is_text(name):
            return self._sent(name)
        place = self._place(name)
        is_plain = self._types[name] in _TEXTS
        return _BYTES.format(place if is_plain else f"CONVERT({place} USING utf8mb4)")

    def _matches(self, keys: Frame, parameters: Parameters) -> str:
        """The first tests are for an index, which begins with one of the columns; the last one is
        exact."""
        names = list(keys.columns)
        rows = [row for row in keys.data.select(names).iter_rows() if self._can_match(row)]
        if not rows:
            return "FALSE"
        tests = []
        for place, name in enumerate(names):
            parameters.append(list(dict.fromkeys(row[place] for row in rows)))
            tests.append(f"{self._place(name)} IN %s")
        if len(names) > 1:
            parameters.append(rows)
            tests.append(f"({', '.join(map(self._ordered, names))}) IN %s")
        elif self._is_text(names[0]):
            parameters.append([row[0] for row in rows])
            tests.append(f"{self._ordered(names[0])} IN %s")
        return f"({' AND '.join(tests)})"

    def _after(self, after: Sequence[Any], parameters: Parameters) -> str:
        """Written so that an index serves it."""
        ways = []
        key = self._relation.key
        for place, name in enumerate(key):
            same = [f"{self._ordered(each)} = %s" for each in key[:place]]
            ways.append(" AND ".join([*same, f"{self._ordered(name)} > %s"]))
            parameters += after[: place + 1]
        return f"({' OR '.join(f'({way})' for way in ways)})"

    def _in(
        self,
        name: str,
        values: Sequence[Any],
        type_: ColumnType,  # noqa: ARG002
        parameters: Parameters,
    ) -> str:
        if not values:
            return "FALSE"
        parameters.append(list(values))
        return f"({self._ordered(name)} IN %s)"

    def _compared(
        self,
        name: str,
        op: str,
        value: Any,
        type_: ColumnType,  # noqa: ARG002
        parameters: Parameters,
    ) -> str:
        parameters.append(value)
        return f"({self._ordered(name)} {op} %s)"

    def _can_match(self, row: Sequence[Any]) -> bool:
        return all(value is not None and self._holds(value) for value in row)

    def _holds(self, value: Any) -> bool:
        """It has no NaN and no infinity."""
        return not isinstance(value, float) or math.isfinite(value)
