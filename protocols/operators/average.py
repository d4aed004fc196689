"""AVG exactly as DuckDB computes it, to the last bit.

DuckDB divides the sum of the unscaled values once, in the 80 bits of a long double, and rounds the
result to the 64 bits of a DOUBLE. Divided in 64 bits, sums beyond 2^53 give other digits, and now
and then small ones do, for they are rounded once instead of twice.
"""

import numpy as np
import polars as pl

_HALF = 2**64


def average(sums: pl.Series, numbers: pl.Series) -> pl.Series:
    """Divides each sum, a decimal, by its number of values; NULL if there are none."""
    assert isinstance(sums.dtype, pl.Decimal)
    unscaled = pl.DataFrame([sums.to_physical().fill_null(0).alias("whole")])
    halves = unscaled.with_columns(upper=pl.col("whole") // pl.lit(_HALF, pl.Int128)).select(
        pl.col("upper").cast(pl.Int64),
        lower=(pl.col("whole") - pl.col("upper") * pl.lit(_HALF, pl.Int128)).cast(pl.UInt64),
    )
    upper, lower = (halves[name].to_numpy().astype(np.longdouble) for name in ("upper", "lower"))
    there = numbers.fill_null(0) > 0
    parts = np.maximum(numbers.fill_null(1).to_numpy(), 1).astype(np.longdouble)
    means = (lower + upper * _HALF) / (parts * np.longdouble(10) ** sums.dtype.scale)
    found = pl.Series(sums.name, means.astype(np.float64))
    return found.set(~there, None)
