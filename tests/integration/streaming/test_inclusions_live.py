"""Live runs over sources that answer as databases do: snapshots with exceptions, rows in windows.

The query servers are doubles around real ones: they build answers from the source's own history,
and the source commits while they answer. All else is real except Spark.
"""

import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from infra.localbroker import LocalBroker
from protocols.algebra.expressions_reference import holds
from protocols.checking.verdict import Verdict
from protocols.errors import SourceViolation, WrongUse
from protocols.exchange import correction, driver
from protocols.exchange.inclusion import Inclusion, Prefix, Window
from protocols.exchange.questions import Query
from sources.simulated import queryserver
from sources.wire.messages import answer_stream, decode_question
from tests.cases.stories import KEYED, MIXED, Story
from tests.harness.records import cut
from tests.harness.world import Source, World, start

Held = Counter[tuple[Any, ...]]
#: An answer of a double: rows, and the transactions that they contain.
Told = tuple[Held, Inclusion]
#: Transactions that a source commits during all answers together.
_MEANWHILE = 40


class Double:
    """Answers questions about the sources of a world like some kind of database."""

    def __init__(self, world: World, reads: str, seed: int) -> None:
        self._sources = {source.name: source for source in world.sources.values()}
        self._reads = reads
        self._dice = random.Random(seed)
        self._left = _MEANWHILE
        #: Questions come in parallel.
        self._lock = threading.Lock()
        #: The number of answers with exceptions, or from a window in which a transaction committed.
        self.odd = 0

    def answer(self, ticket: bytes) -> pa.Table:
        with self._lock:
            return self._answered(ticket)

    def _answered(self, ticket: bytes) -> pa.Table:
        query = decode_question(ticket)
        assert isinstance(query, Query)
        source = self._sources[query.source]
        if self._reads == "windows" and query.relation.key:
            names = {*query.columns, *query.relation.key}
            columns = tuple(name for name in query.relation.column_names if name in names)
            query = replace(query, columns=columns)
            rows, inclusion = self._in_window(source, query)
        else:
            rows, inclusion = self._with_holes(source, query)
        return answer_stream(_table(query, rows), inclusion.version, inclusion=inclusion)

    def _commit(self, source: Source) -> None:
        count = min(self._left, self._dice.randint(0, 3))
        self._left -= count
        if count:
            source.commit_at_random(self._dice, count)

    def _with_holes(self, source: Source, query: Any) -> Told:
        """Leaves out some of the last transactions, and all that depend on them."""
        self._commit(source)
        last = source.database.version
        lacking: set[int] = set()
        for version in range(max(1, last - 3), last + 1):
            if self._dice.random() < 0.4 or self._depends(source, version, lacking):
                lacking.add(version)
        contained = set(range(1, last + 1)) - lacking
        # An answer reaches at least as far as an earlier status.
        upto = last if last in lacking else self._dice.randint(max(0, last - 4), last)
        told = Prefix(
            upto,
            tuple(sorted(each for each in contained if each > upto)),
            tuple(sorted(each for each in lacking if each <= upto)),
        )
        self.odd += told.longest() != Prefix(told.longest().upto)
        return self._asked_for(query, _held(source, query, contained)), told

    def _depends(self, source: Source, version: int, earlier: set[int]) -> bool:
        def touched(*versions: int) -> set[Any]:
            return {
                (name, row[0] if _keyed(source, name) else row)
                for v, name, row, _ in source.history
                if v in versions
            }

        return not touched(version).isdisjoint(touched(*earlier))

    def _in_window(self, source: Source, query: Any) -> Told:
        """Reads each key before or after the commits in the window, or both times."""
        low = source.database.version
        before = _held(source, query, set(range(1, low + 1)))
        self._commit(source)
        high = source.database.version
        after = _held(source, query, set(range(1, high + 1)))
        self.odd += before != after
        rows: Held = Counter()
        for key in {row[0] for row in (*before, *after)}:
            moments = self._dice.choice([(before,), (after,), (before, after)])
            rows |= Counter({row: 1 for held in moments for row in held if row[0] == key})
        return self._asked_for(query, rows), Window(low, high)

    def _asked_for(self, query: Any, held: Held) -> Held:
        names = query.relation.column_names
        found = Counter({row: count for row, count in held.items() if _matches(query, names, row)})
        if query.page is not None:
            places = [names.index(column) for column in query.relation.key]
            ordered = sorted(found, key=lambda row: [row[place] for place in places])
            found = Counter({row: found[row] for row in ordered[: query.page.limit]})
        return found


def _matches(query: Any, names: Sequence[str], row: tuple[Any, ...]) -> bool:
    named = dict(zip(names, row, strict=True))
    key = tuple(named[column] for column in query.relation.key)
    after = None if query.page is None else query.page.after
    if after is not None and key <= tuple(after):
        return False
    if query.condition is not None and not holds(query.condition, named):
        return False
    return query.keys is None or any(
        tuple(named[column] for column in keys.columns)
        in set(keys.data.select(keys.columns).iter_rows())
        for keys in query.keys
    )


def _held(source: Source, query: Any, contained: set[int]) -> Held:
    held: Held = Counter()
    for version, name, row, count in source.history:
        if name == query.relation.name and version in contained:
            held[row] += count
    assert min(held.values(), default=0) >= 0, "a state that no database has"
    return +held


def _keyed(source: Source, name: str) -> bool:
    relation = source.catalog.find(source.name, name)
    assert relation is not None
    return bool(relation.key)


def _table(query: Any, rows: Held) -> pa.Table:
    """Rows in key order, as pages require."""
    names, relation = query.relation.column_names, query.relation
    ordered = sorted(rows.elements(), key=repr)
    if relation.key:
        ordered.sort(key=lambda row: [row[names.index(column)] for column in relation.key])
    schema = {name: type_.dtype for name, type_ in relation.columns}
    frame = pl.DataFrame(ordered, schema=schema, orient="row")
    if not query.columns:
        return pa.table({"_count": pa.array([1] * len(ordered), pa.int64())})
    return frame.select(query.columns).to_arrow()


def promise(monkeypatch: pytest.MonkeyPatch, reads: str) -> None:
    """Lets the query servers say of themselves what their answers contain."""
    real = queryserver.status_of

    def status_of(*arguments: Any) -> dict[str, Any]:
        return {**real(*arguments), "reads": reads}

    monkeypatch.setattr(queryserver, "status_of", status_of)


@pytest.fixture
def doubled(monkeypatch: pytest.MonkeyPatch) -> Callable[[World, str, int], Double]:
    """Puts a double in front of the query servers of a world."""

    def put(world: World, reads: str, seed: int) -> Double:
        double = Double(world, reads, seed)
        monkeypatch.setattr(
            queryserver._Service, "_answer", lambda _service, ticket, _turn: double.answer(ticket)
        )
        promise(monkeypatch, reads)
        return double

    return put


def live(
    world: World, protocol: str, seed: int, put: Callable[[World, str, int], Double], reads: str
) -> Double:
    """A complete run: a first state, two batches, a restart, another batch."""
    dice = random.Random(seed)
    world.publish()
    world.commit_at_random(dice, 12)
    world.wait_until_published()
    double = put(world, reads, seed)
    with world.job(protocol=protocol) as job:
        start(job)
        world.commit_at_random(dice, 18)
        world.wait_until_published()
        for batch in cut(world.records_after(job), dice, 2):
            job.take(batch)
    world.wait_until_published()
    with world.job(protocol=protocol) as job:
        start(job)
        job.take(world.records_after(job))
    return double


def verdict(world: World, protocol: str, monkeypatch: pytest.MonkeyPatch) -> Verdict:
    """The verdict of the checker, which reads rows from the real query servers."""
    monkeypatch.undo()
    return world.verdict(protocol)


@pytest.mark.parametrize("story", [MIXED, KEYED], ids=["mixed", "keyed"])
@pytest.mark.parametrize("reads", ["holes", "windows"])
@pytest.mark.parametrize("protocol", ["batched-sweep", "nested-sweep", "sweep"])
def test_a_live_run_over_databases_is_as_consistent_as_claimed(
    broker: LocalBroker,
    topic: str,
    tmp_path: Path,
    protocol: str,
    reads: str,
    story: Story,
    doubled: Callable[[World, str, int], Double],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with World(tmp_path, broker.bootstrap, topic, story) as world:
        double = live(world, protocol, 7, doubled, reads)
        assert double.odd > 5, "vacuous: hardly an answer was anything but a version"
        found = verdict(world, protocol, monkeypatch)
        assert found.verdict == "valid", found.contradiction


def test_a_source_that_goes_on_lacking_what_it_has_published_ends_the_job(
    broker: LocalBroker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a moment it may lack it; longer, and it would be asked for ever."""
    with World(tmp_path, broker.bootstrap, topic, KEYED) as world:
        world.publish()

        def without_the_first(_service: object, ticket: bytes, _turn: object) -> pa.Table:
            query = decode_question(ticket)
            lacking = Prefix(1, without=(1,))
            return answer_stream(_table(query, Counter()), 1, inclusion=lacking)

        monkeypatch.setattr(queryserver._Service, "_answer", without_the_first)
        with (
            world.job(patience_seconds=1.0) as job,
            pytest.raises(SourceViolation, match="for 1 s, its answers have lacked an update"),
        ):
            start(job)


@pytest.mark.parametrize(
    ("reads", "words"),
    [("holes", "snapshots with exceptions"), ("windows", "rows read one by one")],
)
def test_a_protocol_that_needs_fifo_is_refused_before_it_begins(
    broker: LocalBroker,
    topic: str,
    tmp_path: Path,
    reads: str,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with World(tmp_path, broker.bootstrap, topic, KEYED) as world:
        world.publish()
        with world.job(protocol="strobe") as job:
            job.check()
        promise(monkeypatch, reads)
        with (
            world.job(protocol="strobe") as job,
            pytest.raises(WrongUse, match=f"strobe needs every answer .* gives {words}"),
        ):
            job.check()


@pytest.mark.parametrize("reads", ["holes", "windows"])
def test_control_answers_that_are_taken_for_their_version_are_caught(
    broker: LocalBroker,
    topic: str,
    tmp_path: Path,
    reads: str,
    doubled: Callable[[World, str, int], Double],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def believed(received: Any, question: Any, answer: Any) -> Any:
        plain = replace(answer, inclusion=Prefix(answer.inclusion.version))
        return correction.snapshot(received, question, plain)

    verdicts = []
    for seed in range(4):
        directory = tmp_path / str(seed)
        directory.mkdir()
        with World(directory, broker.bootstrap, f"{topic}-{seed}", KEYED) as world:
            monkeypatch.setattr(driver, "snapshot", believed)
            try:
                live(world, "batched-sweep", seed, doubled, reads)
            except SourceViolation:
                return  # a count below zero: noticed while it ran
            verdicts.append(verdict(world, "batched-sweep", monkeypatch).verdict)
        if "invalid" in verdicts:
            return
    raise AssertionError(f"four runs in which answers were believed: {verdicts}")
