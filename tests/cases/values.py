"""Column types, and values that they can hold: any, or few that match."""

import decimal
import math
from typing import Any

from hypothesis import strategies as st

from protocols.algebra.types import ColumnType, column_type

TYPES = {
    name: column_type(name)
    for name in (
        "BIGINT",
        "DOUBLE",
        "DECIMAL(8,2)",
        "DECIMAL(38,10)",
        "VARCHAR",
        "BOOLEAN",
        "DATE",
        "TIMESTAMP",
    )
}


def _decimals(precision: int, scale: int) -> st.SearchStrategy[decimal.Decimal]:
    most = 10**precision - 1
    digits = st.integers(-most, most)
    return digits.map(lambda n: decimal.Decimal(f"{n}E-{scale}"))


#: Type → any value that it can hold.
ANY: dict[str, st.SearchStrategy[Any]] = {
    "BIGINT": st.integers(-(2**63), 2**63 - 1),
    "DOUBLE": st.floats().map(lambda x: math.nan if math.isnan(x) else x),
    "DECIMAL(8,2)": _decimals(8, 2),
    "DECIMAL(38,10)": _decimals(38, 10),
    "VARCHAR": st.text(st.characters(codec="utf-8")),
    "BOOLEAN": st.booleans(),
    "DATE": st.dates(),
    "TIMESTAMP": st.datetimes(),
}


#: Type → few values in JSON form, including odd ones, so that rows match.
FEW: dict[str, list[Any]] = {
    "BIGINT": [0, 1, -(2**63)],
    "DOUBLE": [0.0, -0.0, 1.5, "NaN", "-Infinity"],
    "DECIMAL(8,2)": ["0.00", "1.50", "-999999.99"],
    "DECIMAL(38,10)": ["0.0000000001", "9999999999999999999999999999.0000000000"],
    "VARCHAR": ["", "a", "Z", "ä", "\U0001f9f9"],
    "BOOLEAN": [True, False],
    "DATE": ["1969-12-31", "2024-02-29"],
    "TIMESTAMP": ["2024-02-29 00:00:00", "2024-02-29 00:00:00.000001"],
}


def few(type_: ColumnType) -> st.SearchStrategy[Any]:
    """One of few values of a type, or NULL."""
    return st.sampled_from([None, *map(type_.decode, FEW[type_.name])])
