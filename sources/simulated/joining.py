"""A sum of joins over relations of one source, as one SELECT over a snapshot of it.

It serves the protocols of the ECA family, which assume that the source evaluates whole views. Terms
that give rows for the same atoms are one SELECT (terms.py), in which rows of different terms do not
join; these SELECTs are united, and the counts of equal rows are summed:

    SELECT o0, …, sum(n) FROM (
        SELECT …, a0.n * a2.n FROM … WHERE a0.t = a2.t AND … UNION ALL …
    ) GROUP BY … HAVING …

As in lookup.py no value gets into the SQL text, and the only names in it are those of tables and
columns in the catalog, quoted; everything else is named by its number.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import pairwise
from typing import Any

import polars as pl
import pyarrow as pa

from protocols.algebra.delta import COUNT
from protocols.algebra.expressions import Condition, columns_of
from protocols.algebra.types import ColumnType
from protocols.errors import WrongUse
from protocols.views.view import Atom, View
from sources.simulated.conditions import NO_VALUE, filter_to_sql, size_of
from sources.simulated.database import SourceDatabase
from sources.simulated.lookup import check_columns, check_condition
from sources.simulated.rows import quoted, registered, table_name
from sources.simulated.turns import Turn
from sources.wire.bounds import MOST_JOINED, Bounds
from sources.wire.terms import TERM, Sum, Terms

_COUNT = "n"


def joined(database: SourceDatabase, joint: Sum, turn: Turn | None = None) -> tuple[pa.Table, int]:
    """The summed rows of all terms, with `_count`, and the version that they belong to."""
    check(joint, database)
    parameters: list[Any] = []
    sql = select(joint, parameters)
    with database.snapshot() as (cursor, version), ExitStack() as tables:
        for number, terms in enumerate(joint.groups):
            for index, rows in terms.given.items():
                tables.enter_context(registered(cursor, _given(number, index), _numbered(rows)))
        try:
            rows = (turn or Turn(Bounds())).table(cursor, sql, parameters)
        except NO_VALUE as error:
            raise WrongUse(f"the view over source {database.source}: {error}") from None
    return rows.rename_columns([*joint.view.schema, COUNT]), version


# ------------------------------------------------------------------------------------ checking


def check(joint: Sum, database: SourceDatabase) -> None:
    """Refuses a question that this source cannot answer with its relations."""
    view = joint.view
    if not view.atoms or not view.outputs or not joint.groups:
        raise WrongUse(
            "a joint question must name relations, output columns, and at least one term"
        )
    types: dict[str, ColumnType] = {}
    for index, atom in enumerate(view.atoms):
        _check_atom(atom, index, database)
        types |= {atom.qualified(c): atom.relation.type_of(c) for c in atom.columns}
    if len(types) < sum(len(atom.columns) for atom in view.atoms):
        raise WrongUse(
            "a joint question has two columns with the same name; each alias must stand for exactly"
            " one relation occurrence (atom)"
        )
    _check_links(view)
    _check_size(joint)
    for residual in view.residuals:
        _check_names(columns_of(residual), types, "a condition")
        check_condition(residual, types, "a condition")
    _check_outputs(view, types)
    for terms in joint.groups:
        for index, rows in terms.given.items():
            _check_rows(view, index, rows)


def _check_atom(atom: Atom, index: int, database: SourceDatabase) -> None:
    if atom.relation.source != database.source:
        raise WrongUse(
            f"{atom.relation} is not a relation of this source, {database.source}; all relations of"
            " a joint question must be at one source"
        )
    held = database.relation(atom.relation.name)
    if atom.relation != held:
        raise WrongUse(
            f"relation {held}: the question assumes the schema {atom.relation.schema()}, but it has"
            f" the schema {held.schema()}"
        )
    if atom.index != index:
        raise WrongUse(f"atom {atom.alias} has number {atom.index} but is at place {index}")
    check_columns(held, atom.columns, "the question")
    if atom.condition is not None:
        check_columns(held, columns_of(atom.condition), "the condition")
        check_condition(atom.condition, dict(held.columns), f"relation {held}: the condition")


def _check_links(view: View) -> None:
    for link in view.links:
        types = []
        for index, column in (link.left, link.right):
            if not 0 <= index < len(view.atoms) or column not in view.atoms[index].columns:
                raise WrongUse(
                    f"a link names column {column!r} of atom {index}, which does not exist"
                )
            types.append(view.atoms[index].relation.type_of(column))
        if types[0].family != types[1].family:
            raise WrongUse(f"a link compares {types[0].name} with {types[1].name}")
    _check_linked(view)


def _check_linked(view: View) -> None:
    """Links must connect all atoms, or each row would join with each row."""
    reached, ends = {0}, [{link.left[0], link.right[0]} for link in view.links]
    while more := set().union(*(pair for pair in ends if pair & reached)) - reached:
        reached |= more
    apart = [atom for atom in view.atoms if atom.index not in reached]
    if apart:
        raise WrongUse(
            f"no link leads from {view.atoms[0].alias} to {apart[0].alias}: equalities of columns"
            " must connect all atoms of a joint question; add one, or ask for each atom alone"
        )


def _check_size(joint: Sum) -> None:
    view = joint.view
    conditions = [atom.condition for atom in view.atoms if atom.condition is not None]
    parts = sum(map(size_of, [*conditions, *view.residuals]))
    each = len(view.atoms) + len(view.links) + len(view.outputs) + parts
    if each * len(joint.groups) > MOST_JOINED:
        raise WrongUse(
            f"the joint question has {len(joint.groups)} groups of terms with {each} parts each,"
            f" but at most {MOST_JOINED} parts are allowed in one question; send fewer terms at a"
            " time"
        )


def _check_names(names: Iterable[str], known: Mapping[str, object], where: str) -> None:
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise WrongUse(
            f"{where} names an unknown column {unknown[0]!r}; the columns are: {', '.join(known)}"
        )


def _check_outputs(view: View, types: Mapping[str, ColumnType]) -> None:
    _check_names((output.column for output in view.outputs), types, "the view")
    for output in view.outputs:
        if types[output.column] != output.type:
            raise WrongUse(
                f"the view outputs {output.column} as {output.type.name}, but the column has type"
                f" {types[output.column].name}"
            )
    if len(view.schema) < len(view.outputs) or COUNT in view.schema:
        raise WrongUse(
            f"the view outputs the reserved column {COUNT}, or the same name twice:"
            f" {', '.join(o.name for o in view.outputs)}"
        )


def _check_rows(view: View, index: int, rows: pl.DataFrame) -> None:
    if not 0 <= index < len(view.atoms):
        raise WrongUse(
            f"rows are given for atom {index}, but the view has only {len(view.atoms)} atoms"
        )
    atom = view.atoms[index]
    wanted: dict[str, pl.DataType] = {
        atom.qualified(column): atom.relation.type_of(column).dtype for column in atom.columns
    }
    given = dict(rows.schema)
    numbers: dict[str, pl.DataType] = {COUNT: pl.Int64(), TERM: pl.Int64()}
    if given != {**wanted, **numbers} or any(rows[name].null_count() for name in numbers):
        raise WrongUse(
            f"rows of {atom.alias} have the columns {given}, but should have {wanted} and, without"
            f" NULL, {numbers}"
        )


# ----------------------------------------------------------------------------------------- SQL


def select(joint: Sum, parameters: list[Any]) -> str:
    """The SELECT; adds its parameters. Rows given for an atom are a table `_given…`."""
    terms = [_join(joint.view, n, each, parameters) for n, each in enumerate(joint.groups)]
    outputs = ", ".join(f"o{number}" for number in range(len(joint.view.outputs)))
    total = f"sum({_COUNT})"
    return (
        f"SELECT {outputs}, {total}::BIGINT AS {_COUNT} FROM ({' UNION ALL '.join(terms)})"
        f" GROUP BY {outputs} HAVING {total} <> 0"
    )


def _join(view: View, number: int, terms: Terms, parameters: list[Any]) -> str:
    given = sorted(terms.given)
    places = _places(view, given)
    outputs = [f"{places[output.column]} AS o{n}" for n, output in enumerate(view.outputs)]
    counts = " * ".join(f"a{index}.{_COUNT}" for index in given) or f"{int(terms.number)}::BIGINT"
    tables = [
        f"{_given(number, a.index) if a.index in given else table_name(a.relation)} a{a.index}"
        for a in view.atoms
    ]
    where = list(_restrictions(view, given, places, parameters))
    restricted = " WHERE " + " AND ".join(f"({part})" for part in where) if where else ""
    return f"SELECT {', '.join(outputs)}, {counts} AS {_COUNT} FROM {', '.join(tables)}{restricted}"


def _places(view: View, given: Sequence[int]) -> dict[str, str]:
    """Qualified column → its expression in the SQL."""
    return {
        atom.qualified(column): f"a{atom.index}."
        + (f"c{number}" if atom.index in given else quoted(column))
        for atom in view.atoms
        for number, column in enumerate(atom.columns)
    }


def _restrictions(
    view: View, given: Sequence[int], places: Mapping[str, str], parameters: list[Any]
) -> Iterator[str]:
    """Links, conditions of atoms (given rows already fulfil theirs), residuals."""

    def place(end: tuple[int, str]) -> str:
        return places[view.atoms[end[0]].qualified(end[1])]

    for index, other in pairwise(given):
        yield f"a{index}.t = a{other}.t"
    for link in view.links:
        yield f"{place(link.left)} = {place(link.right)}"
    for atom in view.atoms:
        if atom.condition is not None and atom.index not in given:
            yield _own(atom, atom.condition, parameters)
    for residual in view.residuals:
        yield filter_to_sql(residual, lambda name: places[name], parameters)


def _own(atom: Atom, condition: Condition, parameters: list[Any]) -> str:
    """A condition about the stored rows of one atom."""
    return filter_to_sql(condition, lambda name: f"a{atom.index}.{quoted(name)}", parameters)


def _given(group: int, index: int) -> str:
    return f"_given{group}_{index}"


def _numbered(rows: pl.DataFrame) -> pa.Table:
    """The rows with columns c0, c1, …, n, t: names that need no quoting and cannot clash."""
    names = [name for name in rows.columns if name not in (COUNT, TERM)]
    columns = [rows.get_column(name).alias(f"c{number}") for number, name in enumerate(names)]
    numbers = [rows.get_column(COUNT).alias(_COUNT), rows.get_column(TERM).alias("t")]
    return pl.DataFrame([*columns, *numbers]).to_arrow()
