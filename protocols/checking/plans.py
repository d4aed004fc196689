"""Settings for DuckDB's plans when it judges views."""

from typing import Any

import duckdb

from protocols.errors import WrongUse

#: In some plans this rewriting makes AVG a quotient of two DOUBLEs, with other digits than AVG.
_LEFT_OUT = "aggregate_function_rewriter"


class NotEvaluated(WrongUse):
    """DuckDB cannot evaluate the view, so the run cannot be judged."""


def judging(database: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """Sets the database to keep AVG as AVG, and returns it."""
    database.execute(f"SET GLOBAL disabled_optimizers = '{_LEFT_OUT}'")
    return database


def executed(
    database: duckdb.DuckDBPyConnection, sql: str, values: list[Any] | None = None
) -> duckdb.DuckDBPyConnection:
    """Runs a statement; if the optimizer of DuckDB 2.0 falls over, runs it again without it.

    It does so with "INTERNAL Error", or an error without a kind, such as "unordered_map::at", on
    about one drawn view in five thousand.
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
