"""The rows that a question asks for: all, none, or those that match some keys."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import polars as pl

from protocols.algebra.frame import once, picked
from protocols.operators.placed import among


@dataclass(frozen=True)
class All:
    """Every row."""


@dataclass(frozen=True)
class Nobody:
    """No row."""


@dataclass(frozen=True, eq=False)
class These:
    """The rows that agree with one of these keys in all its columns; NULL agrees with NULL."""

    #: At least one, each once, over at least one column of the rows.
    rows: pl.DataFrame


Keys: TypeAlias = All | Nobody | These
#: The keys that an operator is asked for; it is not asked at all for no rows.
Asked: TypeAlias = All | These

ALL, NOBODY = All(), Nobody()


def these(rows: pl.DataFrame) -> These | Nobody:
    """Different rows as keys; NOBODY if there are none."""
    return NOBODY if rows.is_empty() else These(rows)


def handed_on(keys: Asked, names: Mapping[str, str]) -> Asked:
    """The keys for an input, by its `names` for our columns; all rows if it has none of them.

    If a column has two names here, one is enough to ask by: the caller tests the rows again.
    """
    match keys:
        case All():
            return ALL
        case These(rows):
            theirs = {names[name]: name for name in rows.columns if name in names}
            return These(once(picked(rows, theirs.items()))) if theirs else ALL


def agreeing(rows: pl.DataFrame, keys: Keys) -> pl.DataFrame:
    """The rows that match the keys."""
    match keys:
        case All():
            return rows
        case Nobody():
            return rows.clear()
        case These(wanted):
            return among(rows, wanted)
