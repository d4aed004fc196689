"""One question about one relation, as one SELECT over a snapshot of the source.

Nothing of the question gets into the SQL text except names that the catalog knows, quoted; values
travel as parameters and keys as Arrow tables.

A stored row is returned once, whatever number of keys it matches: the rows of the answer are
counted by whoever asked, so a join (one copy per match) or a DISTINCT (no duplicates of a bag)
would both be wrong. Hence semi-joins; several key sets are united by rowid.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import duckdb
import pyarrow as pa

from protocols.algebra.delta import COUNT
from protocols.algebra.expressions import (
    And,
    Column,
    Comparison,
    Condition,
    IsNull,
    Literal,
    Not,
    Operand,
    Or,
    columns_of,
)
from protocols.algebra.frame import Frame
from protocols.algebra.types import ColumnType
from protocols.errors import WrongUse
from protocols.maintenance.questions import Page, Query
from protocols.views.catalog import Relation
from sources.database import SourceDatabase, quoted, registered, table_name
from sources.wire import uncounted


def lookup(database: SourceDatabase, query: Query[Frame]) -> tuple[pa.Table, int]:
    """The rows that the query asks for and the version they belong to, from one snapshot.

    A query for no columns at all is answered with one `_count` of 1 per row.
    """
    check(query, database.relation(query.relation.name))
    query = _single_keys_as_condition(query)
    sql, parameters = select(query)
    with database.snapshot() as (cursor, version), ExitStack() as tables:
        for number, keys in enumerate(query.keys or ()):
            tables.enter_context(registered(cursor, _key_set(number), uncounted(keys)))
        try:
            rows = cursor.sql(sql, params=parameters).to_arrow_table()
        except (duckdb.ConversionException, duckdb.OutOfRangeException) as error:
            raise WrongUse(f"relation {query.relation}: {error}") from None
    return rows, version


# ------------------------------------------------------------------------------------ checking


def check(query: Query[Frame], held: Relation) -> None:
    """Refuses what the relation, as this source holds it, cannot answer."""
    if query.relation != held:
        raise WrongUse(
            f"relation {held} is asked for as {query.relation}, {query.relation.to_json()},"
            f" but it is {held.to_json()}"
        )
    check_columns(held, query.columns, "the question")
    if query.condition is not None:
        check_columns(held, columns_of(query.condition), "the condition")
        check_comparisons(query.condition, dict(held.columns), f"relation {held}: the condition")
    for keys in query.keys or ():
        _check_keys(held, keys)
    if query.page is not None:
        _check_page(held, query.page)


def check_columns(relation: Relation, columns: Sequence[str] | set[str], where: str) -> None:
    """Refuses columns that the relation does not have."""
    unknown = sorted(set(columns) - set(relation.column_names))
    if unknown:
        raise WrongUse(
            f"relation {relation}: {where} names column {unknown[0]!r},"
            f" there are {', '.join(relation.column_names)}"
        )


def check_comparisons(condition: Condition, types: Mapping[str, ColumnType], where: str) -> None:
    """Values compare within one family of types; anything else would be up to DuckDB's casts."""
    for comparison in _comparisons(condition):
        families = [
            types[side.name].family if isinstance(side, Column) else side.type.family
            for side in (comparison.left, comparison.right)
        ]
        if len(set(families)) > 1:
            raise WrongUse(f"{where} compares {families[0]} with {families[1]}")


def _comparisons(condition: Condition) -> Iterator[Comparison]:
    match condition:
        case Comparison():
            yield condition
        case Not(inner):
            yield from _comparisons(inner)
        case And(parts) | Or(parts):
            for part in parts:
                yield from _comparisons(part)


def _check_keys(relation: Relation, keys: Frame) -> None:
    if not keys.columns:
        raise WrongUse(f"relation {relation}: a key set without columns")
    check_columns(relation, keys.columns, "a key set")
    for name in keys.columns:
        declared, given = relation.type_of(name).dtype, keys.data.schema[name]
        if declared != given:
            raise WrongUse(
                f"relation {relation}: keys for column {name} are {given}, it has {declared}"
            )


def _check_page(relation: Relation, page: Page) -> None:
    if not relation.key:
        raise WrongUse(f"relation {relation} has no key and so no pages; ask for all of it")
    if page.limit < 1:
        raise WrongUse(f"relation {relation}: a page of {page.limit} rows")
    if page.after is not None and len(page.after) != len(relation.key):
        raise WrongUse(
            f"relation {relation}: a page after {page.after}, the key has {len(relation.key)} parts"
        )


# ----------------------------------------------------------------------------------------- SQL


def select(query: Query[Frame]) -> tuple[str, list[Any]]:
    """The SELECT and its parameters; key set n is the table `_keys<n>`."""
    parameters: list[Any] = []
    columns = ", ".join(map(quoted, query.columns)) or f"1::BIGINT AS {COUNT}"
    sql = f"SELECT {columns} FROM {table_name(query.relation)} r"
    keys = query.keys
    if keys is not None and len(keys) == 1:
        sql += f" SEMI JOIN {_key_set(0)} k ON {_equal(keys[0])}"
    where = list(_restrictions(query, parameters))
    if where:
        sql += " WHERE " + " AND ".join(f"({part})" for part in where)
    if query.page is not None:
        order = ", ".join(f"r.{quoted(name)}" for name in query.relation.key)
        sql += f" ORDER BY {order} LIMIT {int(query.page.limit)}"
    return sql, parameters


def _restrictions(query: Query[Frame], parameters: list[Any]) -> Iterator[str]:
    if query.keys is not None and len(query.keys) != 1:
        yield _any_key_set(query.relation, query.keys)
    if query.condition is not None:
        yield _condition(query.condition, parameters)
    if query.page is not None and query.page.after is not None:
        yield _after(query.relation, query.page.after, parameters)


def _single_keys_as_condition(query: Query[Frame]) -> Query[Frame]:
    """One key each, the most frequent question, as parameters: 0.8 ms less than an Arrow table."""
    if not query.keys or any(keys.data.height != 1 for keys in query.keys):
        return query
    either = Or(tuple(_equals(query.relation, keys) for keys in query.keys))
    condition = either if query.condition is None else And((query.condition, either))
    return replace(query, keys=None, condition=condition)


def _equals(relation: Relation, keys: Frame) -> Condition:
    return And(
        tuple(
            Comparison(Column(name), "=", Literal(keys.data[name][0], relation.type_of(name)))
            for name in keys.columns
        )
    )


def _any_key_set(relation: Relation, keys: Sequence[Frame]) -> str:
    if not keys:
        return "false"
    found = [
        f"SELECT r.rowid FROM {table_name(relation)} r"
        f" SEMI JOIN {_key_set(number)} k ON {_equal(each)}"
        for number, each in enumerate(keys)
    ]
    return f"r.rowid IN ({' UNION ALL '.join(found)})"


def _key_set(number: int) -> str:
    return f"_keys{number}"


def _equal(keys: Frame) -> str:
    return " AND ".join(f"r.{quoted(name)} = k.{quoted(name)}" for name in keys.columns)


def _after(relation: Relation, after: tuple[Any, ...], parameters: list[Any]) -> str:
    """The key is above `after`: equal in its first columns and above in the next one."""
    parts = [
        (Column(name), Literal(value, relation.type_of(name)))
        for name, value in zip(relation.key, after, strict=True)
    ]
    equal = [Comparison(column, "=", literal) for column, literal in parts]
    above = [Comparison(column, ">", literal) for column, literal in parts]
    either = Or(tuple(And((*equal[:place], above[place])) for place in range(len(parts))))
    # Implied by the rest, but in this form DuckDB can skip the row groups before the page.
    start = Comparison(parts[0][0], ">=", parts[0][1])
    return _condition(And((start, either)), parameters)


def _condition(condition: Condition, parameters: list[Any]) -> str:
    return condition_to_sql(condition, lambda name: f"r.{quoted(name)}", parameters)


def condition_to_sql(
    condition: Condition, place: Callable[[str], str], parameters: list[Any]
) -> str:
    """SQL text for a condition; `place` says where a column is, values become parameters."""

    def operand(side: Operand) -> str:
        if isinstance(side, Column):
            return place(side.name)
        parameters.append(side.value)
        return f"?::{side.type.name}"

    def inner(part: Condition) -> str:
        return f"({condition_to_sql(part, place, parameters)})"

    match condition:
        case Comparison(left, op, right):
            return f"{operand(left)} {op} {operand(right)}"
        case IsNull(side):
            return f"{operand(side)} IS NULL"
        case Not(part):
            return f"NOT {inner(part)}"
        case And(parts):
            return " AND ".join(map(inner, parts))
        case Or(parts):
            return " OR ".join(map(inner, parts))
