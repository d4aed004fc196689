"""The kinds of values in the view's SQL, as DuckDB's binder sees them.

A value is tested by putting it where only exact numbers, or only whole ones, may stand: DuckDB then
refuses the text, or does not. So the checker needs no types of its own.
"""

import atexit
from collections.abc import Callable, Sequence
from functools import cache
from typing import Literal, TypeAlias

import duckdb
from sqlglot import exp

#: An integer is also a whole number, and a whole number an exact one.
Kind: TypeAlias = Literal["only_integer", "only_whole", "only_exact", "only_date"]
_TYPES: dict[Kind, str] = {
    "only_integer": "INTEGER",
    "only_whole": "BIGINT",
    "only_exact": "DECIMAL(38,0)",
    "only_date": "DATE",
}


class Arguments:
    """Tests values of a query; `over_nothing` gives its SQL over relations without rows."""

    def __init__(self, over_nothing: Callable[[exp.Expr], str]) -> None:
        self._over_nothing = over_nothing

    def are(self, kind: Kind, query: exp.Expr, values: Sequence[exp.Expr]) -> bool:
        """Whether all these parts of the query are such values."""
        for value in values:
            value.meta["tested"] = True
        marked = query.copy()
        for value in values:
            del value.meta["tested"]
        for value in [each for each in marked.walk() if each.meta.get("tested")]:
            tested = exp.Anonymous(this=kind, expressions=[value.copy()]).is_(exp.null())
            value.replace(exp.case().when(tested, value.copy()).else_(value.copy()))
        try:
            with _database().cursor() as database:
                database.execute(f"DESCRIBE {self._over_nothing(marked)}").fetchall()
        except duckdb.Error as error:
            # What fails for another reason fails again when the view is judged.
            return kind not in str(error)
        return True


@cache
def _database() -> duckdb.DuckDBPyConnection:
    """The database that describes all texts; it has no tables."""
    database = duckdb.connect(config={"threads": 1})
    for kind, type_ in _TYPES.items():
        # A macro would not do: it takes any aggregate.
        database.create_function(kind, _never_called, [type_], type_)
    # One of `pythonfunctions.py`, which stands in parts that were replaced before.
    database.execute("CREATE MACRO numeric_quotient(a, b) AS CAST(a AS VARCHAR)")
    atexit.register(_forget)
    return database


def _forget() -> None:
    """Takes the functions out, or the end of Python would find them alive."""
    for kind in _TYPES:
        _database().remove_function(kind)


def _never_called(_value: object) -> None:
    raise AssertionError("texts are only described")
