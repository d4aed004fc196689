"""How DuckDB, as the judge of views, makes its plans."""

from typing import Any

import duckdb

from protocols.errors import WrongUse

#: A rewriting makes AVG a quotient of two DOUBLEs in some plans: other digits than AVG itself.
_LEFT_OUT = "aggregate_function_rewriter"


class NotEvaluated(WrongUse):
    """DuckDB cannot evaluate the view, so nothing can be said of the run."""


def judging(database: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """The same database, told to keep AVG an AVG."""
    database.execute(f"SET GLOBAL disabled_optimizers = '{_LEFT_OUT}'")
    return database


def executed(
    database: duckdb.DuckDBPyConnection, sql: str, values: list[Any] | None = None
) -> duckdb.DuckDBPyConnection:
    """The statement's result. Some views make the optimizer of DuckDB 2.0 fall over ("INTERNAL
    Error", or an error without a kind, such as "unordered_map::at"), about one drawn view in five
    thousand; their plans are then made without it.
    """
    try:
        return database.execute(sql, values or [])
    except duckdb.Error as error:
        if type(error) not in (duckdb.InternalException, duckdb.Error):
            raise
        database.execute("PRAGMA disable_optimizer")
        try:
            return database.execute(sql, values or [])
        finally:
            database.execute("PRAGMA enable_optimizer")
