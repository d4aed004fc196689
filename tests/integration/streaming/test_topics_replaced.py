"""Topics that were deleted, filled again, compacted or written to by others.

Each test follows the way out that the message names, and the same command resumes.
"""

import random
import threading

import orjson
import pytest

from protocols.errors import SourceViolation, WrongUse
from sources.simulated.database import SourceDatabase
from streaming.job.job import Job
from streaming.job.running import Running
from tests.harness.command import Command, running
from tests.harness.records import whole_topic
from tests.harness.topics import configure_topic, delete_topic, make_topic, send
from tests.harness.waiting import eventually, patience
from tests.harness.world import Source, World


@pytest.fixture
def kept(command: Command) -> Command:
    """A view that is up to date."""
    command.world.commit_at_random(random.Random(1), 12)
    command.goes_on()
    return command


def _values(world: World, source: Source) -> list[bytes]:
    return whole_topic(world.bootstrap, source.topic)["value"].to_list()


@pytest.mark.parametrize("later", [0, 40], ids=["shorter", "as long"])
def test_a_topic_that_was_filled_again_without_its_repetitions_is_read_from_its_beginning(
    kept: Command, later: int
) -> None:
    """The view's offset is after the repetitions; in the new topic it is at another place."""
    world, b = kept.world, kept.world.sources["b"]
    b.stop_publisher()
    send(world.bootstrap, b.topic, _values(world, b))
    b.publish()
    b.commit(("s", (1, 1), 1))
    kept.goes_on()
    b.stop_publisher()
    delete_topic(world.bootstrap, b.topic)
    b.commit_many([[("s", (1, 2), 1)]] * (1 + later))
    b.publish()
    kept.goes_on()


@pytest.mark.parametrize("source_runs", [True, False])
def test_a_topic_that_is_deleted_while_spark_reads_it_is_named(
    kept: Command, source_runs: bool
) -> None:
    world, b = kept.world, kept.world.sources["b"]
    with running(world, patience_seconds=30) as process:
        watchdog = threading.Timer(patience(), process.kill)
        watchdog.start()
        assert process.stderr is not None
        next(line for line in process.stderr if "keeping it" in line)
        if not source_runs:
            b.stop_publisher()
        delete_topic(world.bootstrap, b.topic)
        rest = process.stderr.read()
        process.wait()
        watchdog.cancel()
    assert process.returncode == 3, rest
    [message] = [line for line in rest.splitlines() if line.startswith("viewsweep: ")]
    assert f"topic {b.topic!r} was deleted" in message
    assert "STREAM_FAILED" not in message
    if not source_runs:
        b.publish()
    b.commit(("s", (1, 1), 1))
    kept.goes_on()


def test_a_compacted_topic_is_refused_until_it_keeps_everything(kept: Command) -> None:
    b = kept.world.sources["b"]
    configure_topic(kept.world.bootstrap, b.topic, "cleanup.policy", "compact")
    kept.is_refused(2, f"topic {b.topic} is compacted", "cleanup.policy=delete")
    configure_topic(kept.world.bootstrap, b.topic, "cleanup.policy", "delete")
    kept.goes_on()


def test_a_publisher_does_not_write_to_a_compacted_topic(kept: Command) -> None:
    b = kept.world.sources["b"]
    b.stop_publisher()
    delete_topic(kept.world.bootstrap, b.topic)
    make_topic(kept.world.bootstrap, b.topic, cleanup_policy="compact,delete")
    b.publish()
    publisher = b.publisher
    assert publisher is not None
    eventually(lambda: publisher.error is not None)
    assert isinstance(publisher.error, WrongUse)
    assert f"topic {b.topic} is compacted" in str(publisher.error)
    b.stop_publisher()
    configure_topic(kept.world.bootstrap, b.topic, "cleanup.policy", "delete")
    b.publish()
    b.commit(("s", (1, 1), 1))
    kept.goes_on()


def test_a_foreign_record_is_called_one_and_the_topic_can_be_filled_again(kept: Command) -> None:
    """Another source with the same name, but another table s, publishes to the topic."""
    world, b = kept.world, kept.world.sources["b"]
    b.stop_publisher()
    foreign = orjson.loads(_values(world, b)[-1])
    foreign["source"] |= {"version": b.database.version + 1, "schema": "0a1b2c3d"}
    send(world.bootstrap, b.topic, [orjson.dumps(foreign)])
    ended = kept.is_refused(
        3, "source b", "another program writes to this topic", "delete the topic"
    )
    assert "has changed at the source" not in ended.message
    b.publish()
    publisher = b.publisher
    assert publisher is not None
    eventually(lambda: publisher.error is not None)
    assert "delete the topic" in str(publisher.error)
    b.stop_publisher()
    delete_topic(world.bootstrap, b.topic)
    b.publish()
    b.commit(("s", (1, 1), 1))
    kept.goes_on()


def test_a_column_renamed_under_a_running_source_is_named(
    kept: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    b, prepare = kept.world.sources["b"], Job.prepare

    def rename(old: str, new: str) -> None:
        with b.database.snapshot() as (cursor, _):
            cursor.execute(f"ALTER TABLE relations.s RENAME COLUMN {old} TO {new}")

    def prepare_and_rename(job: Job) -> Running:
        running = prepare(job)
        rename("x", "z")
        return running

    kept.world.sources["a"].commit(("r", (600, 1, "p"), 1))
    kept.world.wait_until_published()
    with monkeypatch.context() as patch:
        patch.setattr(Job, "prepare", prepare_and_rename)
        ended = kept.is_refused(3, "source b", "tables have changed", "Restore the columns")
    assert "does not answer" not in ended.message
    with pytest.raises(SourceViolation, match="tables have changed"):
        b.commit(("s", (1, 1), -1))
    rename("z", "x")
    kept.goes_on()


def test_a_source_with_a_renamed_column_does_not_open_until_it_has_it_back(kept: Command) -> None:
    b = kept.world.sources["b"]
    with b.database.snapshot() as (cursor, _):
        cursor.execute("ALTER TABLE relations.s RENAME COLUMN x TO z")
    b.stop_publisher()
    b.stop_server()
    b.database.close()
    with pytest.raises(SourceViolation, match=r"relation s was altered .* z BIGINT, y BIGINT"):
        SourceDatabase.open(b.database.path)
