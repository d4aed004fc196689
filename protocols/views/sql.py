"""Reads the text of a view into the form that is kept: an inner join, or a tree of operators."""

from typing import NoReturn

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from protocols.algebra.expressions import Column
from protocols.views import tree
from protocols.views.binding.select import Binder
from protocols.views.binding.statement import Text
from protocols.views.binding.understood import refuse_others
from protocols.views.catalog import Catalog
from protocols.views.dialects import Dialect
from protocols.views.normal.columns import narrowed
from protocols.views.normal.filters import pushed
from protocols.views.normal.innerjoins import gathered
from protocols.views.operands import kept
from protocols.views.tree import AnyView, TreeView
from protocols.views.view import OutputColumn, View


def parse_view(name: str, sql: str, catalog: Catalog, dialect: Dialect | None = None) -> AnyView:
    """Reads SQL over these relations into a view; ViewRefused says why a view cannot be kept."""
    text = Text(sql, dialect)
    try:
        return _read(name, text, catalog)
    except RecursionError:
        text.refuse_nesting()


def as_written(sql: str, catalog: Catalog, dialect: Dialect | None = None) -> tree.Node:
    """The tree as the text says it, before anything is moved or simplified."""
    text = Text(sql, dialect)
    node, _ = Binder(text, catalog).query(text.query(), {})
    return node


def _read(name: str, text: Text, catalog: Catalog) -> AnyView:
    query = text.query()
    refuse_others(text, query)
    binder = Binder(text, catalog)
    node, columns = binder.whole(query)

    def unlinked(alias: str) -> NoReturn:
        text.refuse(
            binder.places[alias],
            f"no column equality joins {alias!r} to the relations before it, so whole relations"
            " would have to be read; add one",
        )

    values = tuple((e.name, Column(e.shown.name), kept(e.shown.type)) for e in columns)
    tests_below = pushed(tree.Compute(node, values))
    if not any(isinstance(each, tree.Core) for each in tree.nodes(node)):
        text.refuse(query, "this view names no relation, so it would never change")
    root = narrowed(gathered(tests_below, binder.names, unlinked), {e.name for e in columns})
    inner = _inner_join(name, text, root)
    return TreeView(name, text.sql, root, text.dialect) if inner is None else inner


def plain_lines(sql: str) -> list[str]:
    """A text without comments, in one spelling; unchanged if it is not SQL at all."""
    try:
        statements = [each for each in sqlglot.parse(sql, read="duckdb") if each is not None]
        return [
            line
            for each in statements
            for line in each.sql("duckdb", pretty=True, comments=False).splitlines()
        ]
    except (SqlglotError, RecursionError):
        return [" ".join(sql.split())]


def sources_named_in(sql: str) -> set[str]:
    """The sources that a text seems to name, in lower case; empty if it is not SQL at all."""
    return {source for source, _ in relations_named_in(sql)}


def relations_named_in(sql: str) -> set[tuple[str, str]]:
    """The relations that a text seems to name, each after its source, in lower case."""
    try:
        statements = sqlglot.parse(sql, read="duckdb")
    except (SqlglotError, RecursionError):
        return set()
    tables = (table for s in statements if s is not None for table in s.find_all(exp.Table))
    return {(table.db.lower(), table.name.lower()) for table in tables if table.db}


def _inner_join(name: str, text: Text, root: tree.Node) -> View | None:
    """The view as a plain inner join, if it is one."""
    if not isinstance(root, tree.Compute) or not isinstance(root.input, tree.Core):
        return None
    if not all(isinstance(value, Column) for _, value, _ in root.values):
        return None
    core = root.input.view
    below = {output.name: output.column for output in core.outputs}
    outputs = tuple(
        OutputColumn(name, below[value.name], type_)
        for name, value, type_ in root.values
        if isinstance(value, Column)
    )
    return View(name, text.sql, core.atoms, core.links, core.residuals, outputs, text.dialect)
