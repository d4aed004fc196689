"""Driving pieces of work without any source: what is asked together, and what comes before what."""

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import polars as pl
import pytest
from delivered import at
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.algebra.delta import COUNT
from protocols.algebra.frame import VERSION, Frame, FrameLog
from protocols.algebra.types import column_type
from protocols.errors import ProtocolBug, SourceViolation
from protocols.exchange.holdback import GlobalPart
from protocols.exchange.mailbox import Mailbox, Received
from protocols.exchange.protocol import Install, Work
from protocols.exchange.questions import Query, Question, Snapshot
from protocols.maintenance.registry import PROTOCOLS
from protocols.views.catalog import Relation
from streaming.driving import Channel, Delivery, InTurn, Pieces
from streaming.stopping import Stopped

BIGINT = column_type("BIGINT")
RELATIONS = {source: Relation(source, "r", (("x", BIGINT),)) for source in "ab"}
NOTHING = Frame(pl.DataFrame(schema={"x": pl.Int64, COUNT: pl.Int64}))


def changes(*versions: int) -> pl.DataFrame:
    """Version v inserts the row v."""
    schema = {"x": pl.Int64, COUNT: pl.Int64, VERSION: pl.Int64}
    return pl.DataFrame([(v, 1, v) for v in versions], schema=schema, orient="row")


@dataclass
class Known:
    """Which transactions are parts of global ones."""

    parts: dict[tuple[str, int], GlobalPart]

    def part_of(self, source: str, version: int) -> GlobalPart | None:
        return self.parts.get((source, version))

    def has_parts(self, source: str, after: int, upto: int) -> bool:
        return any(s == source and after < version <= upto for s, version in self.parts)


class Story:
    """A protocol that notes what it sees, and asks each source once per position."""

    def __init__(self, parts: dict[tuple[str, int], GlobalPart] | None = None) -> None:
        logs = [{r: FrameLog() for r in RELATIONS.values()} for _ in range(2)]
        self.received: Received[Frame] = Received(logs[0], VECTOR)
        self.mailbox: Mailbox[Frame] = Mailbox(logs[1], VECTOR)
        self.channel = Channel(self.received, self.mailbox)
        self.delivery = Delivery(
            PROTOCOLS["g-strobe"],
            self.mailbox,
            list(RELATIONS),
            Known(parts or {}),
            self.channel,
        )
        self.events: list[str] = []
        #: The questions of each wave.
        self.waves: list[list[str]] = []
        #: Source → the versions of its next answers.
        self.versions: dict[str, list[int]] = {"a": [], "b": []}
        self._begun = 0

    def begin(self) -> Work[Frame] | None:
        received = {s: self.mailbox.received(s) for s in RELATIONS}
        if self._begun == self.mailbox.last_position:
            return None
        self._begun += 1
        group = "+".join(f"{s}{v}" for s, v in at(self.mailbox, self._begun))
        self.events.append(f"begin {group}")
        assert all(received[s] >= self.mailbox.version_at(s, self._begun) for s in received)
        return self._work(self._begun)

    def _work(self, position: int) -> Work[Frame]:
        answers = yield [Query(r, ("x",), position=position) for r in RELATIONS.values()]
        self.events.append(f"answers {position}: {[answer.version for answer in answers]}")
        return [Install(position, None)]

    def ask(self, questions: list[Question[Frame]]) -> list[Snapshot[Frame]]:
        self.waves.append([f"{q.source}{q.position}" for q in questions])
        return [self._answer(question.source) for question in questions]

    def _answer(self, source: str) -> Snapshot[Frame]:
        left = self.versions[source]
        version = left.pop(0) if len(left) > 1 else left[0]
        if version > self.received.received(source):
            arrived = range(self.received.received(source) + 1, version + 1)
            self.received.receive(source, version, {RELATIONS[source]: changes(*arrived)})
        return Snapshot(NOTHING, version)


VECTOR = {"a": 0, "b": 0}


def in_turn(story: Story) -> InTurn:
    return InTurn(story, threading.Event(), story.delivery)


Asking: TypeAlias = Callable[[list[Question[Frame]]], list[Snapshot[Frame]]]


def wave(pieces: Pieces, ask: Asking) -> None:
    pieces.answered(ask(pieces.asked()))


def run(pieces: Pieces, ask: Asking) -> list[int]:
    pieces.begin()
    while pieces.open:
        wave(pieces, ask)
    return [install.position for install in pieces.take_installs()]


def receive(story: Story, source: str, upto: int) -> None:
    story.received.receive(source, upto, {RELATIONS[source]: changes(*range(1, upto + 1))})


def test_in_turn_an_answer_comes_behind_the_updates_that_it_contains_and_before_others() -> None:
    story = Story()
    pieces = in_turn(story)
    receive(story, "a", 5)
    story.delivery.get_in_line("a", 1)
    assert story.mailbox.received("a") == 1, "the channel lets through one at a time"
    # a answers at 3 and later at 4, b at 1: 5 has been received as well but nobody may see it.
    story.versions = {"a": [3, 4], "b": [1]}
    assert run(pieces, story.ask) == [1, 2, 3, 4, 5]
    assert story.events[:4] == ["begin a1", "begin a2", "begin a3", "begin b1"]
    assert story.events[4] == "answers 1: [3, 1]"
    assert story.events.index("begin a4") < story.events.index("answers 2: [4, 1]")
    assert story.waves == [["a1", "b1"], ["a2", "b2", "a3", "b3", "a4", "b4"], ["a5", "b5"]]
    assert story.mailbox.received("a") == 4
    assert story.delivery.in_line == {"a": 4, "b": 1}


def test_in_turn_the_mailbox_is_given_what_was_published() -> None:
    story = Story()
    receive(story, "a", 3)
    for version in (1, 2, 3):
        story.delivery.get_in_line("a", version)
        found = story.mailbox.change(RELATIONS["a"], version)
        assert found is not None
        assert found.data.rows() == [(version, 1)]


def test_parts_wait_and_get_one_position_with_what_lies_between_them() -> None:
    g, h = (GlobalPart(name, frozenset("ab")) for name in "gh")
    story = Story({("a", 1): g, ("a", 3): h, ("b", 1): h, ("b", 2): g})
    for source, upto in (("a", 4), ("b", 2)):
        receive(story, source, upto)
    for version in range(1, 5):
        story.delivery.get_in_line("a", version)
    story.delivery.get_in_line("b", 1)
    assert (story.delivery.waiting, story.mailbox.last_position) == (True, 0)
    story.delivery.get_in_line("b", 2)
    assert not story.delivery.waiting
    assert at(story.mailbox, 1) == (("a", 1), ("a", 2), ("a", 3), ("b", 1), ("b", 2))
    assert at(story.mailbox, 2) == (("a", 4),)


def test_what_a_protocol_cannot_keep_whole_is_named() -> None:
    mailbox: Mailbox[Frame] = Mailbox({}, VECTOR)
    participants = {1: frozenset(["a", "elsewhere"]), 2: frozenset(["a", "b"])}
    known = Known({("a", v): GlobalPart("g", names) for v, names in participants.items()})
    delivery = Delivery(PROTOCOLS["strobe"], mailbox, ["a", "b"], known)
    mailbox.receive("a", 2, {})
    delivery.get_in_line("a", 1)
    assert mailbox.last_position == 1, "for this view it is a local one"
    with pytest.raises(SourceViolation, match=r"source a, version 2: .*keeps transactions of one"):
        delivery.get_in_line("a", 2)


class Given:
    """A protocol whose pieces are given."""

    def __init__(self, *works: Work[Frame]) -> None:
        self._works = list(works)

    def begin(self) -> Work[Frame] | None:
        return self._works.pop(0) if self._works else None


def rounds(installs: list[int], *sizes: int) -> Work[Frame]:
    """A piece that asks rounds of so many questions."""
    for size in sizes:
        answers = yield [Query(RELATIONS["a"], ("x",)) for _ in range(size)]
        assert len(answers) == size
    return [Install(position, None) for position in installs]


def asking(sizes: list[int]) -> Asking:
    def ask(questions: list[Question[Frame]]) -> list[Snapshot[Frame]]:
        sizes.append(len(questions))
        return [Snapshot(NOTHING, 1) for _ in questions]

    return ask


def test_the_rounds_of_all_pieces_go_out_together() -> None:
    waves: list[int] = []
    works = (rounds([1], 1), rounds([2], 3), rounds([3], 1, 2), rounds([], 0, 1), rounds([], 1, 1))
    pieces = Pieces(Given(*works), threading.Event())
    pieces.begin()
    assert pieces.open == 5
    assert run(pieces, asking(waves)) == [1, 2, 3]
    assert waves == [1 + 3 + 1 + 1, 2 + 1 + 1]


def test_thousands_of_pieces_that_ask_nothing_are_no_problem() -> None:
    works = [rounds([position]) for position in range(1, 5001)]
    assert run(Pieces(Given(*works), threading.Event()), asking([])) == list(range(1, 5001))


def test_states_out_of_order_are_a_bug() -> None:
    with pytest.raises(ProtocolBug, match=r"\[2, 1\]"):
        run(Pieces(Given(rounds([2]), rounds([1])), threading.Event()), asking([]))


def test_a_long_piece_stops_when_told_to() -> None:
    stopping = threading.Event()
    waves: list[int] = []
    ask = asking(waves)

    def ask_and_stop(questions: list[Question[Frame]]) -> list[Snapshot[Frame]]:
        if len(waves) == 2:
            stopping.set()
        return ask(questions)

    with pytest.raises(Stopped):
        run(Pieces(Given(rounds([1], *[1] * 1000)), stopping), ask_and_stop)
    assert len(waves) == 3


# ------------------------------------------------------------------------------- in line, in bulk

Line: TypeAlias = list[tuple[str, int]]


def lines() -> st.SearchStrategy[Line]:
    """An order of some versions of a and b, each source's own ascending."""

    def line(sources: list[str]) -> Line:
        seen: Counter[str] = Counter()
        found = []
        for source in sources:
            seen[source] += 1
            found.append((source, seen[source]))
        return found

    return st.lists(st.sampled_from("ab"), max_size=12).map(line)


@st.composite
def lines_with_parts(draw: st.DrawFn) -> tuple[Line, dict[tuple[str, int], GlobalPart]]:
    """Global transactions pair a version of a with one of b, in the same order at both."""
    line = draw(lines())
    own = {s: [version for source, version in line if source == s] for s in "ab"}
    fewest = min(map(len, own.values()))
    count = draw(st.integers(0, fewest))
    picked = {s: sorted(draw(st.permutations(own[s]))[:count]) for s in "ab"}
    parts = {
        (source, version): GlobalPart(f"g{number}", frozenset("ab"))
        for source in "ab"
        for number, version in enumerate(picked[source])
    }
    return line, parts


def columns_of(line: Line) -> tuple[tuple[str, str], np.ndarray, np.ndarray]:
    """As the feeds give an order: which of the sources, and the versions."""
    which = np.array(["ab".index(source) for source, _ in line], np.int64)
    return ("a", "b"), which, np.array([version for _, version in line], np.int64)


def story_of(line: Line, parts: dict[tuple[str, int], GlobalPart], fifo: bool) -> Story:
    """All of the line has been received."""
    story = Story(parts)
    if not fifo:
        entry = PROTOCOLS["batched-sweep"]
        story.delivery = Delivery(entry, story.mailbox, list(RELATIONS), Known(parts))
    receiver = story.received if fifo else story.mailbox
    for source, upto in Counter(source for source, _ in line).items():
        receiver.receive(source, upto, {RELATIONS[source]: changes(*range(1, upto + 1))})
    return story


def placed(story: Story) -> list[Any]:
    last = story.mailbox.last_position
    groups = [at(story.mailbox, position) for position in range(1, last + 1)]
    return [groups, story.delivery.in_line, story.delivery.waiting, story.mailbox.vector_at(last)]


@pytest.mark.parametrize("fifo", [False, True], ids=["any order", "fifo"])
@given(drawn=lines_with_parts(), edges=st.tuples(*[st.integers(0, 12)] * 2))
@settings(deadline=None)
def test_in_bulk_transactions_get_the_positions_that_they_get_one_by_one(
    fifo: bool, drawn: tuple[Line, dict[tuple[str, int], GlobalPart]], edges: tuple[int, int]
) -> None:
    line, parts = drawn
    one, bulk = (story_of(line, parts, fifo) for _ in range(2))
    for source, version in line:
        one.delivery.get_in_line(source, version)
    # Three batches, so that one without parts may come while a part waits.
    first, second = sorted(edges)
    for stretch in (line[:first], line[first:second], line[second:]):
        bulk.delivery.get_all_in_line(*columns_of(stretch))
    assert placed(bulk) == placed(one)
    groups, *_ = placed(bulk)
    delivered = [each for group in groups for each in group]
    if not parts:
        assert groups == [(each,) for each in line]
    assert not story_is_torn(groups, parts)
    assert len(delivered) == len(line) or bulk.delivery.waiting


def story_is_torn(groups: list[Any], parts: dict[tuple[str, int], GlobalPart]) -> bool:
    """Whether any position has one part of a global transaction and not the other."""
    ids = [[parts[each].id for each in group if each in parts] for group in groups]
    return any(Counter(each) != Counter(dict.fromkeys(each, 2)) for each in ids)


def test_in_bulk_a_fifo_protocol_sees_one_transaction_after_the_other() -> None:
    story = Story()
    seen: list[dict[str, int]] = []
    story.delivery.happened = lambda: seen.append(
        {source: story.mailbox.received(source) for source in "ab"}
    )
    receive(story, "a", 2)
    receive(story, "b", 1)
    story.delivery.get_all_in_line(*columns_of([("a", 1), ("b", 1), ("a", 2)]))
    # Twice each: when it has come, and when it has its position.
    assert seen[::2] == seen[1::2] == [{"a": 1, "b": 0}, {"a": 1, "b": 1}, {"a": 2, "b": 1}]
