"""The installs of one commit as columns: their changes, and the positions that they show."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from protocols.algebra.delta import COUNT, POSITION
from protocols.algebra.frame import Frame, empty_frame
from protocols.exchange.deliveries import Numbers
from protocols.exchange.protocol import Install
from protocols.views.tree import AnyView


def placed(view: AnyView, installs: Sequence[Install[Frame]]) -> pl.DataFrame:
    """All changes of a batch in one frame, each with its position."""
    parts = [
        install.change.data
        if install.first is not None
        else install.change.data.with_columns(pl.lit(install.position, pl.Int64).alias(POSITION))
        for install in installs
        if install.change is not None
    ]
    columns = [*view.schema, COUNT, POSITION]
    if not parts:
        nothing = empty_frame(view.schema).data
        return nothing.with_columns(pl.lit(0, pl.Int64).alias(POSITION)).select(columns)
    return pl.concat(part.select(columns) for part in parts)


def shown_in(installs: Sequence[Install[Frame]], positions: int) -> Numbers | None:
    """The positions that have a state of their own; None if all of them have one."""
    spans = [(i.position if i.first is None else i.first, i.position) for i in installs]
    if sum(last - first + 1 for first, last in spans) == positions:
        return None
    return np.concatenate([np.arange(first, last + 1) for first, last in spans])
