"""`viewsweep sources …` as a user runs it: processes, files, a broker and kill -9."""

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any
from unittest import mock

import orjson
import polars as pl
from typer.testing import CliRunner

from cli.sources import app
from infra.localbroker import LocalBroker, free_port
from protocols.errors import WrongUse
from protocols.exchange.questions import Query
from sources.simulated.database import SourceDatabase
from sources.simulated.workloads import WORKLOADS
from sources.wire.client import SourceClient
from tests.harness.places import ROOT
from tests.harness.running import ran
from tests.harness.waiting import eventually, patience

with warnings.catch_warnings():
    # kafka-python reads the files of its protocol with importlib.resources.read_text.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, TopicPartition

COMMAND = [sys.executable, "-m", "cli.main", "sources"]


def run(*arguments: object) -> "subprocess.CompletedProcess[str]":
    """A command that ends by itself, in this process; `serve` gets one in any case."""
    if arguments[0] == "serve":
        return process(*arguments)
    with mock.patch.dict(os.environ, COLUMNS="200"):
        return ran(["sources", *arguments], ROOT)


def process(*arguments: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=patience(),
        env={**os.environ, "COLUMNS": "200"},
    )


Way = Callable[..., "subprocess.CompletedProcess[str]"]


def done(*arguments: object, way: Way = run) -> str:
    result = way(*arguments)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def refused(*arguments: object, code: int = 2, way: Way = run) -> str:
    result = way(*arguments)
    assert result.returncode == code, result.stdout + result.stderr
    assert "Traceback" not in result.stderr
    return result.stderr


class Serving:
    """A `sources serve` process; its output goes to a file."""

    def __init__(self, database: Path, *arguments: object) -> None:
        self.address_file = database.with_suffix(".address")
        self.log = database.with_suffix(".log")
        self.address_file.unlink(missing_ok=True)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *(*COMMAND, "serve", str(database), "--address-file", str(self.address_file)),
                    *map(str, arguments),
                ],
                stdout=log,
                stderr=log,
                cwd=ROOT,
            )

    def __enter__(self) -> "Serving":
        eventually(lambda: self.address_file.exists() or self.ended, "it never got ready")
        assert not self.ended, self.said
        self.client = SourceClient(self.address_file.read_text())
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        if not self.ended:
            self.stop()

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    @property
    def said(self) -> str:
        return self.log.read_text()

    def status(self, name: str) -> Any:
        return self.client.status()[name]

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(patience())


def made(directory: Path, source: str = "sales", workload: str = "retail", way: Way = run) -> Path:
    database = directory / f"{source}.db"
    filled = ("--workload", workload, "--scale", 50, "--seed", 3)
    done("init", database, "--source", source, *filled, way=way)
    return database


def published(broker: LocalBroker, topic: str) -> list[Any]:
    """The contents of the topic, read with another Kafka client, without repetitions."""
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, consumer_timeout_ms=20_000)
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    end = consumer.end_offsets([partition])[partition]
    records: dict[tuple[int, int], Any] = {}
    while consumer.position(partition) < end:
        for message in next(iter(consumer.poll(1000).values()), []):
            record = orjson.loads(message.value)
            place = record["source"]["version"], record["transaction"]["total_order"]
            if place not in records:
                assert not records or place > max(records), "something was skipped, then sent"
            records.setdefault(place, record)
    consumer.close()
    return [records[place] for place in sorted(records)]


def check_that_topic_and_rows_agree(
    database: Path, broker: LocalBroker, topic: str, transactions: int
) -> None:
    """Checks that the topic holds the outbox, and that initial rows plus workload give the rows."""
    with SourceDatabase.open(database) as source:
        assert (source.version, source.published) == (transactions, transactions)
        outbox = [orjson.loads(record) for _, record in source.outbox(0, 10**9)]
        [relation] = source.catalog
        with source.snapshot() as (cursor, _):
            rows = Counter(cursor.execute(f"SELECT * FROM relations.{relation.name}").fetchall())
    assert published(broker, topic) == outbox
    workload = WORKLOADS["retail"].source("sales", 50, 3)
    expected = Counter(workload.initial_rows()[relation.name].rows())
    for transaction in islice(workload.transactions(), transactions):
        for change in transaction.changes:
            expected[change.row] += change.count
    assert +expected == rows


def test_a_workload_is_committed_published_and_served_and_the_source_stays(
    tmp_path: Path, broker: LocalBroker, topic: str
) -> None:
    database = made(tmp_path, way=process)
    options = ("--broker", broker.bootstrap, "--topic", topic, "--workload", "retail")
    with Serving(database, *options, "--rate", 200, "--transactions", 300) as serving:
        eventually(lambda: serving.status("published") == 300, serving.said)
        relation = next(iter(serving.client.relations().values()))
        answer = serving.client.ask(Query(relation, relation.column_names))
        assert answer.inclusion.version == 300
        assert answer.rows.data.height > 0
        said = refused("status", "--database", database, way=process)
        assert said.count("in use by another process") == 1
        by_address = ("status", "--address", serving.client.address, "--json")
        shown = json.loads(done(*by_address, way=process))
        assert (shown["version"], shown["published"], shown["topic"]) == (300, 300, topic)
        assert serving.stop() == 0
    assert f"ready at {serving.client.address}" in serving.said
    assert "the workload is done; questions are still answered" in serving.said
    assert "stopped at version 300" in serving.said
    assert "leaked" not in serving.said
    assert "Traceback" not in serving.said
    check_that_topic_and_rows_agree(database, broker, topic, 300)


def test_after_each_kill_9_the_workload_goes_on_where_it_was(
    tmp_path: Path, broker: LocalBroker, topic: str
) -> None:
    database = made(tmp_path)
    options = ("--broker", broker.bootstrap, "--topic", topic, "--workload", "retail")
    versions = [0]
    for delay in (0.3, 0.7, 0.1, 0.5, 0.9):
        with Serving(database, *options, "--rate", 100, "--transactions", 1000) as serving:
            # The first transaction is committed, then the process dies at some moment.
            eventually(lambda: serving.status("version") > versions[-1], serving.said)
            time.sleep(delay)
            versions.append(serving.status("version"))
            serving.stop(signal.SIGKILL)
    assert versions == sorted(set(versions))
    with Serving(database, *options, "--rate", 1000, "--transactions", 1000) as serving:
        eventually(lambda: serving.status("published") == 1000, serving.said)
        assert serving.stop(signal.SIGINT) == 0
    check_that_topic_and_rows_agree(database, broker, topic, 1000)


def test_a_dead_broker_stops_neither_commits_nor_answers(tmp_path: Path) -> None:
    database = made(tmp_path)
    with LocalBroker(port=free_port()) as broker:
        broker.kill()
        options = ("--broker", broker.bootstrap, "--workload", "retail")
        with Serving(database, *options, "--rate", 200, "--transactions", 200) as serving:
            eventually(lambda: serving.status("version") == 200, serving.said)
            eventually(lambda: "cannot publish" in serving.said, "nothing is said about it")
            assert serving.status("published") == 0
            broker.start()
            eventually(lambda: serving.status("published") == 200, serving.said)
            assert serving.stop() == 0
        check_that_topic_and_rows_agree(database, broker, "sales", 200)


def test_without_its_broker_it_stops_as_well_and_says_what_is_left(tmp_path: Path) -> None:
    database = made(tmp_path)
    nobody = f"127.0.0.1:{free_port()}"
    options = ("--broker", nobody, "--workload", "retail", "--rate", 200, "--transactions", 7)
    with Serving(database, *options) as serving:
        eventually(lambda: serving.status("version") == 7, serving.said)
        assert serving.stop() == 0
    assert "stopped at version 7, 7 to be published after the next start" in serving.said


def test_a_workload_begins_when_the_file_that_it_waits_for_is_there(tmp_path: Path) -> None:
    begin = tmp_path / "begin"
    nobody = f"127.0.0.1:{free_port()}"
    options = ("--broker", nobody, "--workload", "retail", "--rate", 200, "--after", begin)
    with Serving(made(tmp_path), *options) as serving:
        assert serving.status("version") == 0
        begin.touch()
        eventually(lambda: serving.status("version") > 0, serving.said)


def test_a_broker_that_refuses_the_topic_for_good_ends_the_process(
    tmp_path: Path, broker: LocalBroker
) -> None:
    with Serving(made(tmp_path), "--broker", broker.bootstrap, "--topic", "no/topic") as serving:
        eventually(lambda: serving.ended, serving.said)
        assert serving.process.returncode == 2
        assert "no/topic" in serving.said


# ------------------------------------------------------------------------ init, apply, status


def files(directory: Path) -> tuple[Path, Path]:
    items = directory / "items.csv"
    items.write_text("id,name,price,day\n1,pen,1.5,2024-01-01\n2,,2,2024-01-02\n")
    lines = directory / "lines.parquet"
    narrow = pl.Series("order", [1, 1], dtype=pl.Int16)
    pl.DataFrame([narrow, pl.Series("item", [2, 2])]).write_parquet(lines)
    return items, lines


def from_files(directory: Path) -> Path:
    items, lines = files(directory)
    database = directory / "shop.db"
    relations = ("--relation", f"item={items}", "--relation", f"line={lines}")
    said = done("init", database, "--source", "shop", *relations, "--key", "item=id")
    assert "item (2 rows), line (2 rows)" in said
    return database


def test_files_become_relations_with_their_types(tmp_path: Path) -> None:
    shown = json.loads(done("status", "--database", from_files(tmp_path), "--json"))
    assert shown["relations"] == {
        "item": {
            "columns": {"id": "BIGINT", "name": "VARCHAR", "price": "DOUBLE", "day": "DATE"},
            "key": ["id"],
        },
        "line": {"columns": {"order": "BIGINT", "item": "BIGINT"}},
    }
    assert shown["indexes"] == {"item": [], "line": []}
    readable = done("status", "--database", tmp_path / "shop.db")
    assert "source shop: version 0, published 0" in readable
    assert "item (id BIGINT, name VARCHAR, price DOUBLE, day DATE), key id" in readable


def test_indexes_are_made_where_they_are_wanted_and_shown(tmp_path: Path) -> None:
    items, lines = files(tmp_path)
    relations = ("--relation", f"item={items}", "--relation", f"line={lines}")
    database = tmp_path / "shop.db"
    indexes = ("--index", "line=item,order", "--index", "item=id")
    done("init", database, "--source", "shop", *relations, *indexes)
    shown = json.loads(done("status", "--database", database, "--json"))
    assert shown["indexes"] == {"item": ["id"], "line": ["order", "item"]}
    readable = done("status", "--database", database)
    assert "line (order BIGINT, item BIGINT), no key, index on order, index on item" in readable
    retail = tmp_path / "sales.db"
    done("init", retail, "--source", "sales", "--workload", "retail", "--index", "orders=id")
    assert json.loads(done("status", "--database", retail, "--json"))["indexes"] == {
        "orders": ["id"]
    }


def change(relation: str, row: list[Any], count: int) -> dict[str, Any]:
    return {"changes": [{"relation": relation, "row": row, "count": count}]}


def transactions(directory: Path, *forms: Any) -> Path:
    file = directory / "transactions.jsonl"
    file.write_text("\n".join(json.dumps(form) for form in forms))
    return file


CUP = ["cup", 9.25, "2024-02-29"]


def test_transactions_of_a_file_are_applied_in_either_form(tmp_path: Path) -> None:
    database = from_files(tmp_path)
    forms = [change("item", [3, *CUP], 1), change("line", [1, 2], -2), change("line", [7, 7], 3)]
    lines = transactions(tmp_path, *forms)
    said = done("apply", lines, "--database", database)
    assert "3 transactions committed, the source is at version 3" in said
    array = tmp_path / "array.json"
    array.write_text(json.dumps([change("item", [3, *CUP], -1)], indent=2))
    assert "version 4" in done("apply", array, "--database", database)


def test_apply_stops_at_the_first_transaction_refused_and_says_how_far_it_got(
    tmp_path: Path,
) -> None:
    database = from_files(tmp_path)
    good = [change("item", [10 + n, *CUP], 1) for n in range(3)]
    file = transactions(tmp_path, *good, change("item", [10, *CUP], 1), change("line", [0, 0], 1))
    said = refused("apply", file, "--database", database)
    assert "transaction 3 was refused" in said
    assert "a row with this key" in said
    assert "The 3 before it are committed; the source is at version 3" in said
    nobody = f"127.0.0.1:{free_port()}"
    with Serving(database, "--broker", nobody) as serving:
        again = transactions(tmp_path, change("line", [0, 0], 1), change("line", [9, 9], -1))
        said = refused("apply", again, "--address", serving.client.address, way=process)
        assert "transaction 1 was refused" in said
        assert "The one before it is committed; the source is at version 4" in said


def test_a_file_that_cannot_be_read_is_refused_before_anything_is_committed(
    tmp_path: Path,
) -> None:
    database = from_files(tmp_path)
    file = transactions(tmp_path, change("line", [0, 0], 1), change("line", [1, "2"], 1))
    said = refused("apply", file, "--database", database)
    assert f"{file}, line 2, change 0: relation shop.line, column item: '2' is not a BIGINT" in said
    assert json.loads(done("status", "--database", database, "--json"))["version"] == 0


def test_what_cannot_be_made_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    items, lines = files(tmp_path)
    odd = tmp_path / "odd.parquet"
    pl.DataFrame({"id": [1], "tags": [["a"]]}).write_parquet(odd)
    (tmp_path / "broken.parquet").write_text("no parquet")
    database = tmp_path / "shop.db"

    def init(*arguments: object) -> str:
        command = ["init", str(database), "--source", "shop", *map(str, arguments)]
        result = CliRunner().invoke(app, command)
        assert isinstance(result.exception, WrongUse)
        assert not database.exists()
        return str(result.exception)

    assert "give either --workload or at least one --relation" in init()
    assert "there is no workload 'retial'; choose one of: retail, bank" in init(
        "--workload", "retial"
    )
    assert "has no source 'shop'" in init("--workload", "retail")
    assert "needs the form name=value" in init("--relation", items)
    assert "there is no such file" in init("--relation", "x=none.csv")
    assert "the name must end in one of" in init("--relation", f"x={ROOT / 'README.md'}")
    assert "cannot be read" in init("--relation", f"x={tmp_path / 'broken.parquet'}")
    assert "column 'tags' is VARCHAR[], which is not supported" in init("--relation", f"x={odd}")
    keyed = ("--relation", f"line={lines}", "--key")
    assert "2 initial rows have the same key" in init(*keyed, "line=order")
    assert "key column 'zz' is not among its columns" in init(*keyed, "line=zz")
    assert "there is no --relation other=" in init(*keyed, "other=order")
    index = ("--relation", f"line={lines}", "--index")
    assert "an index on shop.line.zz: there is no such column" in init(*index, "line=zz")
    assert "an index on other: source shop has no such relation" in init(*index, "other=order")


def test_what_cannot_be_served_is_refused_with_the_way_out(tmp_path: Path) -> None:
    database = made(tmp_path)
    nobody = ("--broker", f"127.0.0.1:{free_port()}")
    assert "there is no source database" in refused("serve", tmp_path / "no.db", *nobody)
    assert "--tls-cert, --tls-key" in refused("serve", database, *nobody, "--host", "0.0.0.0")
    other = refused("serve", database, *nobody, "--workload", "bank")
    assert "was created from workload retail, seed 3, so it cannot run workload bank;" in other
    other = refused("serve", database, *nobody, "--workload", "retail", "--seed", 4)
    assert "cannot run workload retail with seed 4;" in other
    address = f"grpc://127.0.0.1:{free_port()}"
    assert f"{address} does not answer" in refused("status", "--address", address, code=3)
    assert "give either --database or --address" in refused("status")
