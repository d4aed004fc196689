"""One thread touches the protocols' state, also under real Spark, and each table has one thread."""

import random
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from streaming.settings.configuration import read_configuration
from tests.harness.places import ROOT
from tests.harness.waiting import eventually, patience
from tests.harness.world import OneView, World, start
from warehouse.changes import ChangesTable
from warehouse.current import CurrentTable
from warehouse.progress import ProgressTable

#: `viewsweep run`, which prints the thread of each step over all views.
_NOTING = """
import sys, threading
from cli import main
from streaming.job.running import Running

def noting(name, step):
    def noted(self, *arguments):
        print("thread", threading.current_thread().name, name, file=sys.stderr)
        return step(self, *arguments)
    return noted

for name in ("process", "tend", "finish"):
    setattr(Running, name, noting(name, getattr(Running, name)))
main.main()
"""


def test_batches_of_spark_and_the_work_between_them_are_one_threads(world: World) -> None:
    file = world.write_configuration()
    with world.job() as job:
        job.check()
        job.prepare()
    world.sources["a"].commit(("r", (101, 1, "p"), 1))
    world.wait_until_published()
    command = [sys.executable, "-c", _NOTING, "run", "--once", "--config", str(file)]
    ended = subprocess.run(
        command, cwd=ROOT, stderr=subprocess.PIPE, text=True, timeout=patience(), check=False
    )
    assert ended.returncode == 0, ended.stderr
    noted = [line.split() for line in ended.stderr.splitlines() if line.startswith("thread ")]
    assert {step for *_, step in noted} == {"process", "tend", "finish"}
    assert {" ".join(thread) for _, *thread, _ in noted} == {"job"}
    with world.job() as job:
        job.check()
        world.assert_complete(job.tables)


_TABLES = {ChangesTable: "changes", ProgressTable: "progress", CurrentTable: "current"}


def test_each_table_of_each_view_is_written_by_one_thread(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = read_configuration(world.write_configuration())
    views = [replace(known.view("v"), name=name) for name in ("one", "two")]
    with closing(OneView(known, views, world.reports.append)) as job:
        start(job)
        wrote = {
            f"{_TABLES[table]} of {name}": set[str]()
            for table in _TABLES
            for name in ("one", "two")
        }

        def noting(step: Callable[..., Any]) -> Callable[..., Any]:
            def noted(table: ChangesTable | ProgressTable | CurrentTable, *arguments: Any) -> Any:
                name = f"{_TABLES[type(table)]} of {table.path.parent.name}"
                wrote[name].add(threading.current_thread().name)
                return step(table, *arguments)

            return noted

        for step in ("commit", "catch_up"):
            monkeypatch.setattr(ChangesTable, step, noting(getattr(ChangesTable, step)))
        for step in ("record", "catch_up"):
            monkeypatch.setattr(ProgressTable, step, noting(getattr(ProgressTable, step)))
        monkeypatch.setattr(CurrentTable, "follow", noting(CurrentTable.follow))
        for seed in range(3):
            world.commit_at_random(random.Random(seed), 6)
            world.wait_until_published()
            job.take(world.records_after(job))
            eventually(lambda: _followed(job))
        job.running.finish()
        monkeypatch.undo()
        for view in job.views:
            world.assert_complete(view.tables)
    assert wrote == {
        f"{table} of {name}": {f"{thread} of {name}"}
        for table, thread in (
            ("changes", "commits"),
            ("progress", "commits"),
            ("current", "upkeep"),
        )
        for name in ("one", "two")
    }


def _followed(job: OneView) -> bool:
    job.running.tend()
    job.running.settle()
    return all(view.tables.followed() == view.standing.position for view in job.views)
