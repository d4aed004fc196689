"""A question as one SELECT for PostgreSQL.

The database finds rows by keys, by pages and by simple comparisons. Everything else that a
condition may hold is evaluated here, over the rows that it sends: then its functions need not be
those of the view. Texts are compared by their bytes, as the mailbox does.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import psycopg
from psycopg import sql

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
from protocols.algebra.types import ColumnType
from protocols.errors import SourceViolation
from protocols.exchange.questions import Query
from protocols.views.catalog import Relation

#: Our type → the type of parameters.
_CASTS = {
    "BIGINT": "bigint",
    "DOUBLE": "float8",
    "DECIMAL": "numeric",
    "VARCHAR": "text",
    "BOOLEAN": "boolean",
    "DATE": "date",
    "TIMESTAMP": "timestamp",
}
#: Types of the database that are not compared as they are stored, and the form in which they are.
_FORMS = {
    "timestamptz": "({} AT TIME ZONE 'UTC')",
    "float4": "({}::float8)",
    "bpchar": "({}::text)",
    "uuid": "({}::text)",
    "json": "({}::text)",
    "jsonb": "({}::text)",
}


class Lookup:
    """The SELECTs over one relation."""

    def __init__(self, schema: str, relation: Relation, types: Mapping[str, str]) -> None:
        """`types`: column → its type at the database."""
        self._table = sql.Identifier(schema, relation.name)
        self._relation = relation
        self._types = types

    def rows(self, cursor: psycopg.Cursor, query: Query[Frame]) -> Frame:
        """The rows that a question asks for."""
        needed = set(query.columns)
        if query.condition is not None:
            needed |= columns_of(query.condition)
        if query.page is not None:
            needed |= set(self._relation.key)
        names = [name for name in self._relation.column_names if name in needed]
        found = self._matching(cursor, query, names)
        wanted = [*query.columns, COUNT]
        return Frame(found if found.columns == wanted else found.select(wanted))

    def _matching(
        self, cursor: psycopg.Cursor, query: Query[Frame], names: Sequence[str]
    ) -> pl.DataFrame:
        """The rows, with these columns; a page is filled from as many as it takes."""
        parts: list[pl.DataFrame] = []
        while True:
            statement, parameters = self._select(query, names)
            read = self._read(cursor.execute(statement, parameters), names)
            condition = query.condition
            parts.append(read if condition is None else Frame(read).where(condition).data)
            page, height = query.page, sum(map(len, parts))
            if page is None or len(read) < page.limit or height >= page.limit:
                found = pl.concat(parts)
                return found if page is None else found.head(page.limit)
            last = read.tail(1).select(self._relation.key).row(0)
            query = replace(query, page=replace(page, after=last))

    def _read(self, cursor: psycopg.Cursor, names: Sequence[str]) -> pl.DataFrame:
        """The rows of an answer, each with its count."""
        rows = cursor.fetchall()
        columns = list(zip(*rows, strict=True)) or [()] * len(names)
        found = [self._series(*each) for each in zip(names, columns, strict=False)]
        return pl.DataFrame([*found, pl.Series(COUNT, np.ones(len(rows), np.int64))])

    def _series(self, name: str, cells: Sequence[Any]) -> pl.Series:
        type_ = self._relation.type_of(name)
        try:
            if type_.family == "DECIMAL":
                return pl.Series(name, cells, pl.String).cast(type_.dtype)
            return pl.Series(name, cells, type_.dtype)
        except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
            raise SourceViolation(
                f"relation {self._relation}: a value of column {name!r} is not a valid"
                f" {type_.name}: {error}"
            ) from None

    def _select(self, query: Query[Frame], names: Sequence[str]) -> tuple[sql.Composed, list[Any]]:
        parameters: list[Any] = []
        columns = [self._sent(name) for name in names] or [sql.Composed([sql.SQL("NULL")])]
        statement = sql.SQL("SELECT {} FROM {} r").format(sql.SQL(", ").join(columns), self._table)
        where = list(self._restrictions(query, parameters))
        if where:
            statement += sql.SQL(" WHERE ") + sql.SQL(" AND ").join(where)
        if query.page is not None:
            order = sql.SQL(", ").join(map(self._ordered, self._relation.key))
            statement += sql.SQL(" ORDER BY {} LIMIT {}").format(
                order, sql.Literal(query.page.limit)
            )
        return statement, parameters

    def _restrictions(self, query: Query[Frame], parameters: list[Any]) -> Iterator[sql.Composed]:
        if query.keys is not None:
            matches = [self._matches(keys, parameters) for keys in query.keys]
            yield _any(matches)
        for part in conjuncts(query.condition):
            if self._is_plain(part):
                yield self._condition(part, parameters)
        if query.page is not None and query.page.after is not None:
            yield self._after(query.page.after, parameters)

    def _sent(self, name: str) -> sql.Composed:
        """A column, in the form in which it is sent: numbers as texts, read as a whole column."""
        is_number = self._relation.type_of(name).family == "DECIMAL"
        return sql.SQL("{}::text" if is_number else "{}").format(self._place(name))

    def _place(self, name: str) -> sql.Composed:
        """A column, in the form in which it is compared."""
        column = sql.SQL("r.{}").format(sql.Identifier(name))
        form = _FORMS.get(self._types[name], "{}")
        if form == "{}" and self._is_text(name) and self._types[name] not in ("text", "varchar"):
            form = "({}::text)"
        return sql.SQL(form).format(column)

    def _is_text(self, name: str) -> bool:
        return self._relation.type_of(name).family == "VARCHAR"

    def _ordered(self, name: str) -> sql.Composed:
        """A column in an order by bytes."""
        place = self._place(name)
        return place + sql.SQL(' COLLATE "C"') if self._is_text(name) else place

    def _matches(self, keys: Frame, parameters: list[Any]) -> sql.Composed:
        """Whether a row matches one of these keys."""
        names = list(keys.columns)
        lists = []
        for name in names:
            parameters.append(_array(keys.data.get_column(name)))
            lists.append(sql.SQL("%s::{}[]").format(sql.SQL(_cast(self._relation.type_of(name)))))
        places = sql.SQL(", ").join(self._place(name) for name in names)
        if len(names) == 1:
            return sql.SQL("{} = ANY ({})").format(places, lists[0])
        return sql.SQL("({}) IN (SELECT * FROM unnest({}))").format(
            places, sql.SQL(", ").join(lists)
        )

    def _after(self, after: Sequence[Any], parameters: list[Any]) -> sql.Composed:
        parameters += after
        values = [
            sql.SQL("%s::{}").format(sql.SQL(_cast(self._relation.type_of(name))))
            for name in self._relation.key
        ]
        return sql.SQL("({}) > ({})").format(
            sql.SQL(", ").join(map(self._ordered, self._relation.key)), sql.SQL(", ").join(values)
        )

    def _is_plain(self, condition: Condition) -> bool:
        """Whether the database decides it as we do: comparisons of columns with constants."""
        match condition:
            case And(parts) | Or(parts):
                return all(map(self._is_plain, parts))
            case Not(inner):
                return self._is_plain(inner)
            case Comparison(Column(), _, Literal()) | In(Column()) | IsNull(Column()):
                return True
        return False

    def _condition(self, condition: Condition, parameters: list[Any]) -> sql.Composed:
        match condition:
            case And(parts) | Or(parts):
                word = " AND " if isinstance(condition, And) else " OR "
                inner = [self._condition(part, parameters) for part in parts]
                return sql.SQL("({})").format(sql.SQL(word).join(inner))
            case Not(inner):
                return sql.SQL("NOT {}").format(self._condition(inner, parameters))
            case IsNull(Column(name)):
                return sql.SQL("({} IS NULL)").format(self._place(name))
            case In(Column(name), values, type_):
                parameters.append(list(values))
                return sql.SQL("({} = ANY (%s::{}[]))").format(
                    self._ordered(name), sql.SQL(_cast(type_))
                )
            case Comparison(Column(name), op, Literal(value, type_)):
                parameters.append(value)
                return sql.SQL("({} {} %s::{})").format(
                    self._ordered(name), sql.SQL(op), sql.SQL(_cast(type_))
                )
        raise AssertionError(condition)


def _array(values: pl.Series) -> Any:
    """An array as a parameter; one of integers as a text, which is made at once."""
    if values.dtype != pl.Int64 or values.has_nulls():
        return values.to_list()
    return f"{{{values.cast(pl.String).str.join(',')[0] or ''}}}"


def _any(parts: Sequence[sql.Composed]) -> sql.Composed:
    if not parts:
        return sql.Composed([sql.SQL("false")])
    return sql.SQL("({})").format(sql.SQL(" OR ").join(parts))


def _cast(type_: ColumnType) -> str:
    return _CASTS[type_.family]
