"""A source with another past: an old copy of its database was restored and has committed since.

Versions look as if nothing had happened; the digest of its history shows the difference. The tests
follow each way out that a message names.
"""

import shutil
from pathlib import Path

import pytest

from protocols.errors import SourceViolation
from sources.simulated.database import SourceDatabase
from streaming.tracing import write_live_trace
from tests.harness.command import Command
from tests.harness.records import whole_topic
from tests.harness.topics import write_topic
from tests.harness.truth import Committed
from tests.harness.waiting import eventually
from tests.harness.world import Source, start
from warehouse.standing import Standing


class Forked:
    """A view that is up to date; an old copy of b lacks two versions."""

    def __init__(self, command: Command, directory: Path) -> None:
        self.command = command
        self.world = command.world
        self.b: Source = self.world.sources["b"]
        self._directory = directory
        self.old = self._copied("old")
        #: The version up to which the pasts agree.
        self.agreed = self.b.database.version
        for number in range(2):
            self.b.commit(("s", (1, 10 + number), 1))
        command.goes_on()

    def _copied(self, name: str) -> Path:
        """Copies b's present file."""
        self.b.wait_until_published()
        self._close()
        copy = shutil.copy(self.b.database.path, self._directory / name)
        self._open()
        self.b.publish()
        return Path(copy)

    def restore_the_old_copy(self, topic: str | None = None) -> Path:
        """Restores the old copy, which commits beyond the view's version; returns a copy of the
        replaced file."""
        present = self._copied("present")
        self._put(self.old)
        self.b.history = [each for each in self.b.history if each[0] <= self.agreed]
        self.b.commit_many([[("s", (2, 20 + number), 1)] for number in range(3)])
        if topic is not None:
            self.b.topic = topic
            self.b.publish()
        return present

    def put_back(self, copy: Path, history: list[Committed]) -> None:
        self._put(copy)
        self.b.history = history
        self.b.publish()

    def _put(self, copy: Path) -> None:
        self._close()
        shutil.copy(copy, self.b.database.path)
        self._open()

    def _close(self) -> None:
        self.b.stop_server()
        self.b.stop_publisher()
        self.b.database.close()

    def _open(self) -> None:
        self.b.database = SourceDatabase.open(self.b.database.path)
        self.b.restart_server()

    @property
    def parting(self) -> str:
        return f"they diverge at version {self.agreed + 1}, after version {self.agreed}."


@pytest.fixture
def forked(command: Command, tmp_path: Path) -> Forked:
    command.goes_on()
    return Forked(command, tmp_path)


def test_a_forked_source_is_named_with_its_version_until_the_other_past_is_back(
    forked: Forked,
) -> None:
    history = list(forked.b.history)
    present = forked.restore_the_old_copy()
    forked.command.is_refused(3, "source b has another past", forked.parting)
    forked.put_back(present, history)
    forked.command.goes_on()


def test_or_the_present_past_gets_a_topic_and_a_view_of_its_own(forked: Forked) -> None:
    before = forked.b.topic
    forked.restore_the_old_copy(topic=f"{before}-new")
    forked.command.is_refused(3, "source b has another past", "recreate the views over it")
    shutil.rmtree(forked.world.directory / "tables/v")
    forked.command.goes_on()


def test_a_publisher_does_not_go_on_in_a_topic_of_another_past(forked: Forked) -> None:
    forked.restore_the_old_copy()
    forked.b.publish()
    publisher = forked.b.publisher
    assert publisher is not None
    eventually(lambda: publisher.error is not None)
    assert isinstance(publisher.error, SourceViolation)
    assert f"topic {forked.b.topic}: source b has another past" in str(publisher.error)
    assert forked.parting in str(publisher.error)


def test_a_topic_of_another_past_than_the_answers_is_refused_while_running(forked: Forked) -> None:
    topic = f"{forked.b.topic}-forked"
    values = whole_topic(forked.world.bootstrap, forked.b.topic)["value"].to_list()
    history = list(forked.b.history)
    present = forked.restore_the_old_copy()
    # The topic continues with the last version of the other past; the source with its own.
    other = [record for _, record in forked.b.database.outbox(forked.agreed + 2, 10)]
    forked.put_back(present, history)
    forked.b.commit(("s", (1, 30), 1))
    write_topic(forked.world.bootstrap, topic, [*values, *other])
    forked.world.sources["a"].commit(("r", (500, 1, "p"), 1))
    forked.world.wait_until_published()
    version = forked.agreed + 3
    wrong = {f'topic = "{forked.b.topic}"': f'topic = "{topic}"'}
    forked.command.is_refused(
        3, "source b has another past", f"at version {version}, after version", toml=wrong
    )
    forked.command.goes_on()


def test_a_trace_of_another_past_is_refused(forked: Forked) -> None:
    forked.restore_the_old_copy(topic=f"{forked.b.topic}-new")
    forked.world.wait_until_published()
    with forked.world.job() as job:
        configuration = job._context.configuration
    with pytest.raises(SourceViolation, match="source b has another past"):
        write_live_trace(configuration, configuration.view("v"), forked.world.directory / "trace")


def test_a_lake_of_a_time_without_histories_goes_on_and_has_them_then(
    forked: Forked, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, numbers = forked.world, Standing.numbers
    shutil.rmtree(world.directory / "tables/v")

    def without_histories(standing: Standing) -> dict[str, int]:
        return {k: n for k, n in numbers(standing).items() if "/history/" not in k}

    with monkeypatch.context() as patch:
        patch.setattr(Standing, "numbers", without_histories)
        forked.command.goes_on()
    forked.b.commit(("s", (1, 40), 1))
    forked.command.goes_on()
    with world.job() as job:
        start(job)
        assert job.standing.digests == {"b": forked.b.database.standing[1]}
