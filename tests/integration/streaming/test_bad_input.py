"""An outside fault ends `viewsweep run` with one message and an exit code, and loses nothing; once
the cause is removed the same command resumes.

Only Spark is replaced (see harness/command.py). At the end of almost every test the command
succeeds and the view is compared with DuckDB at every position.
"""

import contextlib
import random
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import polars as pl
import pytest
from confluent_kafka import TopicPartition

from infra.localbroker import free_port
from protocols.errors import ViewsweepError
from sources.kafka import Kafka
from sources.partitions import Partition
from sources.simulated.publisher import Publisher
from streaming.job.job import Job
from streaming.job.running import Running
from tests.cases.stories import FORMS
from tests.harness.command import Command
from tests.harness.records import records, whole_topic
from tests.harness.topics import admin, delete_topic, make_topic, write_topic
from tests.harness.waiting import eventually, patience
from tests.harness.world import Source, World, start
from warehouse.tables import ViewTables

pytestmark = pytest.mark.world(transactions=12)


@pytest.fixture
def kept(command: Command) -> Command:
    """A view that was up to date, and a few commits since."""
    command.goes_on()
    command.world.commit_at_random(random.Random(2), 12)
    for source in command.world.sources.values():
        source.commit(*_one_more(source))
    command.world.wait_until_published()
    return command


def _one_more(source: Source) -> list[tuple[str, tuple[Any, ...], int]]:
    """A transaction of three records with keys that nothing else uses."""
    version = source.database.version
    rows: dict[str, list[tuple[str, tuple[Any, ...]]]] = {
        "a": [("r", (1000 * version + n, 1, "p")) for n in range(3)],
        "b": [("s", (1, n)) for n in range(3)],
        "c": [("u", (1000 * version + n, "k")) for n in range(3)],
    }
    return [(*row, 1) for row in rows[source.name]]


def _standing(world: World) -> Any:
    with world.job() as job:
        job.check()
        return job.tables.standing()


# ----------------------------------------------------------------------------------- the view


@pytest.mark.parametrize(
    ("sql", "complaint"),
    [
        ("SELECT id FROM a.q", "q"),
        ("SELECT id FROM z.r", "z"),
        ("SELECT nothing FROM a.r", "nothing"),
        ("SELECT id FROM a.r WHERE id = CAST('1' AS GEOMETRY)", "GEOMETRY"),
        ("SELECT id FROM a.r WHERE t > 5", "VARCHAR"),
        ("SELECT id FORM a.r", "line 1"),
        ("", "line 1"),
        ("SELECT id FROM a.r ORDER BY id", "ORDER BY"),
        ("SELECT id FROM a.r; SELECT id FROM a.r", "a second statement"),
        ("DROP TABLE a.r", "this is DROP"),
        ("SELECT id, count(*) AS n FROM a.r", "GROUP BY"),
        ("SELECT id FROM a.r WHERE " + 1_000 * "(" + "id = 1" + 1_000 * ")", "too deeply"),
    ],
)
def test_a_view_over_what_is_not_there_is_refused_with_its_place(
    command: Command, sql: str, complaint: str
) -> None:
    command.is_refused(2, "line 1, column", complaint, sql=sql)
    assert not (command.world.directory / "tables").exists()


def test_after_the_views_text_is_corrected_the_command_goes_on(command: Command) -> None:
    command.is_refused(2, "wrong", sql="SELECT wrong FROM a.r")
    command.goes_on()


# -------------------------------------------------------------------- missing or different parts


def test_a_broker_that_is_not_there(kept: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = f"127.0.0.1:{free_port()}"
    broker = kept.world.bootstrap
    with monkeypatch.context() as patch:
        patch.setattr("sources.topics._PATIENCE", 2.0)
        kept.is_refused(3, f"no Kafka broker answers at {nowhere}", toml={broker: nowhere})
    kept.goes_on()


def test_a_server_that_is_not_there(kept: Command) -> None:
    source = kept.world.sources["b"]
    source.stop_server()
    ended = kept.is_refused(
        3, "source b", "does not answer", "again when the source is back", patience_seconds=0.5
    )
    assert any("trying again" in line for line in ended.lines)
    source.restart_server()
    kept.goes_on()


def test_a_server_that_dies_in_the_middle_of_a_batch(
    kept: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, before = kept.world.sources["b"], _standing(kept.world)
    prepare = Job.prepare

    def prepare_and_lose_the_source(job: Job) -> Running:
        running = prepare(job)
        source.stop_server()
        return running

    with monkeypatch.context() as patch:
        patch.setattr(Job, "prepare", prepare_and_lose_the_source)
        kept.is_refused(3, "source b", "does not answer", patience_seconds=0.5)
    source.restart_server()
    assert _standing(kept.world) == before
    kept.goes_on()


def test_a_publisher_that_is_not_there(kept: Command) -> None:
    source = kept.world.sources["b"]
    source.stop_publisher()
    source.commit(("s", (1, 1), 1))
    kept.is_refused(3, "version", "of source b", "publisher", patience_seconds=1.0)
    source.publish()
    kept.goes_on()


def test_a_source_with_another_name_at_the_address(kept: Command) -> None:
    b, c = kept.world.sources["b"].address, kept.world.sources["c"].address
    kept.is_refused(2, "sources.b.address", "calls itself 'c'", toml={b: c})
    kept.goes_on()


def test_keys_that_are_declared_for_what_is_not_there(kept: Command) -> None:
    def declared(relation: str, column: str) -> dict[str, str]:
        text = f'[sources.a.relations.{relation}]\nkeys = [["{column}"]]\n[sources.a]'
        return {"[sources.a]": text}

    kept.is_refused(2, "sources.a.relations.q", "no relation 'q'", toml=declared("q", "t"))
    kept.is_refused(2, "sources.a.relations.r", "column 'tt' is not", toml=declared("r", "tt"))
    kept.goes_on(toml=declared("r", "t"))


def test_an_address_that_is_none(kept: Command) -> None:
    b = kept.world.sources["b"].address
    kept.is_refused(2, "not the address of a query server", toml={b: "nonsense"})


# --------------------------------------------------------------------------------- the topics


def _other_topic(world: World, change: Callable[[list[bytes], int], list[bytes]]) -> dict[str, str]:
    """Replaces b's topic by a changed copy; `change` receives the view's version of b."""
    source = world.sources["b"]
    values = whole_topic(world.bootstrap, source.topic)["value"].to_list()
    topic = f"{source.topic}-other"
    write_topic(world.bootstrap, topic, change(values, _standing(world).tokens["b"][-1]))
    return {f'topic = "{source.topic}"': f'topic = "{topic}"'}


def test_a_topic_that_is_missing(kept: Command) -> None:
    topic = kept.world.sources["b"].topic
    wrong = {f'topic = "{topic}"': 'topic = "no-such-topic"'}
    kept.is_refused(2, "source b", "there is no topic 'no-such-topic'", toml=wrong)
    kept.goes_on()


def test_a_topic_with_two_partitions_is_refused_until_it_is_filled(kept: Command) -> None:
    source, bootstrap = kept.world.sources["b"], kept.world.bootstrap
    topic = f"{source.topic}-2"
    make_topic(bootstrap, topic, partitions=2)
    other = {f'topic = "{source.topic}"': f'topic = "{topic}"'}
    kept.is_refused(
        3, "source b", f"topic '{topic}' ends at offset 0", "not been refilled", toml=other
    )
    again = Publisher(source.database, Kafka(bootstrap), topic, partitions=2)
    again.start()
    begin = {Partition(topic, number): 0 for number in range(2)}
    wanted = whole_topic(bootstrap, source.topic).height
    eventually(lambda: records(bootstrap, begin).height >= wanted, "the same records are there")
    again.stop()
    assert records(bootstrap, begin)["partition"].n_unique() == 2
    kept.goes_on(toml=other)


def _changed(value: bytes, **changes: Any) -> bytes:
    content = orjson.loads(value)
    for path, new in changes.items():
        *parents, last = path.split("__")
        place = content
        for parent in parents:
            place = place[parent]
        place[last] = new
    return orjson.dumps(content)


BAD_RECORDS: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "not JSON": (lambda _: b"hello", "not JSON"),
    "no object": (lambda _: b"[1]", "JSON, but not an object"),
    "another shape": (lambda _: b'{"id": 7}', '"op" is missing'),
    "another type": (lambda v: _changed(v, source__version="7"), '"source.version"'),
    "global": (lambda v: _changed(v, transaction__global={"id": "g"}), "should name sources"),
    "another source": (lambda v: _changed(v, source__db="c"), 'comes from source "c"'),
    "another schema": (
        lambda v: _changed(v, source__schema="0"),
        "another program writes to this topic",
    ),
}


@pytest.mark.parametrize(("spoil", "complaint"), BAD_RECORDS.values(), ids=BAD_RECORDS.keys())
def test_a_record_that_is_none_of_ours(
    kept: Command, spoil: Callable[[bytes], bytes], complaint: str
) -> None:
    def change(values: list[bytes], _standing: int) -> list[bytes]:
        return [*values[:-1], spoil(values[-1])]

    before = _standing(kept.world)
    wrong = _other_topic(kept.world, change)
    last = whole_topic(kept.world.bootstrap, kept.world.sources["b"].topic).height - 1
    kept.is_refused(3, "source b", "-b-other", f"offset {last}:", complaint, toml=wrong)
    assert _standing(kept.world) == before
    kept.goes_on()


def test_a_version_gap(kept: Command) -> None:
    wrong = _other_topic(kept.world, lambda values, at: values[:at] + values[at + 1 :])
    kept.is_refused(3, "source b", "topic", "offset", "what comes between is missing", toml=wrong)
    kept.goes_on()


def test_duplicates_of_any_kind_do_no_harm(kept: Command) -> None:
    again = _other_topic(
        kept.world,
        lambda values, at: [*values[: at + 2], *values[at:], *values[at - 1 :], *values[-2:]],
    )
    kept.goes_on(toml=again)


def test_a_topic_made_anew_is_refused_until_it_is_filled_again(kept: Command) -> None:
    source = kept.world.sources["b"]
    source.stop_publisher()
    delete_topic(kept.world.bootstrap, source.topic)
    make_topic(kept.world.bootstrap, source.topic)
    kept.is_refused(3, "source b", f"topic '{source.topic}' ends at offset 0", "recreated")
    source.publish()
    source.commit(("s", (1, 1), 1))
    kept.goes_on()


def test_a_topic_truncated_below_the_vector_needs_a_new_view(kept: Command) -> None:
    source = kept.world.sources["b"]
    end = whole_topic(kept.world.bootstrap, source.topic).height
    place = TopicPartition(source.topic, 0, end)
    admin(kept.world.bootstrap).delete_records([place])[place].result(patience())
    kept.is_refused(3, f"topic '{source.topic}' now begins at offset {end}", "are lost")
    shutil.rmtree(kept.world.directory / "tables/v")
    kept.goes_on()


# -------------------------------------------------------------------------------- the sources


@contextlib.contextmanager
def _impostor(world: World, name: str, forms: dict[str, Any] | None = None) -> Iterator[Source]:
    """Another source of that name, at version 0 and at another address."""
    directory = world.directory / "impostor"
    directory.mkdir()
    with contextlib.ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        if forms is not None:
            patch.setitem(FORMS, name, forms)
        source = Source(name, directory, world.bootstrap, f"{world.prefix}-impostor")
        stack.callback(source.close)
        yield source


def test_a_source_that_was_reset(kept: Command) -> None:
    with _impostor(kept.world, "b") as reset:
        wrong = {kept.world.sources["b"].address: reset.address}
        kept.is_refused(3, "source b is at version 0", "was reset", toml=wrong)
    kept.goes_on()


def test_a_relation_whose_schema_changed_at_the_source(kept: Command) -> None:
    altered = {"s": {"columns": {"x": "BIGINT", "y": "BIGINT", "new": "DATE"}}}
    with _impostor(kept.world, "b", altered) as source:
        wrong = {kept.world.sources["b"].address: source.address}
        kept.is_refused(2, "relation b.s had the schema", "DATE", toml=wrong)
    kept.goes_on()


# ------------------------------------------------------------------------------ the warehouse


def test_delta_tables_of_another_view(kept: Command) -> None:
    kept.is_refused(2, "tables/v holds a view with different SQL", sql="SELECT id FROM a.r")
    kept.goes_on()


def test_delta_tables_of_somebody_else(command: Command) -> None:
    tables = command.world.directory / "tables/v/changes"
    pl.DataFrame({"x": [1]}).write_delta(str(tables))
    command.is_refused(2, "holds Delta tables, but not those of a viewsweep view")
    shutil.rmtree(tables)
    command.goes_on()


@contextlib.contextmanager
def _small_disk(directory: Path) -> Iterator[Callable[[], Any]]:
    """A file system of 4 MB at the directory, and a way to fill it; otherwise a file size limit."""
    directory.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(directory)]
    mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    try:
        yield (lambda: _filled(directory)) if mounted else _limited
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(directory)], check=True)


@contextlib.contextmanager
def _filled(directory: Path) -> Iterator[None]:
    filler = directory / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(size))
    yield
    filler.unlink()


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_at_commit(command: Command) -> None:
    world = command.world
    with _small_disk(world.directory / "tables") as full:
        command.goes_on()
        world.commit_at_random(random.Random(2), 12)
        world.wait_until_published()
        before = _standing(world)
        with full():
            command.is_refused(3, "the commit failed", "is the disk full?")
        assert _standing(world) == before
        command.goes_on()


def test_a_full_disk_at_the_first_state(command: Command) -> None:
    with _small_disk(command.world.directory / "tables") as full:
        with full():
            command.is_refused(3, "tables/v", "is the disk full?")
        command.goes_on()


def test_of_two_jobs_on_one_view_the_slower_one_is_fenced(kept: Command) -> None:
    world = kept.world
    with world.job() as quick, world.job() as slow:
        start(quick)
        start(slow)
        assert quick.take(world.records_after(quick)) > 0
        with pytest.raises(ViewsweepError, match="another job has committed") as fenced:
            slow.take(world.records_after(slow))
    assert fenced.value.exit_code == 3
    assert world.assert_complete(ViewTables(world.directory / "tables", quick.view)) > 0
    kept.goes_on()
