"""A view kept from itself and its auxiliary views alone, in a DuckDB that holds nothing else.

`Sources` holds the relations and evaluates SQL texts over them: the truth. `Warehouse` holds V and
the auxiliary views, is told the net changes of each transaction, and evaluates the maintenance
expressions: those of section 4 for V, those of section 5 for the auxiliary views.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from protocols.algebra.expressions import Condition, columns_of
from protocols.selfmaintenance.auxiliary import AuxiliaryView, AuxiliaryViews, own_column
from protocols.selfmaintenance.joingraph import Vertex
from protocols.selfmaintenance.maintaining import MaintenanceExpression, maintenance_expressions
from protocols.selfmaintenance.rules import Change, Empty, WithAuxiliaryViews, WithView
from protocols.selfmaintenance.sqltext import condition_text
from protocols.selfmaintenance.statement import statement
from protocols.views.catalog import Catalog, Relation
from protocols.views.view import Atom, View

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Net:
    """The net changes of a transaction to one relation."""

    deleted: tuple[Row, ...] = ()
    #: (old row, new row) with one key.
    updated: tuple[tuple[Row, Row], ...] = ()
    inserted: tuple[Row, ...] = ()


#: The net changes of a transaction.
Transaction = Mapping[Relation, Net]


class Sources:
    """The relations, in a database of their own."""

    def __init__(self, catalog: Catalog, found: AuxiliaryViews) -> None:
        self._database = duckdb.connect(config={"threads": 1})
        for source in catalog.sources:
            self._database.execute(f'CREATE SCHEMA "{source}"')
        for relation in catalog:
            columns = ", ".join(f'"{name}" {type_.name}' for name, type_ in relation.columns)
            self._database.execute(f"CREATE TABLE {_table(relation)} ({columns})")
        for name in found.views:
            if name not in found.same_as:
                self._database.execute(statement(name, found))

    def hold(self, contents: Mapping[Relation, Iterable[Row]]) -> None:
        """Replaces the rows of these relations."""
        for relation, rows in contents.items():
            self._database.execute(f"DELETE FROM {_table(relation)}")
            _insert(self._database, _table(relation), list(rows))

    def rows(self, sql: str) -> Counter[Row]:
        return Counter(self._database.execute(sql).fetchall())

    def auxiliary(self, name: str, found: AuxiliaryViews) -> Counter[Row]:
        """The rows of an auxiliary view, by its CREATE VIEW."""
        kept = found.views[found.same_as.get(name, name)].name
        return self.rows(f'SELECT {_in_order(found.views[name])} FROM "{kept}"')


class Warehouse:
    """V and the auxiliary views; their columns are named `alias.column`, those of V by place."""

    def __init__(
        self,
        view: View,
        found: AuxiliaryViews,
        sources: Sources,
        expressions: Sequence[MaintenanceExpression] = (),
    ) -> None:
        self._expressions = expressions or maintenance_expressions(found)
        self._database = duckdb.connect(config={"threads": 1})
        self._found = found
        self._view = view
        self._columns = [f"v{place}" for place in range(len(view.outputs))]
        self._fill("V", self._columns, sources.rows(view.sql).elements())
        for name, stored in found.views.items():
            rows = sources.auxiliary(name, found).elements()
            self._fill(_stored(name), stored.columns, rows)

    def view(self) -> Counter[Row]:
        return Counter(self._database.execute("SELECT * FROM V").fetchall())

    def auxiliary(self, name: str) -> Counter[Row]:
        return Counter(self._database.execute(f'SELECT * FROM "{_stored(name)}"').fetchall())

    def take(self, transaction: Transaction) -> None:
        """Propagates a transaction, one relation and one kind of change after the other."""
        for expression in self._expressions:
            vertex = self._found.graph.vertex(expression.vertex)
            # New rows of a circle are made of new rows of all; other changes concern one relation.
            alone = [(atom,) for atom in vertex.atoms]
            for part in [vertex.atoms] if expression.change == "insertions" else alone:
                raw = [_rows(atom, vertex.updates, expression.change, transaction) for atom in part]
                if all(raw):
                    self._propagate(expression, vertex, dict(zip(part, raw, strict=True)))

    # -- the view (section 4) ----------------------------------------------------------------------

    def _propagate(
        self, expression: MaintenanceExpression, vertex: Vertex, raw: Mapping[Atom, list[Row]]
    ) -> None:
        change, own = expression.change, self._make_change(vertex, raw, expression.change)
        old = new = None
        match expression.form:
            case WithView():
                on = expression.form.on
                if vertex.name not in self._found.views and len(vertex.atoms) > 1:
                    on = self._found.graph.preserved[next(iter(raw)).alias]
                old = self._with_view(expression.form, on, self._columns)
                shown = [self._shown(place, own) for place in range(len(self._columns))]
                new = self._with_view(expression.form, on, shown)
            case WithAuxiliaryViews(others):
                outputs = [output.column for output in self._view.outputs]
                old = self._joined(others, own, outputs)
                new = self._joined(others, own, [_new(column, own) for column in outputs])
        if not isinstance(expression.form, Empty):
            added = {"insertions": old, "updates": new, "deletions": None}[change]
            self._apply("V", None if change == "insertions" else old, added)
        self._change_auxiliary(vertex, change)

    def _make_change(
        self, vertex: Vertex, raw: Mapping[Atom, list[Row]], change: Change
    ) -> set[str]:
        """Fills the table of the change, and returns its columns.

        A change of one member of a circle becomes one of their join, if that is stored.
        """
        for atom, rows in raw.items():
            columns = [atom.qualified(c) for c in atom.relation.column_names]
            names = [*columns, *(f"new {c}" for c in columns if change == "updates")]
            types = [type_.name for _, type_ in atom.relation.columns] * 2
            self._fill(f"raw {atom.alias}", names, rows, types)
        tables = [_q(f"raw {atom.alias}") for atom in raw]
        inside = {a.qualified(c) for a in raw for c in a.relation.column_names}
        query = f"SELECT * FROM {', '.join(tables)}{_where(self._tests(inside))}"
        stored = self._found.views.get(vertex.name)
        if stored is not None and len(raw) < len(vertex.atoms):
            (atom,) = raw
            news = sorted(inside) if change == "updates" else []
            shown = [f"s.{_q(c)}" for c in stored.columns] + [f"r.{_q('new ' + c)}" for c in news]
            key = [_q(atom.qualified(c)) for c in atom.relation.all_keys[0]]
            same = [f"s.{c} = r.{c}" for c in key]
            joined = f"{_q(_stored(vertex.name))} s, {tables[0]} r"
            query = f"SELECT {', '.join(shown)} FROM {joined}{_where(same)}"
        self._database.execute(f"CREATE OR REPLACE TABLE change AS {query}")
        return self._columns_of_change()

    def _columns_of_change(self) -> set[str]:
        return {name for name, *_ in self._database.execute("DESCRIBE change").fetchall()}

    def _with_view(
        self, form: WithView, on: tuple[tuple[str, str], ...], shown: Sequence[str]
    ) -> str:
        tests = [f"{self._columns[self._place(name)]} = {_q(column)}" for name, column in on]
        tests += [f"{_q(b)} = {_q(a)}" for edge in form.way for b, a in edge.on]
        tables = ["V", *(_q(_stored(edge.child)) for edge in form.way), "change"]
        columns = ", ".join(_q(c) for c in shown)
        return f"SELECT {columns} FROM {', '.join(tables)}{_where(tests)}"

    def _joined(self, others: Iterable[str], own: set[str], shown: Sequence[str]) -> str:
        there = {*own, *(c for name in others for c in self._found.views[name].columns)}
        tables = ["change", *(_q(_stored(name)) for name in others)]
        columns = ", ".join(_q(c) for c in shown)
        return f"SELECT {columns} FROM {', '.join(tables)}{_where(self._tests(there))}"

    def _tests(self, there: set[str]) -> list[str]:
        """The conditions of the view on these columns."""
        return [_sql(each) for each in self._view.conditions if columns_of(each) <= there]

    def _place(self, name: str) -> int:
        return [output.name for output in self._view.outputs].index(name)

    def _shown(self, place: int, own: set[str]) -> str:
        """The column of V at this place, or the new value of the updated column that it shows."""
        new = _new(self._view.outputs[place].column, own)
        return new if new.startswith("new ") else self._columns[place]

    # -- the auxiliary views (section 5) -----------------------------------------------------------
    # The terms A_R ⋈ ∇A_Ri of deletions are empty: what was semijoined with A_Ri is deleted before.

    def _change_auxiliary(self, vertex: Vertex, change: Change) -> None:
        stored = self._found.views.get(vertex.name)
        if stored is None:
            return
        name, columns = _stored(vertex.name), ", ".join(map(_q, stored.columns))
        if change == "insertions":
            tests = [_sql(each) for each in stored.conditions]
            tests += [self._semijoin(edge.on, edge.parent) for edge in stored.semijoins]
            self._apply(name, None, f"SELECT {columns} FROM change{_where(tests)}")
            return
        key = [_q(a.qualified(c)) for a in vertex.atoms for c in a.relation.all_keys[0]]
        both = f"FROM {_q(name)} s, change c{_where([f's.{each} = c.{each}' for each in key])}"
        shown = ", ".join(f"s.{_q(c)}" for c in stored.columns)
        self._database.execute(f"CREATE OR REPLACE TABLE gone AS SELECT {shown} {both}")
        own, added = self._columns_of_change(), None
        if change == "updates":
            places = [("c" if f"new {c}" in own else "s", _new(c, own)) for c in stored.columns]
            added = f"SELECT {', '.join(f'{table}.{_q(c)}' for table, c in places)} {both}"
        self._apply(name, "SELECT * FROM gone", added)

    def _semijoin(self, on: Iterable[tuple[str, str]], parent: str) -> str:
        pairs = list(on)
        ours, theirs = (", ".join(_q(pair[side]) for pair in pairs) for side in (0, 1))
        return f"({ours}) IN (SELECT ({theirs}) FROM {_q(_stored(parent))})"

    # -- tables ------------------------------------------------------------------------------------

    def _fill(
        self, name: str, columns: Sequence[str], rows: Iterable[Row], types: Sequence[str] = ()
    ) -> None:
        known = types or [self._type(column) for column in columns]
        typed = ", ".join(f"{_q(c)} {type_}" for c, type_ in zip(columns, known, strict=False))
        self._database.execute(f"CREATE OR REPLACE TABLE {_q(name)} ({typed})")
        _insert(self._database, _q(name), list(rows))

    def _type(self, column: str) -> str:
        if column in self._columns:
            return self._view.outputs[int(column[1:])].type.name
        atoms = [a for a in self._view.atoms if column.startswith(f"{a.alias}.")]
        return atoms[0].relation.type_of(own_column(column, atoms[0])).name

    def _apply(self, table: str, removed: str | None, added: str | None) -> None:
        """(table ∸ removed) ⊎ added, both over the table as it was."""
        query = f"SELECT * FROM {_q(table)}"
        if removed is not None:
            query = f"({query} EXCEPT ALL {removed})"
        if added is not None:
            query = f"{query} UNION ALL {added}"
        self._database.execute(f"CREATE OR REPLACE TABLE {_q(table)} AS {query}")


def _rows(atom: Atom, kind: str, change: Change, transaction: Transaction) -> list[Row]:
    net = transaction.get(atom.relation, Net())
    exposed = kind == "exposed"
    if change == "updates":
        return [] if exposed else [old + new for old, new in net.updated]
    if change == "deletions":
        return [*net.deleted, *(old for old, _ in net.updated if exposed)]
    return [*net.inserted, *(new for _, new in net.updated if exposed)]


def _new(column: str, own: set[str]) -> str:
    """The new value of a column, if it is one of those that the change updates."""
    return f"new {column}" if f"new {column}" in own else column


def _stored(vertex: str) -> str:
    return f"A {vertex}"


def _in_order(stored: AuxiliaryView) -> str:
    """The columns of the CREATE VIEW in the order of `columns`."""
    if len(stored.vertex.atoms) == 1:
        return ", ".join(_q(own_column(c, stored.vertex.atoms[0])) for c in stored.columns)
    return ", ".join(_q(c.replace(".", "_")) for c in stored.columns)


def _sql(condition: Condition) -> str:
    return condition_text(condition, _q)


def _where(tests: Sequence[str]) -> str:
    return f" WHERE {' AND '.join(f'({test})' for test in tests)}" if tests else ""


def _q(name: str) -> str:
    return f'"{name}"'


def _table(relation: Relation) -> str:
    return f'"{relation.source}"."{relation.name}"'


def _insert(database: duckdb.DuckDBPyConnection, table: str, rows: list[Row]) -> None:
    if rows:
        listed = ", ".join(f"({', '.join(map(_constant, row))})" for row in rows)
        database.execute(f"INSERT INTO {table} VALUES {listed}")


def _constant(value: Any) -> str:
    return "NULL" if value is None else f"'{value}'" if isinstance(value, str) else str(value)
