"""Records come in pieces of any size, partitions in any order, and stretches come again."""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import HypothesisWarning

from sources.partitions import Partition
from tests.conformance.reading import Piece, Reading
from tests.conformance.stage import Stage, Told

#: The places among records at which a killed publisher may go on.
GoOn: TypeAlias = Callable[[Sequence[bytes]], Sequence[int]]
_EXAMPLES = 40
#: At most so many stretches are repeated in a partition.
_AGAIN = 3


def change_nothing(stage: Stage) -> Iterator[str]:
    """The same transactions come, and their tokens go on after them."""
    told = stage.told

    def check(pieces: Sequence[Piece], version: int) -> None:
        reading = told.reading()
        for each in pieces:
            reading.take(*each)
        _refuse(reading, told)
        token = reading.changes.token_after(version)
        _refuse(told.reading_after(version, token).take_all(_written(pieces)), told)

    yield from _broken(check, _pieces(told), st.integers(0, told.last))


def is_whole(stage: Stage) -> Iterator[str]:
    """`is_whole_up_to` and `version_up_to` at any offsets, after any pieces."""
    told = stage.told

    def check(pieces: Sequence[Piece], taken: float, back: Sequence[int]) -> None:
        reading, written = told.reading(), _written(pieces)
        for each in pieces[: round(taken * len(pieces))]:
            reading.take(*each)
        received, read = reading.kept.version, reading.changes.next
        ends = {
            partition: min(max(read[partition] - records, each[0][0]), each[-1][0] + 1)
            for (partition, each), records in zip(written.items(), back, strict=True)
        }
        below = {
            (partition, offset): told.database.version_of(value)
            for partition, end in ends.items()
            for offset, value in written[partition]
            if offset < end
        }
        known = [version for version in below.values() if version is not None]
        if any(version > received for version in known):
            assert not reading.changes.is_whole_up_to(ends), f"{ends} is said to be whole"
        elif len(known) == len(below) and all(o < read[p] for p, o in below):
            assert reading.changes.is_whole_up_to(ends), f"{ends} is said not to be whole"
        last = max((version for version in known if version <= received), default=0)
        found = reading.changes.version_up_to(ends)
        assert found == last, f"up to {ends} it is version {last}, not {found}"

    # Offsets near the last ones that were read.
    back = st.lists(st.integers(-4, 12), min_size=len(told.log), max_size=len(told.log))
    yield from _broken(check, _pieces(told), st.floats(0, 1), back)


def _refuse(reading: Reading, told: Told) -> None:
    assert reading.changes.fault is None, reading.changes.fault
    found = list(reading.kept.differences(told.database.committed, told.last))
    assert not found, found


def _broken(check: Callable[..., None], *drawn: st.SearchStrategy[Any]) -> Iterator[str]:
    """The first failure of a check of drawn values, not shrunk."""
    tried = settings(
        max_examples=_EXAMPLES,
        phases=[Phase.generate],
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    try:
        with warnings.catch_warnings():
            # The pieces are large, which concerns only how a failure is shown.
            warnings.simplefilter("ignore", HypothesisWarning)
            tried(given(*drawn)(check))()
    except AssertionError as error:
        yield str(error)


@st.composite
def _pieces(draw: st.DrawFn, told: Told) -> list[Piece]:
    """Partitions with repeated stretches, cut into pieces and interleaved."""
    go_on = told.adapter.may_go_on
    cut = {p: draw(_cut(_again(draw, each, go_on), each[0][0])) for p, each in told.log.items()}
    turns = draw(st.permutations([p for p, pieces in cut.items() for _ in pieces]))
    left = {partition: iter(pieces) for partition, pieces in cut.items()}
    return [(partition, next(left[partition])) for partition in turns]


def _again(draw: st.DrawFn, each: Sequence[tuple[int, bytes]], go_on: GoOn) -> list[bytes]:
    """The records of a partition; now and then the publisher goes back and sends again."""
    values = [value for _, value in each]
    places = go_on(values)
    written, at = [], 0
    for _ in range(draw(st.integers(0, _AGAIN))):
        upto = draw(st.integers(at, len(values)))
        written += values[at:upto]
        at = draw(st.sampled_from([place for place in places if place <= upto]))
    return written + values[at:]


@st.composite
def _cut(draw: st.DrawFn, values: Sequence[bytes], begin: int) -> list[Sequence[tuple[int, bytes]]]:
    """Records with new offsets, in pieces."""
    numbered = list(enumerate(values, begin))
    edges = draw(st.lists(st.integers(0, len(values)), max_size=6))
    borders = sorted({0, len(values), *edges})
    return [numbered[a:b] for a, b in pairwise(borders)]


def _written(pieces: Sequence[Piece]) -> Mapping[Partition, list[tuple[int, bytes]]]:
    """What these pieces make of the partitions."""
    found: dict[Partition, list[tuple[int, bytes]]] = {}
    for partition, piece in pieces:
        found.setdefault(partition, []).extend(piece)
    return found
