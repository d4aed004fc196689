"""How a job delivers updates to FIFO protocols."""

import polars as pl

from protocols.algebra.delta import COUNT
from protocols.algebra.frame import Frame
from protocols.algebra.framelog import FrameLog
from protocols.algebra.types import column_type
from protocols.views.catalog import Relation
from streaming.job.keptview import _as_received

RELATION = Relation("a", "r", (("x", column_type("BIGINT")),))


def test_versions_may_pass_the_numbers_of_32_bits() -> None:
    log = FrameLog()
    last = 2**31 - 1
    for version in (last, last + 1):
        log.append(_as_received(RELATION, Frame(pl.DataFrame({"x": [1], COUNT: [1]})), version))
    found = log.between(last - 1, last + 1)
    assert found is not None
    assert found.consolidated().data.rows() == [(1, 2)]
