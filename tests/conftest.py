"""Shared by all tests: the order of the files, a table of the planted defects, and the end of the
test process.
"""

import gc
import os
import re
import sys
from pathlib import Path

import pytest

_TESTS = Path(__file__).parent
#: The slowest files, in the order in which they begin. An idle process takes the next file
#: (`--dist loadfile`), so a slow file at the end would run while the other processes are idle.
#: After the very slowest, files that wait for processes and Spark alternate with files that
#: compute: only waiting ones would leave the cores idle, only computing ones compete for them.
_FIRST = (
    "integration/system/test_live_crashes.py",
    "integration/bench/test_bench.py",
    "conformance/test_broken.py",
    "simulation/test_planted_defects.py",
    "integration/system/test_live_run.py",
    "integration/bench/test_hostile.py",
    "integration/page/test_browser.py",
    "integration/system/test_large_transaction.py",
    "property/test_self_maintenance.py",
    "conformance/test_postgres.py",
    "conformance/test_mariadb.py",
    "integration/mariadb/test_mariadb_live.py",
    "simulation/test_views_random.py",
    "integration/streaming/test_bad_input.py",
    "simulation/test_views_planted_defects.py",
    "integration/streaming/test_views_that_fail.py",
    "conformance/test_simulated.py",
    "property/test_minimal_auxiliary_views.py",
    "integration/streaming/test_executors.py",
    "property/test_envelope_round_trip.py",
    "integration/postgres/test_postgres_live.py",
    "simulation/test_copies.py",
    "integration/streaming/test_protocols_live.py",
    "unit/protocols/explaining/test_costs.py",
    "integration/streaming/test_job_batches.py",
    "integration/streaming/test_topics_replaced.py",
    "integration/streaming/test_guarded_kafka.py",
    "simulation/test_sweep_schedules.py",
    "integration/streaming/test_stopping.py",
    "integration/sources/test_source_process.py",
    "unit/protocols/explaining/test_asks.py",
    "integration/streaming/test_outer_views_live.py",
    "simulation/test_strobe_family.py",
    "integration/infra/test_broker.py",
    "integration/postgres/test_postgres_commands.py",
    "integration/streaming/test_several_partitions.py",
    "integration/system/test_demo_over_databases.py",
    "simulation/test_simulate_exhaustive.py",
    "integration/streaming/test_spark_ends.py",
    "unit/protocols/algebra/test_work_of_conditions.py",
    "unit/bench/test_curves.py",
)
#: After these, and before all others.
_SLOW_FOLDERS = ("integration", "conformance", "simulation", "property")
_CAUGHT = re.compile(r"caught in run (\d+)")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow files first; with `--no-loadscope-reorder` xdist hands them out in this order."""
    if missing := [file for file in _FIRST if not (_TESTS / file).exists()]:
        raise pytest.UsageError(f"tests/conftest.py names files that are not there: {missing}")
    items.sort(key=_turn)


def pytest_collection_finish() -> None:
    """What is loaded by now stays, so the garbage collector need not look at it again and again."""
    gc.collect()
    gc.freeze()


def _turn(item: pytest.Item) -> int:
    file = item.path.relative_to(_TESTS)
    if file.as_posix() in _FIRST:
        return _FIRST.index(file.as_posix())
    folder = file.parts[0]
    later = _SLOW_FOLDERS.index(folder) if folder in _SLOW_FOLDERS else len(_SLOW_FOLDERS)
    return len(_FIRST) + later


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints how many runs each campaign needed to find its planted defect."""
    found: dict[str, list[int]] = {}
    for report in terminalreporter.stats.get("passed", ()):
        runs = [int(run) for _, text in report.sections for run in _CAUGHT.findall(text)]
        if runs:
            found[report.nodeid.rpartition("::")[2]] = runs
    if not found:
        return
    terminalreporter.section("planted defects, and the run that caught them", "-")
    for test, runs in sorted(found.items(), key=lambda each: max(each[1])):
        name = test.removeprefix("test_").replace("_", " ").replace(" is caught", "")
        terminalreporter.write_line(f"{max(runs):6}  {name}")


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Ends without Python's teardown, where DuckDB's binding reports leaks that are not ours, in
    forty lines after the test result.
    """
    status = getattr(config, "_viewsweep_status", None)
    if status is not None:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    session.config._viewsweep_status = int(exitstatus)  # type: ignore[attr-defined]
