"""A question as one SELECT.

The database finds rows by keys, by pages and by simple comparisons. Everything else that a
condition may hold is evaluated here, over the rows that it sends: then its functions need not be
those of the view. Texts are compared by their bytes, as the mailbox does.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import polars as pl

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

#: The values of a statement's `%s`, in their order.
Parameters: TypeAlias = list[Any]


class Lookup(ABC):
    """The SELECTs over one relation, in the SQL of one kind of database."""

    def __init__(self, schema: str, relation: Relation, types: Mapping[str, str]) -> None:
        """`types`: column → its type at the database."""
        self._table = f"{self.quoted(schema)}.{self.quoted(relation.name)}"
        self._relation = relation
        self._types = types

    # -- what each kind of database does in its own way ----------------------------------------

    @abstractmethod
    def quoted(self, name: str) -> str:
        """A name in a statement with parameters."""

    @abstractmethod
    def _fetched(
        self, cursor: Any, statement: str, parameters: Parameters
    ) -> Sequence[tuple[Any, ...]]:
        """The rows of a statement."""

    @abstractmethod
    def _cells(self, cells: Sequence[Any], type_: ColumnType) -> pl.Series:
        """A column of an answer; raises if one of them is not of this type."""

    @abstractmethod
    def _sent(self, name: str) -> str:
        """A column, in the form in which it is sent."""

    @abstractmethod
    def _ordered(self, name: str) -> str:
        """A column, in the form in which it is compared: texts by their bytes."""

    @abstractmethod
    def _matches(self, keys: Frame, parameters: Parameters) -> str:
        """Whether a row matches one of these keys."""

    @abstractmethod
    def _after(self, after: Sequence[Any], parameters: Parameters) -> str:
        """Whether a row comes after this key."""

    @abstractmethod
    def _in(
        self, name: str, values: Sequence[Any], type_: ColumnType, parameters: Parameters
    ) -> str:
        """Whether a column has one of these values."""

    @abstractmethod
    def _compared(
        self, name: str, op: str, value: Any, type_: ColumnType, parameters: Parameters
    ) -> str:
        """A comparison of a column with a value."""

    def _holds(self, value: Any) -> bool:  # noqa: ARG002
        """Whether the database has such values."""
        return True

    # -- the rows ------------------------------------------------------------------------------

    def rows(self, cursor: Any, query: Query[Frame]) -> Frame:
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

    def _matching(self, cursor: Any, query: Query[Frame], names: Sequence[str]) -> pl.DataFrame:
        """The rows, with these columns; a page is filled from as many as it takes."""
        parts: list[pl.DataFrame] = []
        while True:
            read = self._read(self._fetched(cursor, *self._select(query, names)), names)
            condition = query.condition
            parts.append(read if condition is None else Frame(read).where(condition).data)
            page, height = query.page, sum(map(len, parts))
            if page is None or len(read) < page.limit or height >= page.limit:
                found = pl.concat(parts)
                return found if page is None else found.head(page.limit)
            last = read.tail(1).select(self._relation.key).row(0)
            query = replace(query, page=replace(page, after=last))

    def _read(self, rows: Sequence[tuple[Any, ...]], names: Sequence[str]) -> pl.DataFrame:
        """The rows of an answer, each with its count."""
        columns = list(zip(*rows, strict=True)) or [()] * len(names)
        found = [self._series(*each) for each in zip(names, columns, strict=False)]
        return pl.DataFrame([*found, pl.Series(COUNT, np.ones(len(rows), np.int64))])

    def _series(self, name: str, cells: Sequence[Any]) -> pl.Series:
        type_ = self._relation.type_of(name)
        try:
            return self._cells(cells, type_).alias(name)
        except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
            raise SourceViolation(
                f"relation {self._relation}: a value of column {name!r} is not a valid"
                f" {type_.name}: {error}"
            ) from None

    # -- the statement -------------------------------------------------------------------------

    def _select(self, query: Query[Frame], names: Sequence[str]) -> tuple[str, Parameters]:
        parameters: Parameters = []
        columns = ", ".join(map(self._sent, names)) or "NULL"
        statement = f"SELECT {columns} FROM {self._table} r"
        if where := list(self._restrictions(query, parameters)):
            statement += f" WHERE {' AND '.join(where)}"
        if query.page is not None:
            order = ", ".join(map(self._ordered, self._relation.key))
            statement += f" ORDER BY {order} LIMIT {query.page.limit}"
        return statement, parameters

    def _restrictions(self, query: Query[Frame], parameters: Parameters) -> Iterator[str]:
        if query.keys is not None:
            matches = [self._matches(keys, parameters) for keys in query.keys]
            yield f"({' OR '.join(matches) or 'FALSE'})"
        for part in conjuncts(query.condition):
            if self._is_plain(part):
                yield self._condition(part, parameters)
        if query.page is not None and query.page.after is not None:
            yield self._after(query.page.after, parameters)

    def _place(self, name: str) -> str:
        return f"r.{self.quoted(name)}"

    def _is_text(self, name: str) -> bool:
        return self._relation.type_of(name).family == "VARCHAR"

    def _is_plain(self, condition: Condition) -> bool:
        """Whether the database decides it as we do: comparisons of columns with constants."""
        match condition:
            case And(parts) | Or(parts):
                return all(map(self._is_plain, parts))
            case Not(inner):
                return self._is_plain(inner)
            case Comparison(Column(), _, Literal(value, _)):
                return self._holds(value)
            case In(Column(), values, _):
                return all(map(self._holds, values))
            case IsNull(Column()):
                return True
        return False

    def _condition(self, condition: Condition, parameters: Parameters) -> str:
        match condition:
            case And(parts) | Or(parts):
                word = " AND " if isinstance(condition, And) else " OR "
                return f"({word.join(self._condition(part, parameters) for part in parts)})"
            case Not(inner):
                return f"(NOT {self._condition(inner, parameters)})"
            case IsNull(Column(name)):
                return f"({self._place(name)} IS NULL)"
            case In(Column(name), values, type_):
                return self._in(name, values, type_, parameters)
            case Comparison(Column(name), op, Literal(value, type_)):
                return self._compared(name, op, value, type_, parameters)
        raise AssertionError(condition)
