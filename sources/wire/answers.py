"""Checks that an answer fits its question.

A query server is not ours, and its answers become part of a view. So every answer is checked once,
when it arrives:

    schema_fault   before any row is read: names and types
    most_rows      while rows are read: how many there can be
    fault          when all rows are here: counts, keys, order, condition, whether they were asked
                   for

Each check is a pass over columns. None detects a missing row, or a value that differs from the
source's. A condition or a key set over columns that were not asked for is not checked.
"""

import datetime
from collections.abc import Iterator, Mapping

import polars as pl
import pyarrow as pa

from protocols.algebra.delta import COUNT
from protocols.algebra.expressions import (
    Column,
    Comparison,
    Condition,
    IsNull,
    Not,
    columns_of,
    renamed,
)
from protocols.algebra.expressions_polars import to_polars
from protocols.algebra.expressions_reference import holds
from protocols.algebra.frame import Frame, picked, row_hashes
from protocols.algebra.types import BIGINT, ColumnType
from protocols.errors import NoValue
from protocols.exchange.questions import Joint, Query, Question
from protocols.exchange.stretch import key_range
from protocols.operators.placed import among, unmatched, without
from sources.wire.terms import in_groups

_PLAIN: dict[str, tuple[pa.DataType, ...]] = {
    "BIGINT": (pa.int64(),),
    "DOUBLE": (pa.float64(),),
    "VARCHAR": (pa.string(), pa.large_string(), pa.string_view()),
    "BOOLEAN": (pa.bool_(),),
    "DATE": (pa.date32(),),
    "TIMESTAMP": (pa.timestamp("us"),),
}
#: First and last value: the range of Arrow is wider than that of a calendar.
_CALENDAR = {
    "DATE": (datetime.date.min, datetime.date.max),
    "TIMESTAMP": (datetime.datetime.min, datetime.datetime.max),
}
#: A message shows at most this many characters of a row or a value.
_SHOWN = 200


# --------------------------------------------------------------------------------- before any row


def subject(question: Question[Frame]) -> str:
    """Names the relation or view of the question, for messages."""
    if isinstance(question, Joint):
        return f"view {question.view.name}"
    return f"relation {question.relation}"


def schema_fault(question: Question[Frame], schema: pa.Schema) -> str | None:
    """The first difference between the requested columns and those of the answer."""
    wanted = _types(question)
    try:
        found: dict[str, pa.DataType] = dict(zip(schema.names, schema.types, strict=True))
    except UnicodeDecodeError:
        return "has a column whose name is not valid text"
    if len(found) < len(schema.names):
        return f"has two columns with the same name: {', '.join(schema.names)}"
    if isinstance(question, Joint) or COUNT in found or not wanted:
        wanted[COUNT] = BIGINT
    if found.keys() != wanted.keys():
        return f"has the columns {', '.join(found)} instead of {', '.join(wanted)}"
    odd = next((name for name in wanted if not _is(wanted[name], found[name])), None)
    if odd is not None:
        return f"has column {odd} as {str(found[odd])[:_SHOWN]}, which is not a {wanted[odd].name}"
    return None


def _types(question: Question[Frame]) -> dict[str, ColumnType]:
    if isinstance(question, Joint):
        return dict(question.view.schema)
    types = dict(question.relation.columns)
    return {name: types[name] for name in question.columns}


def _is(type_: ColumnType, found: pa.DataType) -> bool:
    if type_.family == "DECIMAL":
        return bool(found == pa.decimal128(*type_.precision_and_scale))
    return found in _PLAIN[type_.family]


def most_rows(question: Question[Frame]) -> int | None:
    """The largest possible number of rows; None if the question does not limit it."""
    if isinstance(question, Joint):
        return None
    if question.page is not None:
        return question.page.limit
    key, sets = set(question.relation.key), question.keys
    if not key or sets is None or not all(key <= set(keys.columns) for keys in sets):
        return None
    return sum(keys.data.height for keys in sets)


# --------------------------------------------------------------------------- when all are here


def fault(question: Question[Frame], rows: Frame, once: bool = True) -> str | None:
    """The first fault in the rows of an answer; None if there is none.

    Without `once` a key may occur several times, with its rows of different moments.
    """
    if rows.is_empty():
        return None
    if isinstance(question, Joint):
        faults = _joint_faults(question, rows.data)
    else:
        faults = _query_faults(question, rows.data, once)
    return next((each for each in faults if each is not None), None)


def _query_faults(query: Query[Frame], data: pl.DataFrame, once: bool) -> Iterator[str | None]:
    key = query.relation.key
    has_key = bool(key) and set(key) <= set(data.columns)
    yield _miscounted(data, has_key)
    yield _out_of_calendar(_types(query), data)
    yield _null_in_key(query, data)
    if query.page is not None:
        yield _out_of_order(query, data)
    if has_key:
        yield _repeated(key if once else query.columns, data)
    yield _not_asked_for(query, data)
    if query.condition is not None:
        yield _against(query.condition, data)


def _miscounted(data: pl.DataFrame, has_key: bool) -> str | None:
    counts = data.get_column(COUNT)
    if counts.null_count():
        return f"has a row without a count: {_first(data, counts.is_null())}"
    numbers = counts.to_numpy()
    wrong = numbers != 1 if has_key else numbers < 1
    if not wrong.any():
        return None
    row = data.filter(wrong)
    reason = "and its relation has a key" if has_key else "and a row occurs at least once"
    return f"has the count {row.item(0, COUNT)} {reason}: {_first(row)}"


def _out_of_calendar(types: Mapping[str, ColumnType], data: pl.DataFrame) -> str | None:
    for name, type_ in types.items():
        ends = _CALENDAR.get(type_.family)
        if ends is None:
            continue
        column = data.get_column(name).to_physical()
        least, most = pl.Series(ends, dtype=type_.dtype).to_physical()
        if (column.min() or 0) < least or (column.max() or 0) > most:
            return f"has a {type_.name} in column {name} outside the years 1 to 9999"
    return None


def _null_in_key(query: Query[Frame], data: pl.DataFrame) -> str | None:
    for name in query.relation.key:
        if name in query.columns and data.get_column(name).null_count():
            return (
                f"has a row with NULL in key column {name}: {_first(data, pl.col(name).is_null())}"
            )
    return None


def _out_of_order(query: Query[Frame], data: pl.DataFrame) -> str | None:
    """A page is in key order and begins after the page before it."""
    assert query.page is not None
    relation = query.relation
    if not set(relation.key) <= set(data.columns):
        return None
    keys = picked(data, relation.key)
    if not keys.equals(keys.sort(relation.key)):
        return f"is a page whose rows are not in key order ({', '.join(relation.key)})"
    beyond = key_range(relation, query.page.after, None)
    if beyond is not None and not holds(beyond, keys.row(0, named=True)):
        return f"is the page after key {query.page.after} but begins with {_first(data)}"
    return None


def _repeated(key: tuple[str, ...], data: pl.DataFrame) -> str | None:
    keys = picked(data, key)
    if row_hashes(keys, key).n_unique() == data.height:
        return None
    again = keys.is_duplicated()
    return f"has two rows with the same key: {_first(data, again)}" if again.any() else None


def _not_asked_for(query: Query[Frame], data: pl.DataFrame) -> str | None:
    """Each row must match one of the key sets."""
    if query.keys is None:
        return None
    for keys in query.keys:
        if not set(keys.columns) <= set(data.columns):
            return None
        data = unmatched(data, keys.data, [(n, n) for n in keys.columns], nulls_equal=False)
    return None if data.is_empty() else f"has a row that matches no requested key: {_first(data)}"


def _against(condition: Condition, data: pl.DataFrame) -> str | None:
    if not columns_of(condition) <= set(data.columns):
        return None
    try:
        others = data.filter(to_polars(condition).ne_missing(True))
    except NoValue as error:
        return f"has a row on which the condition cannot be evaluated: {error}"
    if others.is_empty():
        return None
    return f"has a row that fails the condition: {_first(others)}"


# ------------------------------------------------------------------------------------ joint answers


def _joint_faults(joint: Joint[Frame], data: pl.DataFrame) -> Iterator[str | None]:
    """Faults of a sum of joins: counts have signs, and equal rows may come from several terms."""
    counts = data.get_column(COUNT)
    if counts.null_count() or (counts.to_numpy() == 0).any():
        wrong = counts.is_null() | (counts == 0)
        yield f"has a row with the count {data.filter(wrong).item(0, COUNT)}: {_first(data, wrong)}"
    yield _out_of_calendar(joint.view.schema, data)
    for condition in _shown_conditions(joint):
        yield _against(condition, data)
    strange = _not_given(joint, data)
    if not strange.is_empty():
        yield f"has a row that no row given in the question produces: {_first(strange)}"


def _shown_conditions(joint: Joint[Frame]) -> Iterator[Condition]:
    """Conditions that each row of the view fulfils, over the columns that the view shows."""
    view = joint.view
    shown = {output.column: output.name for output in view.outputs}
    for atom in view.atoms:
        for name in atom.relation.key:
            if atom.qualified(name) in shown:
                yield Not(IsNull(Column(shown[atom.qualified(name)])))
    links = (
        [view.atoms[index].qualified(column) for index, column in (link.left, link.right)]
        for link in view.links
    )
    conditions = [
        *(renamed(atom.condition, atom.qualified) for atom in view.atoms if atom.condition),
        *view.residuals,
        *(Comparison(Column(left), "=", Column(right)) for left, right in links),
    ]
    for condition in conditions:
        if columns_of(condition) <= shown.keys():
            yield renamed(condition, shown.__getitem__)


def _not_given(joint: Joint[Frame], data: pl.DataFrame) -> pl.DataFrame:
    """The rows that no term can produce: their columns of some atom match no row given for it."""
    for terms in in_groups(joint).groups:
        possible = data
        for rows in terms.given.values():
            outputs = [(o.name, o.column) for o in joint.view.outputs if o.column in rows.columns]
            if outputs:
                possible = among(possible, picked(rows, outputs))
        data = without(data, possible, list(joint.view.schema))
    return data


# ---------------------------------------------------------------------------------------- messages


def _first(data: pl.DataFrame, which: pl.Expr | pl.Series | None = None) -> str:
    """The first of these rows, for a message."""
    found = data if which is None else data.filter(which)
    row = found.drop(COUNT).row(0, named=True)
    text = ", ".join(f"{name} = {_value(value)}" for name, value in row.items())
    return text[:_SHOWN] or "no columns"


def _value(value: object) -> str:
    return "NULL" if value is None else str(value)
