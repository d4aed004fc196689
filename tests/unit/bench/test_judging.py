"""Verdicts of the side-by-side run on right, wrong, missing and broken engines."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson
import polars as pl
import pytest

from bench.burst import Burst, BurstSettings, folded, same_rows, unfolded
from bench.engines import ENGINES, engines
from bench.engines.engine import EngineOutcome, EnginePlace
from bench.engines.inprocess import FUNCTIONS
from bench.memory import PeakMemory
from bench.sidebyside import side_by_side
from protocols.algebra.delta import COUNT
from protocols.errors import ViewsweepError, WrongUse
from tests.harness.waiting import eventually

_SMALL = BurstSettings("chain3", base_rows=600, updates=300, batch=50, states=5)


def _counted(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(pl.lit(1, pl.Int64).alias(COUNT))


def _right(burst: Burst) -> EngineOutcome:
    return EngineOutcome(2.0, burst.updates, _counted(burst.truth), peak_rss_bytes=1_000)


@dataclass(frozen=True)
class _Made:
    """An engine whose outcome comes from a function."""

    name: str
    outcome: Callable[[Burst], EngineOutcome]
    not_here: str | None = None
    about: str = "made up"

    def missing(self) -> str | None:
        return self.not_here

    def measure(self, burst: Burst, place: EnginePlace) -> EngineOutcome:
        assert not list(place.directory.iterdir())
        return self.outcome(burst)


def _rows_of(*made: _Made, repeats: int = 1) -> list[dict[str, object]]:
    found = side_by_side(made, _SMALL, repeats, lambda _: None).to_json()
    rows: list[dict[str, object]] = found["rows"]
    return rows


def test_an_engine_that_lost_a_row_is_shown_as_wrong() -> None:
    def lost(burst: Burst) -> EngineOutcome:
        return replace(_right(burst), rows=_counted(burst.truth[1:]))

    good, bad = _rows_of(_Made("good", _right), _Made("bad", lost))
    assert (good["right"], bad["right"]) == (True, False)


def test_an_engine_that_doubled_a_row_is_shown_as_wrong() -> None:
    def doubled(burst: Burst) -> EngineOutcome:
        rows = _counted(burst.truth)
        return replace(_right(burst), rows=pl.concat([rows, rows[:1]]))

    [row] = _rows_of(_Made("bad", doubled))
    assert row["right"] is False


def test_states_that_never_existed_are_counted() -> None:
    """Half of a modification: the old row is gone and the new one is still missing."""

    def torn(burst: Burst) -> EngineOutcome:
        truth = _counted(burst.truth)
        first = FUNCTIONS["alone"](burst).states[0]
        untouched = first.filter(pl.col("order_revision") == 0)
        return replace(_right(burst), states=[truth, first, untouched[1:]])

    [row] = _rows_of(_Made("torn", torn), repeats=2)
    assert (row["right"], row["wrong_states"], row["states_checked"]) == (True, 2, 6)


@pytest.mark.parametrize("view", ["outer", "full", "groups", "balance"])
def test_other_views_are_held_to_their_sql_at_every_vector(view: str) -> None:
    burst = Burst(_SMALL)
    run = FUNCTIONS[view](burst)
    sql = burst.workload.view_named(view)

    def outcome(states: list[pl.DataFrame]) -> EngineOutcome:
        assert run.rows is not None
        vectors, updates = run.vectors, run.updates or 0
        return EngineOutcome(1.0, updates, run.rows, states, sql=sql, vectors=vectors)

    assert len(run.states) > 1
    late = [run.rows, *run.states[1:]]
    good, wrong = _rows_of(
        _Made("good", lambda _: outcome(run.states)),
        _Made("late", lambda _: outcome([each for each in late if each is not None])),
    )
    assert (good["right"], good["wrong_states"]) == (True, 0)
    assert (wrong["right"], wrong["wrong_states"]) == (True, 1)


def test_an_engine_for_insertions_is_held_to_the_insertions() -> None:
    def inserts(burst: Burst) -> EngineOutcome:
        rows = _counted(burst.truth_of_inserts)
        return EngineOutcome(1.0, burst.insertions, rows, inserts_only=True)

    [row] = _rows_of(_Made("inserts", inserts))
    assert (row["right"], row["inserts_only"]) == (True, True)


def test_rates_are_medians_of_runs_that_take_turns() -> None:
    turns: list[str] = []

    def at(name: str, seconds: list[float]) -> _Made:
        def outcome(burst: Burst) -> EngineOutcome:
            turns.append(name)
            return replace(_right(burst), seconds=seconds.pop())

        return _Made(name, outcome)

    rows = _rows_of(at("a", [1.0, 30.0, 2.0]), at("b", [3.0, 3.0, 3.0]), repeats=3)
    assert [row["updates_per_s"] for row in rows] == [150.0, 100.0]
    assert "".join(turns) == "ababab"


def test_what_is_not_installed_says_how_and_what_breaks_says_why() -> None:
    def broken(_: Burst) -> EngineOutcome:
        raise ViewsweepError("it fell over")

    missing, failed = _rows_of(
        _Made("missing", broken, not_here="make peers"), _Made("broken", broken), repeats=2
    )
    assert (missing["missing"], missing["updates_per_s"]) == ("make peers", None)
    assert (failed["failure"], failed["updates_per_s"]) == ("it fell over", None)


@pytest.mark.parametrize("name", ["chain2", "chain4", "star4", "tree5"])
def test_our_engine_alone_and_recompute_arrive_at_the_truth(name: str) -> None:
    burst = Burst(replace(_SMALL, workload=name, updates=1_000))
    for function in ("alone", "recompute"):
        run = FUNCTIONS[function](burst)
        assert run.rows is not None
        assert run.states
        assert same_rows(unfolded(run.rows), burst.truth)


def test_folding_and_unfolding_keep_what_is_wrong() -> None:
    changes = pl.DataFrame({"a": [1, 1, 2, 3, 3], COUNT: [1, 1, -1, 1, -1]})
    assert folded(changes).sort("a").rows() == [(1, 2), (2, -1)]
    assert unfolded(folded(changes)).rows().count((1,)) == 2
    assert (2,) not in unfolded(folded(changes)).rows()
    assert unfolded(folded(changes)).height == 3


_HELD = 60_000_000
#: Prints the most memory that it has had itself, in kB, and ends when stdin does.
_TELLS = """
import re, sys
print(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1], flush=True)
sys.stdin.read()
"""
_HOLDS = f"held = bytearray({_HELD})" + _TELLS
_STARTS = f"""
import subprocess, sys
below = subprocess.Popen([sys.executable, "-c", {_HOLDS!r}])
{_TELLS}
below.wait()
"""


@contextmanager
def _process(program: str, tells: int = 1) -> Iterator[int]:
    """A program that runs meanwhile, and how many bytes it and what it started say they have."""
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield sum(int(process.stdout.readline()) for _ in range(tells)) * 1024
        process.communicate()


@pytest.fixture
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.memory._EVERY_SECONDS", 0.01)


@pytest.mark.usefixtures("_often")
def test_memory_is_that_of_all_processes_started_inside() -> None:
    with PeakMemory() as memory, _process(_STARTS, tells=2) as told:
        eventually(lambda: memory.bytes > _HELD, "the second process is counted")
    assert memory.bytes < told + _HELD / 2, "none is counted twice"


def test_a_child_that_has_not_become_another_program_yet_does_not_weigh() -> None:
    script = """
import os, time
from bench import memory
memory._EVERY_SECONDS, looks, descendants = 0.01, [], memory.descendants
memory.descendants = lambda *given: looks.append(given) or descendants(*given)
held = bytearray(100_000_000)
readable, writable = os.pipe()
with memory.PeakMemory() as peak:
    if not (child := os.fork()):
        os.read(readable, 1)
        os._exit(0)
    before = len(looks)
    while len(looks) < before + 3:
        time.sleep(0.01)
    os.write(writable, b"x")
    os.waitpid(child, 0)
print(peak.bytes)
"""
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
    assert int(done.stdout) == 0


@pytest.mark.usefixtures("_often")
def test_memory_of_what_ran_before_does_not_count() -> None:
    with _process(_HOLDS), PeakMemory() as memory, _process(_TELLS) as told:
        eventually(lambda: memory.bytes > 0, "the other process is counted")
    assert memory.bytes < told + _HELD / 2


def test_memory_of_one_process_is_that_of_all_below_it_too() -> None:
    hold = "held = bytearray(60_000_000); print(flush=True); input()"
    start = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {hold!r}])"
    command = [sys.executable, "-c", start]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with PeakMemory(process.pid) as memory:
            subprocess.run([sys.executable, "-c", "held = bytearray(200_000_000)"], check=True)
        process.communicate(b"\n")
    assert 60_000_000 < memory.bytes < 150_000_000


def test_engines_are_chosen_by_name() -> None:
    assert [engine.name for engine in engines(["limit", "viewsweep"])] == ["limit", "viewsweep"]
    assert len(engines(None)) == len(ENGINES) == len({engine.name for engine in ENGINES})
    with pytest.raises(WrongUse, match=r"there are: viewsweep, .*, viewsweep-engine, .*, limit"):
        engines(["fling"])


def test_a_workload_that_is_not_for_measurements_is_refused() -> None:
    with pytest.raises(WrongUse, match=r"chain2 … chain8"):
        Burst(replace(_SMALL, workload="retail"))


def test_the_command_prints_what_programs_read_and_draws(tmp_path: Path) -> None:
    chosen = "viewsweep-engine,limit,duckdb-recompute,viewsweep-engine-groups"
    command = [sys.executable, "-m", "cli.main", "bench", "--json", "--engines"]
    plot = tmp_path / "bench.svg"
    options = ["--base-rows", "2000", "--updates", "400", "--repeats", "1", "--plot", str(plot)]
    done = subprocess.run([*command, chosen, *options], capture_output=True, check=True)
    report = orjson.loads(done.stdout)
    assert report["settings"]["base_rows"] == 2000
    assert report["settings"]["updates"] == 400
    assert [row["engine"] for row in report["rows"]] == chosen.split(",")
    for row in report["rows"]:
        assert {"p50_ms", "wrong_states", "states_checked", "peak_rss_bytes"} <= set(row)
        assert row["updates_per_s"] > 0
    ours, limit, recompute, groups = report["rows"]
    assert (ours["right"], ours["wrong_states"], ours["base_rows_kept"]) == (True, 0, 0)
    assert (limit["right"], limit["states_checked"]) == (None, None)
    assert recompute["base_rows_kept"] > 2000
    assert b"run 1 of 1" in done.stderr
    assert _drawn_in(plot) == {row["engine"]: row["updates_per_s"] for row in report["rows"][:3]}
    variants = {row["engine"]: row["updates_per_s"] for row in (ours, groups)}
    assert _drawn_in(tmp_path / "bench-variants.svg") == variants


def _drawn_in(picture: Path) -> dict[str, Any]:
    """Each engine of the picture with the value beside which it stands."""
    labels = re.findall(r'aria-label="value: (.+?); name: (.+?);', picture.read_text())
    return {name: pytest.approx(float(value.replace(",", "")), abs=0.01) for value, name in labels}
