"""The log of changes: its results, compared with a plain list, and its memory."""

import datetime
import os
import tempfile
from decimal import Decimal
from pathlib import Path
from unittest import mock

import polars as pl
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from protocols.algebra.delta import COUNT, POSITION
from protocols.algebra.frame import Frame
from protocols.algebra.framelog import VERSION, FrameLog, Room
from protocols.errors import ViewsweepError
from streaming.intake.spilling import spill

SCHEMA = {"x": pl.String, COUNT: pl.Int64, VERSION: pl.Int64}
#: (x, count, version)
Change = tuple[str, int, int]


def frame(changes: list[Change]) -> pl.DataFrame:
    return pl.DataFrame(changes, schema=SCHEMA, orient="row")


def change(version: int) -> Change:
    """A change whose text is too long to be stored inline."""
    return f"the row that version {version} inserts", 1, version


def between(log: FrameLog, after: int, upto: int) -> list[tuple[str, int]]:
    found = log.between(after, upto)
    return [] if found is None else found.data.rows()


def placed(log: FrameLog, after: int, upto: int) -> list[tuple[str, int, int]]:
    found: Frame | None = log.placed(after, upto, [10 * v for v in range(after + 1, upto + 1)])
    return [] if found is None else found.data.select("x", COUNT, POSITION).rows()


#: Steps of a log: a number of versions arrives at once, or is forgotten.
STEPS = st.lists(st.tuples(st.booleans(), st.integers(1, 40)), min_size=1, max_size=25)


@pytest.mark.parametrize("room", [None, 0, 200, 2000], ids=["all", "none", "little", "some"])
@given(steps=STEPS, spans=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 90)), min_size=5))
@settings(deadline=None, max_examples=40)
def test_a_log_finds_what_a_list_finds_however_much_of_it_was_put_away(
    room: int | None, steps: list[tuple[bool, int]], spans: list[tuple[int, int]]
) -> None:
    log = FrameLog(None if room is None else Room(room, spill))
    held: list[Change] = []
    last = forgotten = 0
    for arrives, many in steps:
        if arrives:
            # Every third version changes no row here.
            new = [change(v) for v in range(last + 1, last + many + 1) if v % 3]
            last += many
            log.append(frame(new))
            held += new
        else:
            forgotten = min(last, forgotten + many)
            log.forget(forgotten)
            held = [each for each in held if each[2] > forgotten]
        if room is not None:
            assert log.bytes <= room
        for start, length in spans:
            after = max(forgotten, min(start, last))
            upto = min(last, after + length)
            wanted = [(x, n, v) for x, n, v in held if after < v <= upto]
            assert between(log, after, upto) == [(x, n) for x, n, _ in wanted]
            assert placed(log, after, upto) == [(x, n, 10 * v) for x, n, v in wanted]


def test_parts_are_put_away_only_when_there_is_no_room_for_them() -> None:
    files: list[int] = []

    def noting(rows: pl.DataFrame) -> pl.DataFrame:
        files.append(rows.height)
        return rows

    room = int(frame([change(v) for v in range(100)]).estimated_size())
    log = FrameLog(Room(room, noting))
    for version in range(1, 1000):
        log.append(frame([change(version)]))
    assert 8 <= len(files) <= 12, "about 100 rows have room"
    assert sum(files) > 850
    rows = log.rows()
    assert rows is not None
    assert rows[VERSION].to_list() == list(range(1, 1000))


def test_what_was_put_away_takes_no_memory_of_its_own() -> None:
    rows = frame([(change(v)[0] * 10, 1, v) for v in range(100_000)])
    before = _anonymous()
    kept = [spill(rows) for _ in range(5)]
    assert all(each.height == rows.height for each in kept)
    assert _anonymous() - before < rows.estimated_size()


def test_control_copies_do_take_memory() -> None:
    rows = frame([(change(v)[0] * 10, 1, v) for v in range(100_000)])
    before = _anonymous()
    kept = [_copied(rows) for _ in range(5)]
    assert _anonymous() - before > 3 * rows.estimated_size()
    assert len(kept) == 5


def _copied(rows: pl.DataFrame) -> pl.DataFrame:
    return pl.DataFrame({name: pl.Series(rows[name].to_list()) for name in rows.columns})


def _anonymous() -> int:
    """The memory of this process that no file backs."""
    return sum(each.anonymous for each in psutil.Process().memory_maps())


def test_files_have_no_name_and_are_gone_when_their_rows_are(tmp_path: Path) -> None:
    with mock.patch.object(tempfile, "tempdir", str(tmp_path)):
        logs = [FrameLog(Room(0, spill)) for _ in range(2)]
        for log in logs:
            for version in range(1, 4):
                log.append(frame([change(version)]))
        assert list(tmp_path.iterdir()) == []
        assert _mapped(tmp_path) == 6
        logs[0].forget(2)
        assert _mapped(tmp_path) == 4
        del log, logs
        assert _mapped(tmp_path) == 0


def _mapped(directory: Path) -> int:
    """The number of files of a directory that this process has mapped."""
    return sum(str(directory) in each.path for each in psutil.Process().memory_maps())


def test_values_of_all_types_come_back_as_they_were() -> None:
    instant = datetime.datetime(2024, 2, 29, 12, 30, 15, 250)
    rows = pl.DataFrame(
        {
            "text": ["short", None, "a text that is longer than twelve bytes \N{SNOWMAN}"],
            "number": [1, None, -(2**63)],
            "real": [0.5, None, float("nan")],
            "exact": pl.Series([Decimal("1.25"), None, Decimal("-99.99")], dtype=pl.Decimal(9, 2)),
            "truth": [True, None, False],
            "day": [instant.date(), None, datetime.date(1, 1, 1)],
            "instant": pl.Series([instant, None, instant], dtype=pl.Datetime("us")),
        }
    )
    assert_frame_equal(spill(rows), rows)
    assert spill(rows[1:]).equals(rows[1:])


def test_a_full_disk_is_named_with_the_ways_out(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    with (
        mock.patch.object(tempfile, "tempdir", str(missing)),
        pytest.raises(ViewsweepError, match=rf"{missing}.*TMPDIR.*job\.mailbox_megabytes"),
    ):
        spill(frame([change(1)]))
    assert os.listdir(tmp_path) == []
