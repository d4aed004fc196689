"""The four relations of TPC-H over which the paper on outer-join views measures, made here.

Keys, fan-outs, dates and prices are distributed as dbgen distributes them; scale 10 is the size of
the paper. At every scale the keys of parts are drawn from all 2,000,000 of scale 10. Prices follow
from keys, and with the first keys alone, as dbgen gives them, none would reach 2,000.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from protocols.views.catalog import Catalog, relation_from_json

_DAYS = 2_406
_FIRST_DAY = np.datetime64("1992-01-01")
_TODAY = np.datetime64("1995-06-17")
_PART_KEYS = 2_000_000


def catalog() -> Catalog:
    money, date = "DECIMAL(12,2)", "DATE"
    forms: dict[tuple[str, str], tuple[list[str], dict[str, str]]] = {
        ("crm", "customer"): (
            ["custkey"],
            {"custkey": "BIGINT", "nationkey": "BIGINT", "mktsegment": "VARCHAR"},
        ),
        ("sales", "orders"): (
            ["orderkey"],
            {"orderkey": "BIGINT", "custkey": "BIGINT", "orderdate": date, "clerk": "VARCHAR"},
        ),
        ("lines", "lineitem"): (
            ["orderkey", "linenumber"],
            {
                "orderkey": "BIGINT",
                "linenumber": "BIGINT",
                "partkey": "BIGINT",
                "quantity": "BIGINT",
                "extendedprice": money,
                "shipdate": date,
                "returnflag": "VARCHAR",
            },
        ),
        ("stock", "part"): (
            ["partkey"],
            {"partkey": "BIGINT", "type": "VARCHAR", "retailprice": money},
        ),
    }
    return Catalog(
        tuple(
            relation_from_json(source, name, {"columns": columns, "key": key})
            for (source, name), (key, columns) in forms.items()
        )
    )


#: A column of numbers or of days.
_Column: TypeAlias = NDArray[Any]


def tpch(scale: float, seed: int = 1) -> dict[str, pl.DataFrame]:
    """The rows of each relation, by its name."""
    rng = np.random.default_rng(seed)
    customers, orders, parts = (int(n * scale) for n in (150_000, 1_500_000, 200_000))
    custkey = np.arange(1, customers + 1)
    customer = pl.DataFrame(
        {
            "custkey": custkey,
            "nationkey": rng.integers(0, 25, customers),
            "mktsegment": _words(rng, ("AUTOMOBILE", "BUILDING", "FURNITURE"), customers),
        }
    )
    partkey = np.sort(rng.choice(_PART_KEYS, parts, replace=False)) + 1
    cents = 90_000 + (partkey // 10) % 20_001 + 100 * (partkey % 1_000)
    part = pl.DataFrame(
        {
            "partkey": partkey,
            "type": _words(rng, ("STANDARD TIN", "SMALL BRASS", "PROMO STEEL"), parts),
            "retailprice": _money(cents),
        }
    )
    order, orderkey, date = _orders(rng, orders, custkey)
    lineitem = _lineitems(rng, orderkey, date, partkey, cents)
    return {"customer": customer, "orders": order, "lineitem": lineitem, "part": part}


def _orders(
    rng: np.random.Generator, orders: int, custkey: _Column
) -> tuple[pl.DataFrame, _Column, _Column]:
    """The orders, and of each its key and its day."""
    number = np.arange(orders)
    # Only the first eight of every 32 order keys are used, and every third customer never orders.
    orderkey = number // 8 * 32 + number % 8 + 1
    buyers = custkey[custkey % 3 != 0]
    date = _FIRST_DAY + rng.integers(0, _DAYS, orders)
    order = pl.DataFrame(
        {
            "orderkey": orderkey,
            "custkey": rng.choice(buyers, orders),
            "orderdate": date,
            "clerk": _words(rng, tuple(f"Clerk#{n:09}" for n in range(1, 101)), orders),
        }
    ).with_columns(pl.col("orderdate").cast(pl.Date))
    return order, orderkey, date


def _lineitems(
    rng: np.random.Generator, orderkey: _Column, date: _Column, partkey: _Column, cents: _Column
) -> pl.DataFrame:
    """One to seven items of each order."""
    number = np.arange(len(orderkey))
    per_order = rng.integers(1, 8, len(orderkey))
    rows = int(per_order.sum())
    begins = np.cumsum(per_order) - per_order
    of_order = np.repeat(number, per_order)
    bought = rng.integers(0, len(partkey), rows)
    quantity = rng.integers(1, 51, rows)
    shipped = date[of_order] + rng.integers(1, 122, rows)
    received = shipped + rng.integers(1, 31, rows)
    returned = np.where(rng.random(rows) < 0.5, "R", "A")
    return pl.DataFrame(
        {
            "orderkey": orderkey[of_order],
            "linenumber": np.arange(rows) - begins[of_order] + 1,
            "partkey": partkey[bought],
            "quantity": quantity,
            "extendedprice": _money(quantity * cents[bought]),
            "shipdate": shipped,
            "returnflag": np.where(received <= _TODAY, returned, "N"),
        }
    ).with_columns(pl.col("shipdate").cast(pl.Date))


def _words(rng: np.random.Generator, words: Sequence[str], number: int) -> pl.Series:
    return pl.Series(words).gather(rng.integers(0, len(words), number))


def _money(cents: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> pl.Series:
    whole = pl.Series(cents).cast(pl.Decimal(12, 0))
    return pl.select(
        (whole * pl.lit("0.01").cast(pl.Decimal(4, 2))).cast(pl.Decimal(12, 2))
    ).to_series()
