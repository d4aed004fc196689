"""SUM and AVG of DOUBLE in the view's SQL, so that DuckDB computes them independent of any order.

DuckDB adds DOUBLEs in the order in which it reads them, so the last digits of its sums depend on
that order. A view promises the exact sum, rounded once; an average is this sum divided by the
number of values. So where a DOUBLE is added up, the values go to Python as a list:

    SUM(x) FILTER (WHERE t)      exact_sum(LIST(x) FILTER (WHERE t))

DuckDB says which arguments are DOUBLE: it refuses those where only an exact number may stand.
"""

import atexit
import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import duckdb
from duckdb.func import SPECIAL
from sqlglot import exp

_FUNCTIONS: dict[type[exp.Expr], str] = {exp.Sum: "exact_sum", exp.Avg: "exact_average"}
_registered: dict[int, duckdb.DuckDBPyConnection] = {}


def with_exact_sums(query: exp.Expr, over_nothing: Callable[[exp.Expr], str]) -> bool:
    """Replaces them in a query; whether there are any.

    `over_nothing` gives a query's SQL over relations without rows.
    """
    calls = list(query.find_all(*_FUNCTIONS))
    if not calls:
        return False
    with duckdb.connect(config={"threads": 1}) as database:
        database.execute("CREATE MACRO only_exact(v DECIMAL(38,0)) AS v")

        def adds_exact_numbers(numbers: Sequence[int]) -> bool:
            marked = query.copy()
            for number, call in enumerate(list(marked.find_all(*_FUNCTIONS))):
                if number in numbers:
                    _mark(call)
            try:
                database.execute(f"DESCRIBE {over_nothing(marked)}")
            except duckdb.BinderException as error:
                if "only_exact" not in str(error):
                    raise
                return False
            except duckdb.Error:
                # What fails for another reason is not about this; it fails again when it is judged.
                return True
            return True

        if adds_exact_numbers(range(len(calls))):
            return False
        of_doubles = [n for n in range(len(calls)) if not adds_exact_numbers([n])]
    for number in of_doubles:
        _replace(calls[number])
    return True


def know_exact_sums(database: duckdb.DuckDBPyConnection) -> None:
    """Adds the functions to a database."""
    if id(database) not in _registered:
        _registered[id(database)] = database
        for name, function in (("exact_sum", _sum), ("exact_average", _average)):
            database.create_function(name, function, ["DOUBLE[]"], "DOUBLE", null_handling=SPECIAL)


def forget_exact_sums(database: duckdb.DuckDBPyConnection) -> None:
    """Takes them out before a database is closed, or the end of Python would find them alive."""
    if _registered.pop(id(database), None) is not None:
        for name in _FUNCTIONS.values():
            database.remove_function(name)


@atexit.register
def _forget_all() -> None:
    for database in list(_registered.values()):
        forget_exact_sums(database)


def _mark(call: exp.Expr) -> None:
    """Lets the value of an aggregate be an exact number only."""
    value = call.this.expressions[0] if isinstance(call.this, exp.Distinct) else call.this
    tested = exp.Anonymous(this="only_exact", expressions=[value.copy()]).is_(exp.null())
    value.replace(exp.case().when(tested, value.copy()).else_(value.copy()))


def _replace(call: exp.Expr) -> None:
    name = _FUNCTIONS[type(call)]
    whole = call.parent if isinstance(call.parent, exp.Filter) else call
    listed = exp.Anonymous(this="list", expressions=[call.this])
    if whole is not call:
        filtered = exp.Filter(this=listed, expression=whole.expression)
        whole.replace(exp.Anonymous(this=name, expressions=[filtered]))
    else:
        call.replace(exp.Anonymous(this=name, expressions=[listed]))


def _sum(values: list[float | None] | None) -> float | None:
    there = [value for value in values or () if value is not None]
    if not there:
        return None
    if not all(map(math.isfinite, there)):
        return sum(value for value in there if not math.isfinite(value))
    exact = sum(map(Fraction, there), Fraction(0))
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def _average(values: list[float | None] | None) -> float | None:
    found = _sum(values)
    return None if found is None else found / sum(value is not None for value in values or ())
