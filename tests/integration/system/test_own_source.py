"""The source of docs/sources.md, written over SQLite, under a view that joins it with itself.

It shares no code with ours, so it shows what another source needs to implement.
"""

import json
import random
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from infra.localbroker import LOOPBACK, LocalBroker, free_port
from sources.wire.client import SourceClient
from tests.harness.places import ROOT
from tests.harness.waiting import eventually, patience

_SQL = """
SELECT i.id, i.name, j.id AS other, i.price
FROM shop.item i JOIN shop.item j ON i.price = j.price
WHERE i.id <> j.id AND (i.name = 'pen' OR NOT i.price < 3)
"""
_CONFIGURATION = """
[warehouse]
path = "lake"
[kafka]
bootstrap = "{bootstrap}"
[sources.shop]
address = "grpc://127.0.0.1:{port}"
[views.pairs]
sql = "pairs.sql"
[job]
page_rows = 20
"""


class Shop:
    """The example as a process, in a separate directory."""

    def __init__(self, directory: Path, bootstrap: str) -> None:
        self.directory = directory
        port = free_port()
        self._address = f"grpc://{LOOPBACK}:{port}"
        (directory / "pairs.sql").write_text(_SQL)
        text = _CONFIGURATION.format(bootstrap=bootstrap, port=port)
        (directory / "warehouse.toml").write_text(text)
        example = ROOT / "examples" / "sqlite_source.py"
        command = f"{example} shop.sqlite --broker {bootstrap} --port {port}"
        self.process = subprocess.Popen(
            [sys.executable, *command.split()],
            cwd=directory,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        assert "answers at" in self.process.stdout.readline()

    def commit(self, dice: random.Random, transactions: int) -> None:
        """Puts and deletes rows of few ids and fewer prices, so that many join and change.

        When it returns, the commits are in the topic.
        """
        assert self.process.stdin is not None
        before = self.version
        for _ in range(transactions):
            id_, name = dice.randint(1, 60), dice.choice(["pen", "ink"])
            line = f"put {id_} {name} {dice.randint(1, 9)}" if dice.random() < 0.7 else f"del {id_}"
            self.process.stdin.write(line + "\n")
        # All are done when the last line is: its row has a unique price.
        price = 1000 + before
        self.process.stdin.write(f"put 99 end {price}\n")
        self.process.stdin.flush()
        count = f"SELECT count(*) FROM item WHERE price = {price}"
        eventually(lambda: self._select(count) == [(1,)], "the shop commits")
        with SourceClient(self._address) as client:
            eventually(lambda: client.status()["published"] == self.version, "the shop publishes")

    @property
    def version(self) -> int:
        [(version,)] = self._select("SELECT coalesce(max(version), 0) FROM outbox")
        return int(version)

    def truth(self) -> Counter[tuple[object, ...]]:
        """The view as SQLite evaluates it."""
        return Counter(self._select(_SQL.replace("shop.", "")))

    def _select(self, sql: str) -> list[tuple[Any, ...]]:
        database = sqlite3.connect(self.directory / "shop.sqlite")
        try:
            return database.execute(sql).fetchall()
        finally:
            database.close()

    def viewsweep(self, command: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "cli.main", *command.split()],
            cwd=self.directory,
            capture_output=True,
            text=True,
            timeout=patience(),
        )

    def position_after_commits(self, dice: random.Random) -> int:
        """The position of the view after a few more commits."""
        self.commit(dice, 5)
        changes = pl.scan_delta(str(self.directory / "lake/pairs/changes"))
        return int(changes.select(pl.col("_position").max()).collect().item())

    def shown(self) -> Counter[tuple[object, ...]]:
        rows = pl.read_delta(str(self.directory / "lake/pairs/current"))
        counts = rows.get_column("_count").to_list()
        return Counter(dict(zip(rows.drop("_count").rows(), counts, strict=True)))


@pytest.fixture
def shop(broker: LocalBroker, tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(tmp_path, broker.bootstrap)
    yield shop
    shop.process.kill()
    shop.process.communicate()


def test_a_source_written_from_the_page_alone_is_kept_completely(shop: Shop) -> None:
    dice = random.Random(3)
    shop.commit(dice, 200)
    made = shop.viewsweep("run --once")
    assert made.returncode == 0, made.stderr
    assert shop.shown() == shop.truth()

    with subprocess.Popen(
        [sys.executable, "-m", "cli.main", "run"],
        cwd=shop.directory,
        stderr=subprocess.DEVNULL,
    ) as job:
        eventually(lambda: shop.position_after_commits(dice) > 150, "the job is at work")
        eventually(lambda: shop.shown() == shop.truth(), "the view follows")
        job.terminate()
        assert job.wait(patience()) == 0

    assert shop.viewsweep("trace run.jsonl").returncode == 0
    judged = shop.viewsweep("check run.jsonl --json")
    verdict = json.loads(judged.stdout)
    assert judged.returncode == 0, verdict
    assert verdict["reached"] == "complete-in-delivery-order"
    assert verdict["counts"]["compensated"] > 0
