"""From answers to one version: cases that no source of the simulator produces."""

import polars as pl
import pytest

from protocols.algebra.delta import COUNT
from protocols.algebra.frame import Frame
from protocols.algebra.framelog import VERSION, FrameLog
from protocols.algebra.types import column_type
from protocols.exchange.correction import snapshot
from protocols.exchange.inclusion import Window
from protocols.exchange.mailbox import Received
from protocols.exchange.questions import Answer, Query
from protocols.views.catalog import Relation

BIGINT = column_type("BIGINT")
RELATION = Relation("a", "r", (("id", BIGINT), ("x", BIGINT)), ("id",))

#: ((id, x), change of the count, version).
Change = tuple[tuple[int, int], int, int]


def at_the_end(read: list[tuple[int, int]], window: Window, *changes: Change) -> set[object]:
    """The corrected rows, when these rows were read in the window and these changes published."""
    received: Received[Frame] = Received({RELATION: FrameLog()}, {"a": 0})
    rows = [(*row, count, version) for row, count, version in changes]
    columns = ["id", "x", COUNT, VERSION]
    received.receive("a", window.high, {RELATION: pl.DataFrame(rows, columns, orient="row")})
    answer = Frame(pl.DataFrame([(*row, 1) for row in read], columns[:3], orient="row"))
    question: Query[Frame] = Query(RELATION, ("id", "x"))
    return set(snapshot(received, question, Answer(answer, window)).rows.data.rows())


@pytest.mark.parametrize(
    "before",
    [pytest.param([], id="alone"), pytest.param([((1, 4), -1, 1), ((1, 5), 1, 1)], id="changed")],
)
def test_a_window_keeps_a_row_that_is_taken_away_and_given_back(before: list[Change]) -> None:
    """Like an UPDATE that sets a row to its present values; a record may have equal images."""
    same: list[Change] = [((1, 5), -1, 2), ((1, 5), 1, 2)]
    found = at_the_end([(1, 5), (2, 6)], Window(0, 2), *before, *same)
    assert found == {(1, 5, 1), (2, 6, 1)}
