"""Topics that are cut, deleted, made anew or given more partitions.

A reader goes on with exactly the rest, or is refused with the reason and the way out.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from sources.partitions import offsets_in
from tests.conformance.adapter import Adapter, Database
from tests.conformance.reading import Expected, Log, Mark, log_of, marks_of, outcome
from tests.conformance.stage import Stage
from tests.conformance.story import Life
from tests.harness.topics import (
    add_partitions,
    delete_records,
    delete_topic,
    make_topic,
    send,
)

_COMMITS = 8


@dataclass
class _Scene:
    """A database, and what views have read of it."""

    database: Database
    life: Life
    adapter: Adapter
    #: The number of partitions of its topics.
    partitions: int

    def commit(self, transactions: int) -> None:
        for _ in range(transactions):
            self.database.commit(self.life.transaction())

    def marks(self) -> list[Mark]:
        """Where a view stands in the middle, and at the end."""
        self.database.settle()
        last = len(self.database.committed)
        return marks_of(self.database, self.database.story.catalog, (last // 2, last))

    def wrong(self, what: str, marks: list[Mark], expected: Expected = None) -> Iterator[str]:
        for mark in marks:
            for each in outcome(self.database, self.database.story.catalog, mark, expected):
                yield f"{what}, after version {mark.version}: {each}"

    def delete(self) -> None:
        """Deletes its topics; it does not publish any more."""
        self.database.stop_publishing()
        for topic in self.database.source.topics:
            delete_topic(self.database.bootstrap, topic)

    def make(self, partitions: int) -> None:
        """Makes its topics, empty."""
        for topic in self.database.source.topics:
            make_topic(self.database.bootstrap, topic, partitions)


def replaced(stage: Stage) -> Iterator[str]:
    """One change of the topics after the other."""
    with stage.adapter.made(stage.adapter.story) as database:
        scene = _Scene(database, Life(database.story, 1), stage.adapter, stage.adapter.partitions)
        scene.commit(_COMMITS)
        for each in (_untouched, _repeated, _cut):
            yield from each(scene)
        if stage.adapter.publishes_again:
            for each in (_made_anew, _other_partitions, _added, _cut):
                yield from each(scene)


def _untouched(scene: _Scene) -> Iterator[str]:
    marks = scene.marks()
    yield from scene.wrong("nothing happened", marks, "goes on")
    scene.database.stop_publishing()
    scene.database.stop_answering()
    scene.commit(2)
    scene.database.answer()
    scene.database.publish()
    scene.database.settle()
    yield from scene.wrong("it was restarted", marks, "goes on")


def _repeated(scene: _Scene) -> Iterator[str]:
    """A stretch of each partition is written again, and more is committed."""
    marks, database = scene.marks(), scene.database
    database.stop_publishing()
    for partition, each in log_of(database).items():
        values = [value for _, value in each]
        places = scene.adapter.may_go_on(values)
        again = values[next(place for place in places if place >= len(each) // 3) :]
        send(database.bootstrap, partition.topic, again, partition.number)
    database.publish()
    scene.commit(2)
    database.settle()
    yield from scene.wrong("records were repeated", marks, "goes on")


def _made_anew(scene: _Scene) -> Iterator[str]:
    """Empty at first, then filled in part, then filled."""
    marks, database = scene.marks(), scene.database
    log = log_of(database)
    scene.delete()
    scene.make(scene.partitions)
    yield from scene.wrong("the topics are empty", marks)
    _fill(database, log, 3)
    yield from scene.wrong("the topics are filled up to version 3", marks)
    scene.commit(1)
    database.publish()
    database.settle()
    yield from scene.wrong("the topics were filled again", marks)


def _fill(database: Database, log: Log, version: int) -> None:
    """Writes the records of the first versions."""
    for partition, each in log.items():
        some = [value for _, value in each if (database.version_of(value) or 0) <= version]
        send(database.bootstrap, partition.topic, some, partition.number)


def _other_partitions(scene: _Scene) -> Iterator[str]:
    """Made anew with one more partition."""
    marks = scene.marks()
    scene.delete()
    scene.partitions += 1
    scene.make(scene.partitions)
    yield from scene.wrong("the topics are empty and have one more partition", marks)
    scene.commit(1)
    scene.database.publish(scene.partitions)
    scene.database.settle()
    yield from scene.wrong("the topics were filled again, into one more partition", marks)


def _added(scene: _Scene) -> Iterator[str]:
    """A partition is added to what is there; the publisher then uses it."""
    marks, database = scene.marks(), scene.database
    database.stop_publishing()
    scene.partitions += 1
    for topic in database.source.topics:
        add_partitions(database.bootstrap, topic, scene.partitions)
    yield from scene.wrong("a partition was added", marks)
    scene.commit(6)
    database.publish(scene.partitions)
    database.settle()
    yield from scene.wrong("a partition was added and used", marks)


def _cut(scene: _Scene) -> Iterator[str]:
    """Retention deletes what a view has read, and then what it has not."""
    marks, database = scene.marks(), scene.database
    middle, last = marks
    _delete_up_to(database, middle)
    yield from scene.wrong("the topics have lost what was read", marks, "goes on")
    _delete_up_to(database, last)
    scene.commit(1)
    database.settle()
    yield from scene.wrong("the topics have lost what was not read", [middle])
    yield from scene.wrong("the topics have lost what was read", [last], "goes on")


def _delete_up_to(database: Database, mark: Mark) -> None:
    """Deletes the records before the token of a mark."""
    offsets = offsets_in(mark.token, log_of(database))
    assert offsets is not None
    delete_records(database.bootstrap, offsets)
