"""A database that was reset, or restored from an old copy, has another past than a view has seen.

Its versions look the same. A view that has seen nothing of what differs may go on.
"""

from collections.abc import Iterator

from tests.conformance.adapter import Database
from tests.conformance.reading import Expected, Mark, marks_of, outcome
from tests.conformance.stage import Stage
from tests.conformance.story import Life
from tests.harness.topics import delete_topic

#: The versions before and after the copy is made, and those where views stand.
_BEFORE, _AFTER = 4, 4
_SEEN = 3, _BEFORE + _AFTER


def noticed(stage: Stage) -> Iterator[str]:
    """Whatever was committed since, with the old topics and with new ones."""
    with stage.adapter.made(stage.adapter.story) as database:
        earlier, later = _lived(database)
        database.restore()
        yield from _other_past(database, "restored", [later], [earlier])
    with stage.adapter.made(stage.adapter.story) as database:
        seen = _lived(database)
        database.reset()
        yield from _other_past(database, "reset", seen, [])


def _lived(database: Database) -> list[Mark]:
    """Where views stand before and after the version of the copy."""
    life = Life(database.story, 1)
    _commit(database, life, _BEFORE)
    database.settle()
    database.back_up()
    _commit(database, life, _AFTER)
    database.settle()
    return marks_of(database, database.story.catalog, _SEEN)


def _commit(database: Database, life: Life, transactions: int) -> None:
    for _ in range(transactions):
        database.commit(life.transaction())


def _other_past(
    database: Database, what: str, refused: list[Mark], others: list[Mark]
) -> Iterator[str]:
    life = Life(database.story, 2, 5000)
    _commit(database, life, 2)
    yield from _wrong(database, f"{what}, few commits since", refused, others)
    _commit(database, life, sum(_SEEN))
    yield from _wrong(database, f"{what}, many commits since", refused, others)
    for topic in database.source.topics:
        delete_topic(database.bootstrap, topic)
    database.publish()
    database.settle()
    yield from _wrong(database, f"{what}, the topics made anew", refused, others)


def _wrong(database: Database, what: str, refused: list[Mark], others: list[Mark]) -> Iterator[str]:
    for mark in (*refused, *others):
        expected: Expected = "refused" if mark in refused else None
        for each in outcome(database, database.story.catalog, mark, expected):
            yield f"{what}, after version {mark.version}: {each}"
