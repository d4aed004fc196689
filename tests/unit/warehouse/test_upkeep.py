"""Upkeep: files and log stay small, the view is unchanged, and a crash in it does no harm."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from deltalake import DeltaTable

from protocols.algebra.delta import COUNT, POSITION
from protocols.algebra.types import column_type
from protocols.errors import ViewsweepError, WrongUse
from protocols.exchange.deliveries import Deliveries
from protocols.views.catalog import Catalog, Relation
from protocols.views.sql import parse_view
from sources.kafka import Kafka
from streaming.settings.configuration import Configuration, JobSettings, ViewSettings
from streaming.tracing import write_live_trace
from tests.harness.places import ROOT
from warehouse import delta
from warehouse.changes import ChangesTable
from warehouse.progress import QUESTION
from warehouse.standing import Standing
from warehouse.tables import ViewTables
from warehouse.upkeep import Upkeep, UpkeepSettings, Work, compact, fold_older, tend, tidy

R = Relation("a", "r", (("id", column_type("BIGINT")), ("t", column_type("VARCHAR"))), ("id",))
VIEW = parse_view("v", "SELECT r.t FROM a.r r", Catalog((R,)))
Counted = Counter[str | None]


def change_at(position: int) -> dict[str, int]:
    """The changes of position k: inserts a row, and deletes the row of ten positions ago."""
    gone = {f"row {position - 10}": -1} if position > 10 else {}
    return {f"row {position}": 1, "all": 1, **gone}


def expected(position: int) -> Counted:
    """The view at a position, counted in plain Python from the start."""
    total: Counted = Counter({"first": 2, None: 1})
    for earlier in range(1, position + 1):
        total.update(change_at(earlier))
    return Counter({row: count for row, count in total.items() if count})


def made(directory: Path) -> ViewTables:
    tables = ViewTables(directory, VIEW)
    tables.define()
    first = pl.DataFrame({"t": ["first", None], COUNT: [2, 1]})
    tables.begin(first, Standing(0, {"a": 3}, {"a": (7, 30)}))
    return tables


def install(tables: ViewTables, *positions: int) -> None:
    """Installs positions; position k is version 3 + k."""
    for position in positions:
        changes = change_at(position)
        frame = pl.DataFrame({"t": list(changes), COUNT: list(changes.values())})
        one = np.array([position], np.int64)
        order = Deliveries(("a",), one, np.zeros(1, np.int64), one + 3)
        tables.install(
            frame.with_columns(pl.lit(position, pl.Int64).alias(POSITION)),
            Standing(position, {"a": 3 + position}, {"a": (7, 30 + position)}),
            order,
        )
        tables.record(
            pl.DataFrame({"position": one, "source": ["a"], "version": one + 3}).with_columns(
                pl.lit(None, pl.Datetime("us")).alias("committed_at"),
                pl.lit(0, pl.Int64).alias("skipped"),
                pl.lit(None, pl.List(QUESTION)).alias("questions"),
                pl.lit(True).alias("shown"),
            )
        )


def anew(tables: ViewTables) -> ViewTables:
    return ViewTables(tables.directory.parent, VIEW)


def counted(frame: pl.DataFrame) -> Counted:
    return Counter(dict(frame.select("t", COUNT).iter_rows()))


def assert_right(tables: ViewTables, last: int, since: int = 0) -> None:
    """Checks all kept positions, the order of delivery, and the numbers, from another process."""
    read = anew(tables)
    assert read.standing() == Standing(last, {"a": 3 + last}, {"a": (7, 30 + last)})
    for position in {since, (since + last) // 2, last}:
        assert counted(read.at(position)) == expected(position)
    assert read.progress()["position"].to_list() == list(range(since + 1, last + 1))
    read.follow()
    assert counted(pl.read_delta(str(tables.directory / "current"))) == expected(last)


def files(tables: ViewTables, name: str) -> int:
    return len(DeltaTable(tables.directory / name).file_uris())


@pytest.fixture
def tables(tmp_path: Path) -> ViewTables:
    return made(tmp_path)


# ------------------------------------------------------------------------------ small files


def test_small_files_become_one_and_the_view_stays(tables: ViewTables) -> None:
    install(tables, *range(1, 41))
    tables.follow()
    tidy(tables)
    assert files(tables, "changes") == files(tables, "progress") == 1
    assert_right(tables, 40)
    install(tables, 41)
    assert_right(tables, 41)


def test_a_few_small_files_are_left_alone(tables: ViewTables) -> None:
    install(tables, *range(1, 11))
    tables.follow()
    before = {name: DeltaTable(tables.directory / name).version() for name in _NAMES}
    tidy(tables)
    assert before == {name: DeltaTable(tables.directory / name).version() for name in _NAMES}


_NAMES = ("changes", "current", "progress")


def test_the_log_is_summed_up_and_the_numbers_survive(tables: ViewTables) -> None:
    tables.keep_for_readers(1 / 60)
    install(tables, *range(1, 41))
    time.sleep(1.1)
    tidy(tables)
    log = tables.directory / "changes/_delta_log"
    assert len(list(log.glob("*.json"))) < 10
    assert_right(tables, 40)
    tables.catch_up()
    install(tables, 41)
    assert_right(tables, 41)


def test_files_replaced_stay_for_their_readers_and_then_go(tables: ViewTables) -> None:
    install(tables, *range(1, 41))
    reader = DeltaTable(tables.directory / "changes")
    stray = tables.directory / "changes/part-of-a-process-that-died.parquet"
    stray.write_bytes(b"PAR1")
    tidy(tables)
    assert pl.read_delta(reader).height == pl.read_delta(str(tables.directory / "changes")).height
    assert stray.exists()
    tables.keep_for_readers(1 / 60)
    time.sleep(1.1)
    install(tables, *range(41, 81))
    time.sleep(1.1)
    os.utime(stray, (0, 0))
    tables.catch_up()
    tidy(tables)
    assert not stray.exists()
    assert not any(Path(uri.removeprefix("file://")).exists() for uri in reader.file_uris())
    assert_right(tables, 80)


# ------------------------------------------------------------------------- beside a working job


def test_a_job_that_was_idle_for_long_goes_on(tables: ViewTables) -> None:
    """Its handle is older than the rest of the log."""
    tables.keep_for_readers(1 / 60)
    install(tables, *range(1, 41))
    tidy(tables)
    time.sleep(1.1)
    other = delta.table_at(tables.directory / "changes")
    assert other is not None
    for _ in range(3):
        other.alter.set_table_properties({"delta.appendOnly": "false"})
    other.create_checkpoint()
    time.sleep(1.1)
    other.alter.set_table_properties({"delta.appendOnly": "false"})
    other.create_checkpoint()
    other.cleanup_metadata()
    tables.catch_up()
    install(tables, 41)
    assert_right(tables, 41)


def test_two_who_let_current_follow_do_it_once(tables: ViewTables) -> None:
    tables.follow()
    install(tables, 1, 2)
    other = anew(tables)
    tables.follow()
    other.follow()
    install(tables, 3)
    anew(tables).follow()
    tables.follow()
    assert_right(tables, 3)


@pytest.mark.parametrize("catching_up", [False, True])
def test_upkeep_does_not_let_a_second_job_in(tables: ViewTables, catching_up: bool) -> None:
    install(tables, *range(1, 41))
    other = anew(tables)
    install(tables, 41)
    tidy(tables)
    if catching_up:
        with pytest.raises(ViewsweepError, match="another job has committed to this view"):
            other.catch_up()
    with pytest.raises(ViewsweepError, match="another job has committed to this view"):
        install(other, 41)
    tables.catch_up()
    install(tables, 42)
    assert_right(tables, 42)


def test_commits_and_upkeep_at_the_same_time_do_not_disturb_each_other(tables: ViewTables) -> None:
    said: list[str] = []
    stop = threading.Event()
    wrong: list[BaseException] = []

    def read() -> None:
        try:
            while not stop.is_set():
                reader = anew(tables)
                position = reader.standing().position
                assert counted(reader.at(position)) == expected(position)
        except BaseException as error:
            wrong.append(error)

    settings = UpkeepSettings(current_every_seconds=0.001, upkeep_every_seconds=0.001)
    reading = threading.Thread(target=read)
    reading.start()
    with Upkeep(tables, settings, said.append) as upkeep:
        for position in range(1, 201):
            install(tables, position)
            upkeep.look(quiet=False)
        assert upkeep.tidying.total > 0
        assert upkeep.following.total > 0
    stop.set()
    reading.join()
    assert not wrong
    assert not said
    tidy(tables)
    assert files(tables, "changes") < 40
    assert_right(tables, 200)


def _looks(work: Work, *quiet: bool) -> list[bool]:
    """Whether the work is due after each look."""
    seen = []
    for each in quiet:
        work.look(each)
        seen.append(work.wanted)
    return seen


def test_work_that_is_due_waits_until_it_has_been_quiet_for_four_looks() -> None:
    work = Work(lambda: None, every=1000.0)
    assert _looks(work, True, True, True, True) == [False, False, False, True]
    work()
    assert not any(_looks(work, *[True] * 10)), "it is not due again"


def test_looks_before_work_is_due_do_not_count() -> None:
    work = Work(lambda: None, every=1000.0, due=time.monotonic() + 0.05)
    assert not any(_looks(work, *[True] * 10))
    time.sleep(0.06)
    assert _looks(work, True, True, True, True) == [False, False, False, True]


def test_work_is_put_off_for_batches_but_not_for_ever() -> None:
    work = Work(lambda: None, every=1000.0)
    assert _looks(work, True, True, True, False, True, False) == [False] * 5 + [True]


@pytest.mark.parametrize(("took", "pause"), [(0.1, 1.0), (5.0, 20.0), (300.0, 60.0)])
def test_work_pauses_four_times_as_long_as_it_took_but_a_minute_at_most(
    took: float, pause: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])

    def do() -> None:
        clock[0] += took

    work = Work(do, every=1.0)
    work()
    assert work.due - clock[0] == pause


def test_what_current_cannot_follow_stops_the_job(tables: ViewTables) -> None:
    install(tables, 1)
    tables.follow()
    install(tables, 2)
    for file in (tables.directory / "changes").glob("*.parquet"):
        file.unlink()
    with (
        Upkeep(tables, UpkeepSettings(0.001), print) as upkeep,
        pytest.raises(ViewsweepError, match=r"changes/.*parquet is gone"),
    ):
        _until(upkeep.look)


def test_upkeep_that_fails_is_put_off_and_the_job_goes_on(tables: ViewTables) -> None:
    install(tables, *range(1, 41))
    tables.follow()
    broken = next((tables.directory / "progress").glob("*.parquet"))
    content = broken.read_bytes()
    broken.unlink()
    said: list[str] = []
    with Upkeep(tables, UpkeepSettings(60, 0.001), said.append) as upkeep:
        _until(upkeep.look, lambda: bool(said))
        install(tables, 41)
        upkeep.look(quiet=True)
    assert "view v: upkeep is put off" in said[0]
    assert "progress" in said[0]
    broken.write_bytes(content)
    tidy(tables)
    assert_right(tables, 41)


def _until(look: Callable[[bool], None], done: Callable[[], bool] = lambda: False) -> None:
    for _ in range(2000):
        look(True)
        if done():
            return
        time.sleep(0.01)
    raise AssertionError("it did not happen")


# ------------------------------------------------------------------------------------ history


def test_folded_positions_are_one_and_later_ones_stay(tables: ViewTables) -> None:
    install(tables, *range(1, 41))
    tables.fold(30)
    assert_right(tables, 40, since=30)
    with pytest.raises(WrongUse, match=r"position 29 is no longer known.*position 30 was folded"):
        anew(tables).at(29)
    install(tables, 41)
    tables.fold(20)
    assert anew(tables).folded() == 30
    tables.fold(35)
    assert_right(tables, 41, since=35)
    positions = anew(tables).changes().select(pl.col(POSITION).unique().sort()).collect()
    assert positions[POSITION].to_list() == list(range(35, 42))


def test_appends_come_between_reading_and_writing_of_a_fold(
    tables: ViewTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tables, *range(1, 11))
    summed = ChangesTable.summed

    def meanwhile(self: ChangesTable, changes: pl.LazyFrame, which: pl.Expr) -> pl.DataFrame:
        monkeypatch.undo()
        install(tables, 11)
        return summed(self, changes, which)

    monkeypatch.setattr(ChangesTable, "summed", meanwhile)
    tables.fold(10)
    install(tables, 12)
    assert_right(tables, 12, since=10)


def test_current_follows_over_what_was_folded_meanwhile(tables: ViewTables) -> None:
    install(tables, *range(1, 6))
    tables.follow()
    install(tables, *range(6, 21))
    tables.fold(15)
    assert_right(tables, 20, since=15)
    install(tables, 21)
    assert_right(tables, 21, since=15)


def test_what_was_installed_long_enough_ago_is_folded(tables: ViewTables) -> None:
    install(tables, *range(1, 6))
    fold_older(tables, 1.0)
    assert anew(tables).folded() == 0
    fold_older(tables, 1e-9)
    assert_right(tables, 5, since=5)


def test_a_fold_keeps_a_second_job_out(tables: ViewTables) -> None:
    install(tables, 1)
    other = anew(tables)
    install(tables, 2)
    tables.fold(1)
    with pytest.raises(ViewsweepError, match="another job has committed to this view"):
        install(other, 2)


# ------------------------------------------------------------------------------------- dying

Step = Callable[[ViewTables, int], object]


def _each(do: Callable[[ViewTables, str], object]) -> Step:
    def step(tables: ViewTables, _last: int) -> None:
        for name in _NAMES:
            do(tables, name)

    return step


STEPS: dict[str, Step] = {
    "compact": _each(lambda tables, name: compact(_table(tables, name))),
    "checkpoint": _each(lambda tables, name: _table(tables, name).create_checkpoint()),
    "clean": _each(lambda tables, name: _table(tables, name).cleanup_metadata()),
    "look after": _each(lambda tables, name: tend(_table(tables, name), tables.directory / name)),
    "fold": lambda tables, last: tables.fold(last - 5),
}


def _table(tables: ViewTables, name: str) -> DeltaTable:
    found = delta.table_at(tables.directory / name)
    assert found is not None
    return found


def work(directory: Path, step: str) -> None:
    """Runs in a separate process: commits, and between them the step, until it is killed."""
    tables = ViewTables(directory, VIEW)
    position = tables.standing().position
    print("works", flush=True)
    while True:
        install(tables, position + 1)
        position += 1
        if step == "fold" or position % 8 == 0:
            STEPS[step](tables, position)
        if position % 4 == 0:
            anew(tables).follow()


@pytest.mark.parametrize("step", STEPS)
def test_a_process_killed_in_the_middle_of_a_step_costs_nothing(
    tables: ViewTables, step: str
) -> None:
    tables.keep_for_readers(1 / 60)
    install(tables, *range(1, 36))
    tables.follow()
    for life in range(3):
        program = "from pathlib import Path; from tests.unit.warehouse.test_upkeep import work\n"
        program += f"work(Path({str(tables.directory.parent)!r}), {step!r})"
        command = [sys.executable, "-c", program]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT)
        assert process.stdout is not None
        assert process.stdout.readline() == b"works\n"
        time.sleep(random.Random(f"{step} {life}").uniform(0.05, 0.6))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        after = anew(tables)
        after.recover_progress()
        last, folded = after.standing().position, after.folded()
        assert folded == 0 or step == "fold"
        after._progress.forget_folded()
        assert_right(after, last, folded)
    tidy(after)
    assert_right(after, last, folded)


def test_no_trace_is_made_of_folded_history(tables: ViewTables, tmp_path: Path) -> None:
    """It is refused before any source or topic is asked: there are none here."""
    install(tables, 1, 2, 3)
    tables.fold(2)
    settings = ViewSettings("v", tmp_path / "v.sql", VIEW.sql, "sweep")
    nowhere = Configuration(
        tmp_path, tmp_path, Kafka("nowhere:1"), {}, {"v": settings}, JobSettings()
    )
    with pytest.raises(WrongUse, match=r"view v: .*up to position 2 was folded.*history_hours"):
        write_live_trace(nowhere, settings, tmp_path / "trace.jsonl")
    assert not (tmp_path / "trace.jsonl").exists()
