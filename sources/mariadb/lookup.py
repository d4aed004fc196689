"""A question as one SELECT for MariaDB.

The database finds rows by keys, by pages and by simple comparisons. Everything else that a
condition may hold is evaluated here, over the rows that it sends: then its functions need not be
those of the view. Texts are compared by their bytes, as the mailbox does; the database's own
comparison, by which more of them are equal, stands beside that for the sake of its index.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl
from pymysql.cursors import Cursor

from protocols.algebra.delta import COUNT
from protocols.algebra.expressions import (
    And,
    Column,
    Comparison,
    Condition,
    In,
    IsNull,
    Literal,
    Not,
    Or,
    columns_of,
    conjuncts,
)
from protocols.algebra.frame import Frame
from protocols.errors import SourceViolation
from protocols.exchange.questions import Query
from protocols.views.catalog import Relation

#: Types that are not sent as the records have them, and the form in which they are.
_FORMS = {
    "bit": "({} + 0)",
    "float": "({} + 0e0)",
    "year": "({} + 0)",
    "bigint unsigned": "CAST({} AS DECIMAL(20,0))",
}
_BYTES = "{} COLLATE utf8mb4_nopad_bin"


class Lookup:
    """The SELECTs over one relation."""

    def __init__(self, database: str, relation: Relation, types: Mapping[str, str]) -> None:
        """`types`: column → its type at the database."""
        self._table = f"{_quoted(database)}.{_quoted(relation.name)}"
        self._relation = relation
        self._types = types

    def rows(self, cursor: Cursor, query: Query[Frame]) -> Frame:
        """The rows that a question asks for."""
        needed = set(query.columns)
        if query.condition is not None:
            needed |= columns_of(query.condition)
        if query.page is not None:
            needed |= set(self._relation.key)
        names = [name for name in self._relation.column_names if name in needed]
        found = self._matching(cursor, query, names)
        return Frame(found.select(*query.columns, COUNT))

    def _matching(self, cursor: Cursor, query: Query[Frame], names: Sequence[str]) -> pl.DataFrame:
        """The rows, with these columns; a page is filled from as many as it takes."""
        parts: list[pl.DataFrame] = []
        while True:
            statement, parameters = self._select(query, names)
            cursor.execute(statement, parameters)
            read = self._read(cursor.fetchall(), names)
            counted = read.with_columns(pl.lit(1, pl.Int64).alias(COUNT))
            if query.condition is not None:
                counted = Frame(counted).where(query.condition).data
            parts.append(counted)
            page, height = query.page, sum(map(len, parts))
            if page is None or len(read) < page.limit or height >= page.limit:
                found = pl.concat(parts)
                return found if page is None else found.head(page.limit)
            last = read.tail(1).select(self._relation.key).row(0)
            query = replace(query, page=replace(page, after=last))

    def _read(self, rows: Sequence[tuple[Any, ...]], names: Sequence[str]) -> pl.DataFrame:
        columns = list(zip(*rows, strict=True)) or [()] * len(names)
        return pl.DataFrame(
            [self._series(name, cells) for name, cells in zip(names, columns, strict=True)]
        )

    def _series(self, name: str, cells: Sequence[Any]) -> pl.Series:
        type_ = self._relation.type_of(name)
        if type_.name == "BOOLEAN":
            cells = [None if cell is None else bool(cell) for cell in cells]
        try:
            return pl.Series(name, cells, type_.dtype)
        except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
            raise SourceViolation(
                f"relation {self._relation}: a value of column {name!r} is not a valid"
                f" {type_.name}: {error}"
            ) from None

    def _select(self, query: Query[Frame], names: Sequence[str]) -> tuple[str, list[Any]]:
        parameters: list[Any] = []
        columns = ", ".join(map(self._sent, names))
        statement = f"SELECT {columns} FROM {self._table} r"
        if where := list(self._restrictions(query, parameters)):
            statement += f" WHERE {' AND '.join(where)}"
        if query.page is not None:
            order = ", ".join(map(self._ordered, self._relation.key))
            statement += f" ORDER BY {order} LIMIT {query.page.limit}"
        return statement, parameters

    def _restrictions(self, query: Query[Frame], parameters: list[Any]) -> Iterator[str]:
        if query.keys is not None:
            matches = [self._matches(keys, parameters) for keys in query.keys]
            yield f"({' OR '.join(matches) or 'FALSE'})"
        for part in conjuncts(query.condition):
            if self._is_plain(part):
                yield self._condition(part, parameters)
        if query.page is not None and query.page.after is not None:
            yield self._after(query.page.after, parameters)

    # -- columns -------------------------------------------------------------------------------

    def _sent(self, name: str) -> str:
        """A column in the form in which it is sent."""
        return _FORMS.get(self._types[name], "{}").format(f"r.{_quoted(name)}")

    def _is_text(self, name: str) -> bool:
        return self._relation.type_of(name).family == "VARCHAR"

    def _ordered(self, name: str) -> str:
        """A column in the form in which it is compared: texts by their bytes."""
        if not self._is_text(name):
            return self._sent(name)
        place = f"r.{_quoted(name)}"
        is_plain = self._types[name] in ("char", "varchar", "tinytext", "text", "mediumtext")
        is_plain = is_plain or self._types[name] == "longtext"
        return _BYTES.format(place if is_plain else f"CONVERT({place} USING utf8mb4)")

    # -- conditions ----------------------------------------------------------------------------

    def _matches(self, keys: Frame, parameters: list[Any]) -> str:
        """Whether a row matches one of these keys.

        The first test is one for an index; the second one is exact.
        """
        names = list(keys.columns)
        rows = [row for row in keys.data.select(names).iter_rows() if _can_match(row)]
        if not rows:
            return "FALSE"
        tests = []
        for place, name in enumerate(names):
            # An index over several columns begins with one of them.
            values = list(dict.fromkeys(row[place] for row in rows))
            parameters.append(values)
            tests.append(f"r.{_quoted(name)} IN %s")
        if len(names) > 1:
            parameters.append(rows)
            tests.append(f"({', '.join(map(self._ordered, names))}) IN %s")
        elif self._is_text(names[0]):
            parameters.append([row[0] for row in rows])
            tests.append(f"{self._ordered(names[0])} IN %s")
        return f"({' AND '.join(tests)})"

    def _after(self, after: Sequence[Any], parameters: list[Any]) -> str:
        """Whether a row comes after this key; written so that an index serves it."""
        ways = []
        key = self._relation.key
        for place, name in enumerate(key):
            same = [f"{self._ordered(each)} = %s" for each in key[:place]]
            ways.append(" AND ".join([*same, f"{self._ordered(name)} > %s"]))
            parameters += after[: place + 1]
        return f"({' OR '.join(f'({way})' for way in ways)})"

    def _is_plain(self, condition: Condition) -> bool:
        """Whether the database decides it as we do: comparisons of columns with constants."""
        match condition:
            case And(parts) | Or(parts):
                return all(map(self._is_plain, parts))
            case Not(inner):
                return self._is_plain(inner)
            case Comparison(Column(), _, Literal(value, _)):
                return _is_plain_value(value)
            case In(Column(), values, _):
                return all(map(_is_plain_value, values))
            case IsNull(Column()):
                return True
        return False

    def _condition(self, condition: Condition, parameters: list[Any]) -> str:
        match condition:
            case And(parts) | Or(parts):
                word = " AND " if isinstance(condition, And) else " OR "
                return f"({word.join(self._condition(part, parameters) for part in parts)})"
            case Not(inner):
                return f"(NOT {self._condition(inner, parameters)})"
            case IsNull(Column(name)):
                return f"(r.{_quoted(name)} IS NULL)"
            case In(Column(name), values, _):
                if not values:
                    return "FALSE"
                parameters.append(list(values))
                return f"({self._ordered(name)} IN %s)"
            case Comparison(Column(name), op, Literal(value, _)):
                parameters.append(value)
                return f"({self._ordered(name)} {op} %s)"
        raise AssertionError(condition)


def _can_match(row: Sequence[Any]) -> bool:
    """Whether the database may hold these values: it has no NaN and no infinity."""
    return all(value is not None and _is_plain_value(value) for value in row)


def _is_plain_value(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`".replace("%", "%%")
