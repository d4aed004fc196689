"""Functions in Python that DuckDB calls when it judges a view: numbers that it has otherwise."""

import atexit
import math
from decimal import ROUND_HALF_UP, Decimal, localcontext
from fractions import Fraction

import duckdb
from duckdb.func import SPECIAL

_Values = list[float | None] | None
_registered: dict[int, duckdb.DuckDBPyConnection] = {}


def know_functions(database: duckdb.DuckDBPyConnection) -> None:
    """Adds them to a database."""
    if id(database) in _registered:
        return
    _registered[id(database)] = database
    for name, function in (("exact_sum", _sum), ("exact_average", _average)):
        database.create_function(name, function, ["DOUBLE[]"], "DOUBLE", null_handling=SPECIAL)
    database.create_function("numeric_quotient", _quotient, ["VARCHAR", "VARCHAR"], "VARCHAR")


def forget_functions(database: duckdb.DuckDBPyConnection) -> None:
    """Takes them out before a database is closed, or the end of Python would find them alive."""
    if _registered.pop(id(database), None) is not None:
        for name in ("exact_sum", "exact_average", "numeric_quotient"):
            database.remove_function(name)


@atexit.register
def _forget_all() -> None:
    for database in list(_registered.values()):
        forget_functions(database)


def _sum(values: _Values) -> float | None:
    """The exact sum, rounded once."""
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


def _average(values: _Values) -> float | None:
    found = _sum(values)
    return None if found is None else found / sum(value is not None for value in values or ())


def _quotient(dividend: str, divisor: str) -> str:
    """The quotient of two NUMERICs of PostgreSQL: it keeps 16 digits or more, by groups of four."""
    with localcontext(prec=200):
        left, right = Decimal(dividend), Decimal(divisor)
        if not right:
            raise ValueError("division by zero")
        groups = _first_group(left)[0] - _first_group(right)[0]
        if _first_group(left)[1] <= _first_group(right)[1]:
            groups -= 1
        scales = (len(text.partition(".")[2]) for text in (dividend, divisor))
        scale = max(16 - 4 * groups, 0, *scales)
        found = (left / right).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP)
        # Plus turns -0 into 0.
        return format(+found.quantize(Decimal(1).scaleb(-20), ROUND_HALF_UP), "f")


def _first_group(number: Decimal) -> tuple[int, int]:
    """The weight of the first base-10000 digit that is not 0, and this digit."""
    weight = 0
    number = abs(number)
    while number >= 10000:
        number, weight = number / 10000, weight + 1
    while 0 < number < 1:
        number, weight = number * 10000, weight - 1
    return weight, int(number)
