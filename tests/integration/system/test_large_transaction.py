"""One transaction of a million rows, from a source's file to the view, by the command line alone.

Each part is a separate process, so that its memory can be measured.
"""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import psutil

from infra.localbroker import LocalBroker
from sources.wire.client import SourceClient
from tests.harness.places import ROOT
from tests.harness.waiting import patience

ROWS = 1_000_000
#: Memory that the publisher may need beyond that at its start: about 110 MB were measured, and the
#: records of the transaction are 250 MB.
PUBLISHING_MEGABYTES = 200


def viewsweep(*arguments: object) -> None:
    command = [sys.executable, "-m", "cli.main", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=patience(), check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


@contextlib.contextmanager
def serving(database: Path, bootstrap: str) -> Iterator[tuple[SourceClient, int]]:
    address = database.with_suffix(".address")
    arguments = [
        "sources",
        "serve",
        database,
        "--broker",
        bootstrap,
        "--topic",
        database.parent.name,
    ]
    with subprocess.Popen(
        [
            *(sys.executable, "-m", "cli.main"),
            *(*map(str, arguments), "--address-file", str(address)),
        ],
        stdout=subprocess.DEVNULL,
        cwd=ROOT,
    ) as process:
        while not address.exists():
            assert process.poll() is None
            time.sleep(0.05)
        with SourceClient(address.read_text()) as client:
            yield client, process.pid
        process.terminate()


def megabytes(pid: int) -> int:
    """The resident memory of a process."""
    return psutil.Process(pid).memory_info().rss // 2**20


def wait_until_published(client: SourceClient, pid: int, version: int) -> int:
    """Waits, and returns the largest memory seen meanwhile."""
    until, most = time.monotonic() + patience(), 0
    while client.status()["published"] < version:
        assert time.monotonic() < until, "it was not published"
        most = max(most, megabytes(pid))
        time.sleep(0.02)
    return most


def configure(directory: Path, client: SourceClient, bootstrap: str) -> Path:
    (directory / "v.sql").write_text("SELECT id, x FROM s.item WHERE x < 9")
    file = directory / "warehouse.toml"
    file.write_text(
        f'[warehouse]\npath = "lake"\n[kafka]\nbootstrap = "{bootstrap}"\n[sources.s]\n'
        f'address = "{client.address}"\ntopic = "{directory.name}"\n[views.v]\nsql = "v.sql"\n'
    )
    return file


def commit_a_million_rows(database: Path) -> None:
    file = database.with_suffix(".json")
    changes = [{"relation": "item", "row": [n, n % 10], "count": 1} for n in range(1, ROWS + 1)]
    file.write_text(json.dumps({"changes": changes}))
    viewsweep("sources", "apply", file, "--database", database)


def test_a_transaction_of_a_million_rows_is_published_in_bounded_memory_and_installed(
    tmp_path: Path, broker: LocalBroker
) -> None:
    database, items = tmp_path / "s.db", tmp_path / "item.csv"
    items.write_text("id,x\n0,0\n")
    viewsweep(
        "sources", "init", database, "--source=s", f"--relation=item={items}", "--key=item=id"
    )
    with serving(database, broker.bootstrap) as (client, _):
        config = configure(tmp_path, client, broker.bootstrap)
        viewsweep("run", "--config", config, "--once")
    (tmp_path / "s.address").unlink()
    commit_a_million_rows(database)
    with serving(database, broker.bootstrap) as (client, pid):
        before = megabytes(pid)
        most = wait_until_published(client, pid, 1)
        configure(tmp_path, client, broker.bootstrap)
        viewsweep("run", "--config", config, "--once")
    print(f"publishing: {before} MB when ready, {most} MB at most")
    assert most - before < PUBLISHING_MEGABYTES
    view = pl.read_delta(str(tmp_path / "lake" / "v" / "current"))
    assert view.height == ROWS * 9 // 10 + 1
    assert pl.read_delta(str(tmp_path / "lake" / "v" / "progress")).height == 1
