"""A reader that ends anywhere goes on with exactly the rest."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import polars as pl
from deltalake import DeltaTable, write_deltalake

from protocols.errors import SourceViolation
from sources.kafka import Kafka
from sources.partitions import Partition, Token
from tests.conformance.reading import Mark, ends_at, outcome
from tests.conformance.stage import Stage, Told
from warehouse.delta import numbered
from warehouse.standing import POSITION_REACHED, Standing, standing_in


def tokens(stage: Stage) -> Iterator[str]:
    """After each record, also within a transaction, the token of the last received version."""
    told = stage.told
    reading, tried = told.reading(), set[tuple[int, Token]]()
    for partition, record in _in_turns(told):
        reading.take(partition, [record])
        version = reading.kept.version
        mark = version, reading.changes.token_after(version)
        if mark not in tried:
            tried.add(mark)
            yield from _rest(told, *mark)
    for version in range(told.last + 1):
        token = reading.changes.token_after(version)
        yield from _rest(told, version, token)
        if told.adapter.has_versions:
            # A token is good for a later version as well: what lies between is repeated.
            yield from _rest(told, min(version + 3, told.last), token)
    middle = told.last // 2
    late = reading.changes.token_after(told.last - 1)
    reading.changes.forget(middle)
    if reading.changes.token_after(told.last - 1) != late:
        yield f"the token after {told.last - 1} is another one when {middle} is forgotten"


def _in_turns(told: Told) -> Iterator[tuple[Partition, tuple[int, bytes]]]:
    """All records, one of each partition in turn."""
    for place in range(max(map(len, told.log.values()))):
        for partition, each in told.log.items():
            if place < len(each):
                yield partition, each[place]


def _rest(told: Told, version: int, token: Token) -> Iterator[str]:
    reading = told.reading_after(version, token).take_all(told.log)
    for each in reading.kept.differences(told.database.committed, told.last):
        yield f"after version {version}, from the token {token}: {each}"
    if reading.changes.fault is not None:
        yield f"after version {version}, from the token {token}: {reading.changes.fault}"


def restarts(stage: Stage) -> Iterator[str]:
    """Across the numbers of a Delta commit, and checked by `resumed`."""
    told = stage.told
    changes = told.reading().take_all(told.log).changes
    digests = told.source.digests(range(told.last + 1))
    with tempfile.TemporaryDirectory() as directory:
        for version in range(0, told.last + 1, 2):
            token = changes.token_after(version)
            mark = Mark(version, token, digests[version])
            if (kept := _through_delta(Path(directory), told, mark)) != mark:
                yield f"a Delta commit makes {kept} of {mark}"
            yield from _rest_after(told, mark)
        yield from _from_a_description(told)
        for version in (0, told.last // 2, told.last) if told.adapter.has_versions else ():
            yield from _rest_after(told, _of_version_01(Path(directory), told, version))


def _from_a_description(told: Told) -> Iterator[str]:
    """A description's token is good although commits went on since the topics' ends were read."""
    database, described = told.database, told.source.describe()
    if described.token is None:
        return
    ends = {partition: (low, low) for partition, (low, _) in ends_at(database).items()}
    where = Kafka(database.bootstrap), ends, described.version, described.token, described.digest
    try:
        told.source.resumed(*where)
    except SourceViolation as refusal:
        yield f"the token of its description is refused: {refusal}"


def _through_delta(directory: Path, told: Told, mark: Mark) -> Mark:
    name = told.source.name
    standing = Standing(7, {name: mark.version}, {name: mark.token}, {name: mark.digest})
    return _committed(directory / "lake", name, standing.numbers())


def _of_version_01(directory: Path, told: Told, version: int) -> Mark:
    """What a lake of version 0.1 has: the offset of the source's only partition, no digest."""
    name, partition = told.source.name, min(told.log)
    before = [
        offset for offset, _ in told.log[partition] if told.versions[partition, offset] <= version
    ]
    numbers = {
        POSITION_REACHED: 7,
        f"viewsweep/version/{name}": version,
        f"viewsweep/offset/{name}": max(before, default=-1) + 1,
    }
    return _committed(directory / f"lake of 0.1, {version}", name, numbers)


def _committed(lake: Path, name: str, numbers: dict[str, int]) -> Mark:
    """What stands in a commit with these numbers."""
    rows = pl.DataFrame({"x": [1]}).to_arrow()
    write_deltalake(lake, rows, mode="append", commit_properties=numbered(numbers))
    found = standing_in(DeltaTable(lake), [name])
    return Mark(found.vector[name], found.tokens[name], found.digests.get(name, 0))


def _rest_after(told: Told, mark: Mark) -> Iterator[str]:
    for each in outcome(told.database, told.relations, mark, "goes on"):
        yield f"after {mark}: {each}"
