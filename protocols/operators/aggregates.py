"""The aggregates of groups at every position at which the groups change.

All of them over entries (`placed.py`), by columns. What comes out has a row per group and position
at which it has entries, with the number of its rows (`_rows`) and its aggregates there.

Sums are decimals, so that no order of summation and no repetition can give another result; that
is why SUM and AVG of DOUBLE columns are refused when a view is read.
"""

from collections.abc import Mapping, Sequence

import polars as pl

from protocols.algebra.delta import BEGINNING, COUNT, FOREVER, POSITION, SINCE, UNTIL
from protocols.algebra.types import ColumnType
from protocols.operators.means import mean
from protocols.operators.placed import entries, presence, within
from protocols.views.tree import Aggregate

#: How many rows a group has.
ROWS = "_rows"
_VALUE = "_value"


def aggregated(
    placed: pl.DataFrame,
    by: Sequence[str],
    aggregates: Sequence[Aggregate],
    types: Mapping[str, ColumnType],
    known: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """The groups wherever they change, positions ascending.

    `known` are groups as they were before, of which `placed` has the changes only: rows as they
    came out of here (see `remembered`).
    """
    sums = [pl.col(COUNT).alias(ROWS)]
    for each in aggregates:
        if not each.distinct and each.function in ("count", "sum", "avg"):
            sums += _summands(each, types)
    steps = placed.group_by([*by, POSITION]).agg(value.sum() for value in sums)
    if known is not None:
        steps = entries(known, steps)
    names = [value.meta.output_name() for value in sums]
    found = steps.sort(POSITION).with_columns(within(pl.col(name).cum_sum(), by) for name in names)
    for each in aggregates:
        if each.function in ("min", "max"):
            found = _with_extreme(found, placed, by, each, known)
        elif each.distinct:
            found = _with_distinct(found, placed, by, each, types)
    return found.with_columns(_result(each).alias(each.name) for each in aggregates)


def is_remembered(aggregates: Sequence[Aggregate]) -> bool:
    """Whether groups can go on from what they were, without all their rows."""
    return not any(each.distinct for each in aggregates if each.function not in ("min", "max"))


def in_doubt(
    change: pl.DataFrame, by: Sequence[str], aggregates: Sequence[Aggregate], known: pl.DataFrame
) -> pl.DataFrame:
    """The known groups that lose a value like their least or greatest: who follows is not known."""
    found = [known.clear().select(by)]
    for each in aggregates:
        if each.function in ("min", "max"):
            assert each.column is not None
            gone = change.filter(pl.col(COUNT) < 0).select(*by, pl.col(each.column).alias(_VALUE))
            met = known.select(*by, each.name).join(
                gone, on=[*by, pl.lit(1)], how="inner", nulls_equal=True
            )
            found.append(met.filter(pl.col(each.name) == pl.col(_VALUE)).select(by))
    return pl.concat(found).unique()


def _summands(each: Aggregate, types: Mapping[str, ColumnType]) -> list[pl.Expr]:
    """What is added up for COUNT, SUM and AVG: how many values, and their sum."""
    if each.column is None:
        return [pl.col(COUNT).alias(_number(each))]
    value = pl.col(each.column)
    number = pl.when(value.is_not_null()).then(pl.col(COUNT)).otherwise(0)
    if each.function == "count":
        return [number.alias(_number(each))]
    _, scale = _precise(types[each.column])
    exact, times = value.cast(pl.Decimal(38, scale)), pl.col(COUNT).cast(pl.Decimal(38, 0))
    return [number.alias(_number(each)), (exact * times).alias(_sum(each))]


def _result(each: Aggregate) -> pl.Expr:
    """The aggregate from what was added up."""
    if each.function in ("min", "max"):
        return pl.col(each.name)
    number = pl.col(_number(each))
    if each.function == "count":
        return number
    assert each.column is not None
    if each.function == "sum":
        return pl.when(number > 0).then(pl.col(_sum(each)))
    both = pl.struct(pl.col(_sum(each)).alias("sum"), number.alias("number"))
    return both.map_batches(
        lambda rows: mean(rows.struct.field("sum"), rows.struct.field("number")),
        return_dtype=pl.Float64,
    )


def _with_distinct(
    found: pl.DataFrame,
    placed: pl.DataFrame,
    by: Sequence[str],
    each: Aggregate,
    types: Mapping[str, ColumnType],
) -> pl.DataFrame:
    """The sums of the different values that are there."""
    assert each.column is not None
    there = presence(placed.filter(pl.col(each.column).is_not_null()), _with(by, each.column))
    summands = _summands(each, types)
    names = [summand.meta.output_name() for summand in summands]
    steps = there.group_by([*by, POSITION]).agg(summand.sum() for summand in summands)
    met = found.join(steps, on=[*by, POSITION], how="left", nulls_equal=True).sort(POSITION)
    return met.with_columns(within(pl.col(n).fill_null(0).cum_sum(), by) for n in names)


def _with_extreme(
    found: pl.DataFrame,
    placed: pl.DataFrame,
    by: Sequence[str],
    each: Aggregate,
    known: pl.DataFrame | None,
) -> pl.DataFrame:
    """The least or greatest value that is there, at each position.

    Of the values that are there throughout, one per group is enough.
    """
    assert each.column is not None
    lives = _lives(placed.filter(pl.col(each.column).is_not_null()), by, each.column)
    extreme = _extreme(each.function)
    comes_or_goes = lives.filter((pl.col(UNTIL) < FOREVER) | (pl.col(SINCE) >= 0))
    steady = lives.filter((pl.col(UNTIL) == FOREVER) & (pl.col(SINCE) < 0))
    one = _grouped(steady, by).agg(extreme, pl.col(SINCE).first(), pl.col(UNTIL).first())
    values = pl.concat([one.select(comes_or_goes.columns), comes_or_goes])
    if known is not None:
        throughout = [
            pl.lit(BEGINNING, pl.Int64).alias(SINCE),
            pl.lit(FOREVER, pl.Int64).alias(UNTIL),
        ]
        kept = known.filter(pl.col(each.name).is_not_null())
        values = pl.concat([values, kept.select(*by, pl.col(each.name).alias(_VALUE), *throughout)])
    met = found.select(*by, POSITION).join(
        values, on=[*by, pl.lit(1)], how="inner", nulls_equal=True
    )
    alive = met.filter((pl.col(SINCE) <= pl.col(POSITION)) & (pl.col(POSITION) < pl.col(UNTIL)))
    there = alive.group_by([*by, POSITION]).agg(extreme.alias(each.name))
    return found.join(there, on=[*by, POSITION], how="left", nulls_equal=True).sort(POSITION)


def _lives(placed: pl.DataFrame, by: Sequence[str], column: str) -> pl.DataFrame:
    """From when until when each value is in its group."""
    value = _with(by, column)
    turns = presence(placed, value).sort(POSITION)
    until = pl.col(POSITION).shift(-1).over(value).fill_null(FOREVER)
    spans = turns.with_columns(pl.col(POSITION).alias(SINCE), until.alias(UNTIL))
    return spans.filter(pl.col(COUNT) > 0).select(*by, pl.col(column).alias(_VALUE), SINCE, UNTIL)


def _with(by: Sequence[str], column: str) -> list[str]:
    """What tells values of groups apart; a value may be one of the keys itself."""
    return list(dict.fromkeys((*by, column)))


def _extreme(function: str) -> pl.Expr:
    """By order, not by `min`: there NaN is above all numbers, as in the databases."""
    ordered = pl.col(_VALUE).sort()
    return ordered.first() if function == "min" else ordered.last()


def _grouped(rows: pl.DataFrame, by: Sequence[str]) -> "pl.dataframe.group_by.GroupBy":
    return rows.group_by(by if by else pl.lit(1))


def _precise(type_: ColumnType) -> tuple[int, int]:
    return type_.precision_and_scale if type_.family == "DECIMAL" else (38, 0)


def _number(each: Aggregate) -> str:
    return f"_number.{each.name}"


def _sum(each: Aggregate) -> str:
    return f"_sum.{each.name}"
