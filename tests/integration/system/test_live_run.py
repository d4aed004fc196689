"""Does the whole path, from a commit at a source to Delta, end in states that existed?

One run of real processes, judged three times: by the checker, which only sees the trace; by
kafka-python, which only sees the topics; and by plain SQL in DuckDB over relations replayed here
row by row, which knows nothing of our algebra. The checker catches a wrong state or order, the
topics a skipped or torn transaction, SQL a mistake that job and checker would share. The control is
the same system with the uncompensated protocol; all three must convict it.
"""

import json
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyspark
import pytest
from deltalake import DeltaTable

from infra.broker import which_broker
from infra.owned import OwnedProcess
from infra.progress import silent
from protocols.exchange.questions import Query
from sources.wire.client import SourceClient
from tests.harness.crashes import twice
from tests.harness.places import ROOT
from tests.harness.system import PARTITIONS, SOURCES, WORKLOAD, LiveSystem, environment
from tests.harness.waiting import eventually, patience

with warnings.catch_warnings():
    # On import kafka-python reads its schemas with a deprecated function.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, TopicPartition

BEFORE_THE_FIRST_STATE = 20
IN_THE_RUN = 240
IN_THE_CONTROL = 320
Record = dict[str, Any]
Rows = Counter[tuple[Any, ...]]


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveSystem]:
    """A system whose job has kept its view through about 660 updates, and was stopped."""
    directory = tmp_path_factory.mktemp("live")
    with which_broker(progress=silent) as broker, LiveSystem(directory, broker.bootstrap) as system:
        system.serve_all(BEFORE_THE_FIRST_STATE)
        system.wait_until_published(BEFORE_THE_FIRST_STATE)
        system.start_job()
        system.wait_for_first_state()
        system.serve_all(IN_THE_RUN)
        system.wait_until_installed(IN_THE_RUN)
        # No more batches come, and the table for readers must still catch up.
        eventually(lambda: _current_has_followed(system), "current at the position of changes")
        system.stop("job-kept")
        yield system


def _current_has_followed(system: LiveSystem) -> bool:
    system.refuse_ended("job-kept")
    current = DeltaTable(system.tables().directory / "current")
    return current.transaction_version("viewsweep/position") == system.tables().standing().position


@pytest.fixture(scope="module")
def uncompensated(lived: LiveSystem) -> LiveSystem:
    """The same sources, which keep committing, under the protocol that does not correct answers."""
    lived.start_job("uncompensated")
    lived.wait_for_first_state("uncompensated")
    lived.serve_all(IN_THE_CONTROL, rate=150.0)
    lived.wait_until_installed(IN_THE_CONTROL, "uncompensated")
    lived.stop("job-uncompensated")
    return lived


# -- the checker ---------------------------------------------------------------------------------


def test_a_run_over_three_sources_is_complete_and_answers_were_really_ahead(
    lived: LiveSystem,
) -> None:
    code, verdict = lived.verdict()
    assert code == 0, verdict["contradiction"]
    counts = verdict["counts"]
    print(f"counts of the run: {counts}")
    assert verdict["levels"]["complete-in-delivery-order"] == "holds", verdict["levels"]
    assert counts["updates"] >= 600
    assert counts["compensated"] > 0, "nothing was concurrent, so this run proves nothing"
    assert twice(lived) == []


def test_an_update_costs_a_query_for_each_other_relation_less_the_skipped_legs(
    lived: LiveSystem,
) -> None:
    """Here every update touches the view's relations: each source holds one relation."""
    lines = [json.loads(line) for line in lived.trace().read_bytes().splitlines()]
    asked = Counter(line["position"] for line in lines if line["type"] == "query")
    progress = lived.tables().progress()
    skipped = dict(progress.select("position", "skipped").iter_rows())
    assert {asked[p] + skipped[p] for p in skipped} == {len(SOURCES) - 1}
    assert asked.total() + sum(skipped.values()) == (len(SOURCES) - 1) * len(skipped)
    print(f"{len(skipped)} updates, {asked.total()} queries, {sum(skipped.values())} skipped")
    assert asked.total() > 0
    assert any(skipped.values()), "or skipped legs were not counted apart"


def test_without_compensation_the_checker_writes_a_contradiction(uncompensated: LiveSystem) -> None:
    code, verdict = uncompensated.verdict("uncompensated")
    assert code == 1
    assert verdict["verdict"] == "invalid"
    assert "contradiction" in verdict["contradiction"]


# -- the topics, read by another client ----------------------------------------------------------


def records(system: LiveSystem, source: str) -> list[Record]:
    """All records of a source's topic, as kafka-python reads them, without repetitions."""
    consumer = KafkaConsumer(bootstrap_servers=system.bootstrap, enable_auto_commit=False)
    try:
        values: list[Record] = []
        for number in range(PARTITIONS[source]):
            partition = TopicPartition(system.topic(source), number)
            consumer.assign([partition])
            consumer.seek_to_beginning(partition)
            end = consumer.end_offsets([partition])[partition]
            while consumer.position(partition) < end:
                for batch in consumer.poll(timeout_ms=1000).values():
                    values += [json.loads(record.value) for record in batch]
    finally:
        consumer.close()
    found = without_repetitions(values)
    return found if PARTITIONS[source] == 1 else sorted(found, key=_place)


def _place(record: Record) -> tuple[int, int]:
    return record["source"]["version"], record["transaction"]["total_order"]


def without_repetitions(values: list[Record]) -> list[Record]:
    """Drops repetitions of a restarted publisher: version and place identify a record."""
    found: dict[tuple[int, int], Record] = {}
    for value in values:
        found.setdefault(_place(value), value)
    return list(found.values())


@pytest.mark.parametrize("source", SOURCES)
def test_a_topic_holds_every_version_in_order_with_all_its_events(
    lived: LiveSystem, source: str
) -> None:
    found = records(lived, source)
    places = [_place(record) for record in found]
    counts = {r["source"]["version"]: r["transaction"]["event_count"] for r in found}
    assert list(counts) == list(range(1, lived.status(source)["version"] + 1))
    assert places == [(v, n) for v, count in counts.items() for n in range(1, count + 1)]
    assert max(counts.values()) > 1, "or no transaction could have been torn"


@pytest.mark.parametrize("source", SOURCES)
def test_a_topic_replayed_over_the_first_rows_gives_the_rows_of_the_source(
    lived: LiveSystem, source: str
) -> None:
    replay = Replay(lived)
    replay.up_to(source, lived.status(source)["version"])
    [relation] = WORKLOAD.source(source).catalog.relations
    with SourceClient(lived.address(source), source=source) as client:
        answer = client.ask(Query(relation, relation.column_names))
    assert replay.rows(f"SELECT * FROM {relation}") == bag(answer.rows.data.rows())


# -- the view's SQL over the relations at a vector -------------------------------------------------


class Replay:
    """The sources' relations in one DuckDB: rows of version 0, then the topics row by row."""

    def __init__(self, system: LiveSystem) -> None:
        self._database = duckdb.connect()
        self._at = dict.fromkeys(SOURCES, 0)
        self._records: dict[str, dict[int, list[Record]]] = {}
        for source in SOURCES:
            self._load(source, system.initial(source))
            versions: dict[int, list[Record]] = {}
            for record in records(system, source):
                versions.setdefault(record["source"]["version"], []).append(record)
            self._records[source] = versions

    def _load(self, source: str, initial: Path) -> None:
        self._database.execute(f"ATTACH '{initial}' AS file (READ_ONLY)")
        self._database.execute(f"CREATE SCHEMA {source}")
        for relation in WORKLOAD.source(source).catalog.relations:
            self._database.execute(
                f"CREATE TABLE {relation} AS SELECT * FROM file.relations.{relation.name}"
            )
        self._database.execute("DETACH file")

    def up_to(self, source: str, version: int) -> None:
        """Applies the commits of the source up to this version."""
        for number in range(self._at[source] + 1, version + 1):
            for record in self._records[source][number]:
                self._apply(f"{source}.{record['source']['table']}", record)
        self._at[source] = version

    def _apply(self, table: str, record: Record) -> None:
        before, after = record["before"], record["after"]
        if before is not None:
            self._database.execute(f"DELETE FROM {table} WHERE id = ?", [before["id"]])
        if after is not None:
            holes = ", ".join("?" for _ in after)
            columns = ", ".join(after)
            self._database.execute(
                f"INSERT INTO {table} ({columns}) VALUES ({holes})", list(after.values())
            )

    def rows(self, sql: str) -> Rows:
        """The result as a bag."""
        return Counter(self._database.execute(sql).fetchall())


def deliveries(system: LiveSystem, view: str) -> list[dict[str, int]]:
    """The version vector of each position, from `progress` as Polars reads it."""
    progress = pl.read_delta(str(system.lake / view / "progress")).sort("position")
    first = dict(progress.group_by("source").agg(pl.col("version").min() - 1).iter_rows())
    vectors = [{**dict.fromkeys(SOURCES, 0), **first}]
    for source, version in progress.select("source", "version").iter_rows():
        vectors.append({**vectors[-1], source: version})
    return vectors


class ReadByPolars:
    """Reads the view at a position from the `changes` table with Polars' own reader."""

    def __init__(self, table: Path) -> None:
        self._changes = pl.read_delta(str(table))

    def at(self, position: int) -> Rows:
        names = [name for name in self._changes.columns if not name.startswith("_")]
        rows = self._changes.filter(pl.col("_position") <= position)
        summed = rows.group_by(names).agg(pl.col("_count").sum()).filter(pl.col("_count") != 0)
        return bag(summed.select(*names, "_count").rows())


class ReadByDuckDB:
    """Reads the same from the Parquet files in Delta's log, with DuckDB's reader."""

    def __init__(self, table: Path) -> None:
        self._database = duckdb.connect()
        files = DeltaTable(table).file_uris()
        self._database.execute(
            "CREATE TABLE changes AS SELECT * FROM read_parquet(?, union_by_name => true)", [files]
        )

    def at(self, position: int) -> Rows:
        return bag(
            self._database.execute(
                "SELECT * EXCLUDE (_count, _position), sum(_count)::BIGINT FROM changes"
                " WHERE _position <= ? GROUP BY ALL HAVING sum(_count) <> 0",
                [position],
            ).fetchall()
        )


def bag(rows: list[tuple[Any, ...]]) -> Rows:
    """Rows with their counts, from rows that end in a count."""
    return Counter({tuple(fields): count for *fields, count in rows})


def disagreements(
    system: LiveSystem, view: str, reader: ReadByPolars | ReadByDuckDB
) -> tuple[list[int], int]:
    """Where the view differs from its SQL, and at how many positions it was read."""
    replay, vectors = Replay(system), deliveries(system, view)
    wrong, step = [], max(1, len(vectors) // 120)
    chosen = [*range(0, len(vectors) - 1, step), len(vectors) - 1]
    for position in chosen:
        for source, version in vectors[position].items():
            replay.up_to(source, version)
        if reader.at(position) != replay.rows(WORKLOAD.view):
            wrong.append(position)
    return wrong, len(chosen)


@pytest.mark.parametrize("reader", [ReadByPolars, ReadByDuckDB])
def test_the_view_of_each_position_is_its_sql_over_the_relations_at_that_vector(
    lived: LiveSystem, reader: type[ReadByPolars] | type[ReadByDuckDB]
) -> None:
    wrong, compared = disagreements(lived, "kept", reader(lived.lake / "kept" / "changes"))
    assert compared >= 100
    assert wrong == []


def test_sql_convicts_the_uncompensated_view_too(uncompensated: LiveSystem) -> None:
    """The control of the comparison above, which must be able to fail."""
    table = uncompensated.lake / "uncompensated" / "changes"
    wrong, _ = disagreements(uncompensated, "uncompensated", ReadByPolars(table))
    assert wrong


def test_the_current_table_is_the_view_at_the_last_position(lived: LiveSystem) -> None:
    last = lived.tables().standing().position
    current = pl.read_delta(str(lived.lake / "kept" / "current"))
    assert bag(current.rows()) == ReadByDuckDB(lived.lake / "kept" / "changes").at(last)


# -- spark-submit --------------------------------------------------------------------------------


def test_spark_submit_installs_what_is_there_and_the_view_stays_complete(
    uncompensated: LiveSystem,
) -> None:
    """The sources have committed more for the control; the first view has not moved."""
    system = uncompensated
    before = system.tables().standing().position
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    shell = (
        f"cd {ROOT} && {submit} $({sys.executable} -m infra.sparksettings) streaming/submit.py"
        f" --config {system.directory}/warehouse.toml --view kept --once"
    )
    ours = environment() | {"PYSPARK_PYTHON": sys.executable}
    job = OwnedProcess("submit", ["bash", "-c", shell], system.directory / "submit.log", ours)
    try:
        assert job.wait(patience()) == 0, job.last_words()
    finally:
        job.stop()
    assert system.tables().standing().position == before + 3 * (IN_THE_CONTROL - IN_THE_RUN)
    code, verdict = system.verdict()
    assert code == 0, verdict["contradiction"]
    assert verdict["counts"]["undelivered"] == 0
    assert twice(system) == []
