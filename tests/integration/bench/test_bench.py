"""`viewsweep bench` with everything real: our whole path, and engines fed from topics.

One run with one repeat serves most tests, since most of its time is the start of processes.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from bench.burst import BurstSettings
from bench.engines import engines
from bench.sidebyside import side_by_side
from infra.broker import BROKER_VARIABLE
from infra.localbroker import LocalBroker

_PEERS = ("pathway", "flink")


def _bench(broker: LocalBroker, *options: str) -> tuple[int, dict[str, Any]]:
    command = [sys.executable, "-m", "cli.main", "bench", "--json"]
    sizes = ["--base-rows", "1200", "--updates", "400", "--repeats", "1"]
    environment = {**os.environ, BROKER_VARIABLE: broker.bootstrap}
    done = subprocess.run([*command, *sizes, *options], capture_output=True, env=environment)
    assert done.stdout, done.stderr.decode()
    return done.returncode, orjson.loads(done.stdout)


@pytest.fixture(scope="module")
def rows(broker: LocalBroker) -> dict[str, dict[str, Any]]:
    """The report of each engine; of the peers, those that are installed here."""
    names = ["viewsweep", "dictionaries", "spark-join", *_PEERS]
    code, report = _bench(broker, "--engines", ",".join(names))
    assert code == 0
    return {row["engine"]: row for row in report["rows"]}


def test_the_whole_path_is_right_and_copies_nothing(rows: dict[str, dict[str, Any]]) -> None:
    row = rows["viewsweep"]
    assert row["failure"] is None
    assert (row["right"], row["wrong_states"], row["base_rows_kept"]) == (True, 0, 0)
    assert row["states_checked"] == 20
    assert row["updates_per_s"] > 0
    # It covers the job with Spark, and the sources.
    assert row["peak_rss_bytes"] > 300_000_000
    assert row["step_seconds"]


def test_engines_over_topics_arrive_at_the_same_truth(rows: dict[str, dict[str, Any]]) -> None:
    here = [e.name for e in engines(["dictionaries", *_PEERS]) if not e.missing()]
    for name in here:
        row = rows[name]
        assert row["failure"] is None
        assert row["right"], name
        assert row["base_rows_kept"] > 1200
        if name != "flink":
            assert (row["wrong_states"], row["states_checked"]) == (0, 20)


def test_sparks_own_join_has_the_insertions_right(rows: dict[str, dict[str, Any]]) -> None:
    row = rows["spark-join"]
    assert row["failure"] is None
    assert (row["right"], row["inserts_only"], row["wrong_states"]) == (True, True, None)


def test_at_a_rate_the_freshness_of_every_warm_update_counts(broker: LocalBroker) -> None:
    # The first ten seconds are the warm-up.
    code, report = _bench(broker, "--rate", "20", "--seconds", "14")
    [row] = report["rows"]
    assert (code, row["failure"]) == (0, None)
    assert (row["right"], row["wrong_states"]) == (True, 0)
    assert report["settings"]["updates"] == 280
    assert 0 < row["p50_ms"] <= row["p99_ms"]


def test_what_is_not_installed_is_said_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VIEWSWEEP_PEERS", str(tmp_path))
    small = BurstSettings("chain3", base_rows=600, updates=300)
    report = side_by_side(engines(list(_PEERS)), small, 1, lambda _: None).to_json()
    for row in report["rows"]:
        assert (row["missing"], row["updates_per_s"]) == ("make peers", None)
