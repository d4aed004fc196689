"""The change of the view V3 as Griffin and Kumar's expressions give it (SIGMOD Record 27(3), 1998).

As the paper on outer-join views describes them: each outer join turns the change of its input into
the change of its result by joins and anti-joins of base relations. They never look into the view,
and do not conclude from the view's conditions that some of the change is empty.
"""

import datetime
from collections.abc import Mapping, Sequence

import polars as pl

from protocols.algebra.delta import COUNT

_DATES = datetime.date(1994, 6, 1), datetime.date(1994, 12, 31)


def change_of_v3(
    rows: Mapping[str, pl.DataFrame], lines: pl.DataFrame, count: int, columns: Sequence[str]
) -> pl.DataFrame:
    """The signed change when lines come (+1) or go (-1); `rows` has the others in lineitem."""
    orders, customer, part, others = (
        rows[name].lazy() for name in ("orders", "customer", "part", "lineitem")
    )
    orders = orders.filter(pl.col("orderdate").is_between(*_DATES))
    ordered, before, after = (
        each.join(orders, on="orderkey").rename({"partkey": "bought"})
        for each in (lines.lazy(), others, pl.concat([others, lines.lazy()]))
    )
    # The right join with customer: rows that these lines make, and customers who have no others.
    bought = ordered.join(customer, on="custkey")
    lonely = (
        customer.join(ordered, on="custkey", how="semi")
        .join(before, on="custkey", how="anti")
        .with_columns(pl.lit(None, pl.Int64).alias("bought"))
    )
    # The full join with part: the same once more, for the change of its left side.
    cheap = part.filter(pl.col("retailprice") < 2000)
    terms = (
        (count, _with_parts(bought, cheap)),
        (-count, _with_parts(lonely, cheap)),
        (-count, _unmatched(_matched(cheap, bought), customer, before)),
        (count, _unmatched(_matched(cheap, lonely), customer, after)),
    )
    signed = (rows.with_columns(pl.lit(sign, pl.Int64).alias(COUNT)) for sign, rows in terms)
    return pl.concat(signed, how="diagonal").select(*columns, COUNT).collect()


def _with_parts(lines: pl.LazyFrame, part: pl.LazyFrame) -> pl.LazyFrame:
    return lines.join(part, left_on="bought", right_on="partkey", how="left", coalesce=False)


def _matched(part: pl.LazyFrame, by: pl.LazyFrame) -> pl.LazyFrame:
    return part.join(by, left_on="partkey", right_on="bought", how="semi")


def _unmatched(part: pl.LazyFrame, customer: pl.LazyFrame, ordered: pl.LazyFrame) -> pl.LazyFrame:
    """The parts without a match in the right join of these orders with customer."""
    joined = customer.join(ordered, on="custkey", how="left")
    return part.join(joined, left_on="partkey", right_on="bought", how="anti")
