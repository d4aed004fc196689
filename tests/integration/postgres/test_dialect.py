"""A view in the dialect of PostgreSQL computes as PostgreSQL does, on all pairs of awkward values.

The judge of such views computes these numbers in Python by itself; it is compared here, too.
"""

from collections.abc import Sequence
from decimal import Decimal
from itertools import product
from typing import Any, NoReturn

import psycopg
import pytest
from sqlglot import exp, parse_one

from infra.localpostgres import LocalPostgres
from protocols.algebra.expressions_reference import value_of
from protocols.algebra.types import column_type
from protocols.checking.pythonfunctions import _quotient
from protocols.errors import NoValue
from protocols.views.scalars import ScalarReader

_WHOLE = [0, 1, -1, 2, 3, 7, -7, 9999, 10000, 10001, 2**31, 2**53 + 1, 2**63 - 1, -(2**63)]
_EXACT = ["0.00", "0.01", "-0.07", "1.00", "2.50", "-2.55", "3.00", "99.99", "9999.99", "10000.00"]
_EXACT += ["123456.78", "-999999.99"]
_DOUBLE = [0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.49999999999999994, 1e17, 1e300, 5e-324, float("inf")]
#: The SQL of a value of a and b, their types, and their values.
_CASES: list[tuple[str, tuple[str, str], Sequence[Any], Sequence[Any]]] = [
    ("a / b", ("BIGINT", "BIGINT"), _WHOLE, _WHOLE),
    ("a / b", ("DECIMAL(8,2)", "DECIMAL(8,2)"), _EXACT, _EXACT),
    ("a / b", ("BIGINT", "DECIMAL(8,2)"), _WHOLE, _EXACT),
    ("a / b", ("DECIMAL(8,2)", "BIGINT"), _EXACT, _WHOLE),
    ("100.00 * a / b", ("DECIMAL(8,2)", "DECIMAL(8,2)"), _EXACT, _EXACT),
    ("a * b / 7.0", ("DECIMAL(8,2)", "DECIMAL(8,2)"), _EXACT, _EXACT),
    ("1e3 / b + a", ("BIGINT", "DECIMAL(8,2)"), [0, 1, -7], _EXACT),
    ("round(a / b, 3)", ("DECIMAL(8,2)", "DECIMAL(8,2)"), _EXACT, _EXACT),
    ("round(a)", ("DOUBLE", "BIGINT"), _DOUBLE, [0]),
    ("a IN (b, 2.5)", ("DOUBLE", "BIGINT"), _DOUBLE, [0, 1, 2]),
]


def _refuse(_node: exp.Expr, reason: str) -> NoReturn:
    raise AssertionError(reason)


def _ours(text: str, types: tuple[str, str]) -> Any:
    """The expression that the text means, as a function of a and b."""
    known = {name: column_type(type_) for name, type_ in zip("ab", types, strict=True)}
    reader = ScalarReader(
        lambda node: (node.name, known[node.name]), _refuse, lambda _: None, "postgres"
    )
    expression, type_ = reader.typed(parse_one(text, read="duckdb"))

    def computed(a: Any, b: Any) -> Any:
        row = {"a": known["a"].decode(a), "b": known["b"].decode(b)}
        try:
            return value_of(expression, row)
        except NoValue as error:
            return (
                "too large" if "too many digits" in str(error) or "is not a" in str(error) else ()
            )

    return computed, type_.name


@pytest.mark.parametrize(("text", "types", "lefts", "rights"), _CASES)
def test_it_computes_as_postgresql(
    server: LocalPostgres,
    text: str,
    types: tuple[str, str],
    lefts: Sequence[Any],
    rights: Sequence[Any],
) -> None:
    ours, type_ = _ours(text, types)
    wanted = type_.replace("DOUBLE", "DOUBLE PRECISION").replace("INTEGER", "BIGINT")
    names = [name.replace("DOUBLE", "DOUBLE PRECISION") for name in types]
    different, same = [], 0
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        for left, right in product(lefts, rights):
            row = f"SELECT %s::{names[0]}, %s::{names[1]}"
            sql = f"SELECT CAST({text} AS {wanted}) FROM ({row}) v(a, b)"
            try:
                found = connection.execute(sql, [str(left), str(right)]).fetchone()
                theirs = None if found is None else found[0]
            except psycopg.errors.DivisionByZero:
                theirs = ()
            except psycopg.errors.NumericValueOutOfRange:
                theirs = "too large"
            mine = ours(left, right)
            if mine == theirs:
                same += 1
            else:
                different.append((left, right, mine, theirs))
    assert not different, different[:5]
    assert same


def test_the_judge_divides_as_postgresql(server: LocalPostgres) -> None:
    pairs = [(a, b) for a, b in product([*map(str, _WHOLE[:11]), *_EXACT], _EXACT) if Decimal(b)]
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        for left, right in pairs:
            sql = "SELECT (%s::numeric / %s::numeric)::numeric(38,20)::text"
            found = connection.execute(sql, [left, right]).fetchone()
            assert found is not None
            assert _quotient(left, right) == found[0], (left, right)
    # The control: digits that do not depend on the value.
    assert str(round(Decimal("100") / Decimal("7"), 20)) != _quotient("100", "7")
