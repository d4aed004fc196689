"""The driver without sources: questions asked together, and the order of events."""

from collections import Counter
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.algebra.delta import COUNT
from protocols.algebra.frame import Frame
from protocols.algebra.framelog import VERSION, FrameLog
from protocols.algebra.types import column_type
from protocols.errors import ProtocolBug, SourceViolation
from protocols.exchange.delivery import Channel, Delivery
from protocols.exchange.driver import Driver
from protocols.exchange.holdback import GlobalPart
from protocols.exchange.inclusion import Prefix
from protocols.exchange.mailbox import Mailbox, Received
from protocols.exchange.maintained import Maintained, WantedAnswer
from protocols.exchange.protocol import UNBOUNDED, Install, Work
from protocols.exchange.questions import Answer, Page, Query, Snapshot
from protocols.maintenance.registry import PROTOCOLS
from protocols.views.catalog import Relation
from tests.harness.delivered import at

BIGINT = column_type("BIGINT")
RELATIONS = {source: Relation(source, "r", (("x", BIGINT),)) for source in "ab"}
NOTHING = Frame(pl.DataFrame(schema={"x": pl.Int64, COUNT: pl.Int64}))


def changes(*versions: int) -> pl.DataFrame:
    """Changes in which version v inserts the row v."""
    schema = {"x": pl.Int64, COUNT: pl.Int64, VERSION: pl.Int64}
    return pl.DataFrame([(v, 1, v) for v in versions], schema=schema, orient="row")


@dataclass
class Known:
    """The known parts of global transactions."""

    parts: dict[tuple[str, int], GlobalPart]

    def part_of(self, source: str, version: int) -> GlobalPart | None:
        return self.parts.get((source, version))

    def times(self, source: str, after: int, upto: int) -> np.ndarray:  # noqa: ARG002
        return np.zeros(upto - after, np.int64)

    def sizes(self, source: str, after: int, upto: int) -> np.ndarray:  # noqa: ARG002
        return np.ones(upto - after, np.int64)

    def has_parts(self, source: str, after: int, upto: int) -> bool:
        return any(s == source and after < version <= upto for s, version in self.parts)


class Story:
    """A protocol that records what it sees, and asks each source once per position."""

    width = UNBOUNDED

    def __init__(
        self, parts: dict[tuple[str, int], GlobalPart] | None = None, fifo: bool = True
    ) -> None:
        logs = [{r: FrameLog() for r in RELATIONS.values()} for _ in range(2)]
        self.received: Received[Frame] = Received(logs[0], VECTOR)
        channel = None
        if fifo:
            self.mailbox: Mailbox[Frame] = Mailbox(logs[1], VECTOR)
            channel = Channel(self.received, self.mailbox, lambda _, rows, v: placed_at(rows, v))
        else:
            self.mailbox = Mailbox(self.received, VECTOR)
        refuse = PROTOCOLS["g-strobe"].refuse_global
        self.delivery = Delivery(self.mailbox, list(RELATIONS), Known(parts or {}), refuse, channel)
        self.driver: Driver[Frame] = Driver(self.received)
        self.view = Maintained("v", self.mailbox, self.delivery, fifo)
        self.driver.views.append(self.view)
        self.view.start(self)
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
        # Questions for pages are never equal, so each is counted.
        found = yield [Query(r, ("x",), page=Page(None, 9), position=position) for r in RELATED]
        self.events.append(f"answers {position}: {[each.version for each in found]}")
        return [Install(position, None)]

    def receive(self, source: str, upto: int) -> None:
        arrived = range(self.received.received(source) + 1, upto + 1)
        if arrived:
            self.received.receive(source, upto, {RELATIONS[source]: changes(*arrived)})

    def wave(self) -> None:
        sent = self.driver.send()
        self.waves.append([f"{a.question.source}{a.question.position}" for a in sent])
        for asked in sent:
            left = self.versions[asked.question.source]
            version = left.pop(0) if len(left) > 1 else left[0]
            self.receive(asked.question.source, version)
            self.driver.answered(asked, Answer(NOTHING, Prefix(version)))
        self.driver.hand_over_all()

    def run(self) -> list[int]:
        self.driver.begin()
        while self.driver.open:
            self.wave()
        self.driver.validate()
        return [install.position for install in self.view.take_installs()]


VECTOR = {"a": 0, "b": 0}
RELATED = tuple(RELATIONS.values())


def placed_at(rows: Frame, version: int) -> pl.DataFrame:
    return rows.data.with_columns(pl.lit(version).alias(VERSION))


def test_in_turn_an_answer_comes_behind_the_updates_that_it_contains_and_before_others() -> None:
    story = Story()
    story.receive("a", 5)
    story.view.enqueue_upto({"a": 1})
    assert story.mailbox.received("a") == 1, "the channel lets through one at a time"
    # a answers at 3 and later at 4, b at 1: 5 has been received as well but must stay invisible.
    story.versions = {"a": [3, 4], "b": [1]}
    assert story.run() == [1, 2, 3, 4, 5]
    assert story.events[:4] == ["begin a1", "begin a2", "begin a3", "begin b1"]
    assert story.events[4] == "answers 1: [3, 1]"
    assert story.events.index("begin a4") < story.events.index("answers 2: [4, 1]")
    assert story.waves == [["a1", "b1"], ["a2", "b2", "a3", "b3", "a4", "b4"], ["a5", "b5"]]
    assert story.mailbox.received("a") == 4
    assert story.delivery.enqueued == {"a": 4, "b": 1}


def test_in_turn_no_update_gets_in_line_while_a_question_to_its_source_is_under_way() -> None:
    story = Story()
    story.receive("a", 2)
    story.view.enqueue_upto({"a": 1})
    story.view.begin()
    assert story.driver.may_enqueue(story.view, "a"), "nothing has gone out yet"
    sent = story.driver.send()
    assert not story.driver.may_enqueue(story.view, "a")
    versions = {"a": 1, "b": 0}
    for asked in sent:
        story.driver.answered(asked, Answer(NOTHING, Prefix(versions[asked.question.source])))
    assert not story.driver.may_enqueue(story.view, "a")
    story.driver.hand_over_all()
    assert story.driver.may_enqueue(story.view, "a")


def test_in_turn_answers_come_by_version_and_all_others_in_any_order() -> None:
    for fifo in (True, False):
        story = Story(fifo=fifo)
        story.receive("a", 2)
        story.view.enqueue_upto({"a": 2})
        story.view.begin()
        asked = [each for each in story.driver.send() if each.question.source == "a"]
        story.driver.answered(asked[1], Answer(NOTHING, Prefix(1)))
        heads = [wanted.question.position for _, wanted in story.driver.next_ones()]
        assert heads == ([] if fifo else [2]), "the other answer may be the earlier one"
        story.driver.answered(asked[0], Answer(NOTHING, Prefix(2)))
        heads = [wanted.question.position for _, wanted in story.driver.next_ones()]
        assert heads == ([2] if fifo else [1, 2])


def test_an_answer_waits_until_all_that_it_contains_is_here() -> None:
    story = Story(fifo=False)
    story.receive("a", 1)
    story.view.enqueue_upto({"a": 1})
    story.view.begin()
    for asked in story.driver.send():
        story.driver.answered(asked, Answer(NOTHING, Prefix(0, besides=(2,))))
    assert story.driver.missing() == {"a": 2, "b": 2}
    assert not story.driver.ready()
    story.receive("a", 2)
    story.receive("b", 2)
    assert not story.driver.missing()
    assert len(story.driver.ready()) == 2


def one_forgotten() -> Story:
    """Position 1 is installed and forgotten, position 2 has begun."""
    story = Story(fifo=False)
    story.versions = {"a": [1], "b": [0]}
    story.receive("a", 1)
    story.view.enqueue_upto({"a": 1})
    assert story.run() == [1]
    story.mailbox.forget(1)
    story.receive("a", 2)
    story.view.enqueue_upto({"a": 2})
    story.view.begin()
    return story


def test_what_lacks_an_update_that_is_forgotten_is_asked_again() -> None:
    story = one_forgotten()
    for asked in story.driver.send():
        lacking = (1,) if asked.question.source == "a" else ()
        upto = 2 if asked.question.source == "a" else 0
        story.driver.answered(asked, Answer(NOTHING, Prefix(upto, without=lacking)))
    story.driver.hand_over_all()
    [again] = story.driver.send()
    assert (again.question.source, again.question.position) == ("a", 2)
    story.driver.answered(again, Answer(NOTHING, Prefix(2)))
    story.driver.hand_over_all()
    assert [install.position for install in story.view.take_installs()] == [2]


def test_what_follows_a_prefix_at_once_belongs_to_it() -> None:
    """Named with a shorter prefix, an answer lacks no forgotten transaction."""
    story = one_forgotten()
    for asked in story.driver.send():
        contained = Prefix(0, (1, 2)) if asked.question.source == "a" else Prefix(0)
        story.driver.answered(asked, Answer(NOTHING, contained))
    story.driver.hand_over_all()
    assert not story.driver.send()
    assert [install.position for install in story.view.take_installs()] == [2]


def test_a_protocol_that_counts_on_fifo_is_not_handed_what_is_no_version() -> None:
    story = Story()
    story.receive("a", 2)
    story.view.enqueue_upto({"a": 1})
    story.view.begin()
    for asked in story.driver.send():
        story.driver.answered(asked, Answer(NOTHING, Prefix(2, without=(1,))))
    story.receive("b", 2)
    with pytest.raises(SourceViolation, match="source a does not answer from a single version"):
        story.driver.hand_over_all()


def test_a_protocol_that_counts_on_fifo_is_not_handed_what_is_older_than_its_updates() -> None:
    """It would take the answer of a lagging replica for one that contains them."""
    story = Story()
    story.receive("a", 2)
    story.view.enqueue_upto({"a": 2})
    story.view.begin()
    versions = {"a": 1, "b": 0}
    for asked in story.driver.send():
        story.driver.answered(asked, Answer(NOTHING, Prefix(versions[asked.question.source])))
    with pytest.raises(SourceViolation, match="a answers at version 1 after it has published 2"):
        story.driver.hand_over_all()


def test_in_turn_the_mailbox_is_given_what_was_published() -> None:
    story = Story()
    story.receive("a", 3)
    for version in (1, 2, 3):
        story.delivery.enqueue("a", version)
        found = story.mailbox.change(RELATIONS["a"], version)
        assert found is not None
        assert found.data.rows() == [(version, 1)]


def test_parts_wait_and_get_one_position_with_what_lies_between_them() -> None:
    g, h = (GlobalPart(name, frozenset("ab")) for name in "gh")
    story = Story({("a", 1): g, ("a", 3): h, ("b", 1): h, ("b", 2): g})
    for source, upto in (("a", 4), ("b", 2)):
        story.receive(source, upto)
    for version in range(1, 5):
        story.delivery.enqueue("a", version)
    story.delivery.enqueue("b", 1)
    assert (story.delivery.waiting, story.mailbox.last_position) == (True, 0)
    story.delivery.enqueue("b", 2)
    assert not story.delivery.waiting
    assert at(story.mailbox, 1) == (("a", 1), ("a", 2), ("a", 3), ("b", 1), ("b", 2))
    assert at(story.mailbox, 2) == (("a", 4),)


def test_a_version_gets_in_line_behind_the_one_before_it() -> None:
    story = Story()
    story.receive("a", 3)
    with pytest.raises(ProtocolBug, match="a: 2 was to be enqueued"):
        story.delivery.enqueue("a", 2)


def test_what_a_protocol_cannot_keep_whole_is_named() -> None:
    mailbox: Mailbox[Frame] = Mailbox({}, VECTOR)
    participants = {1: frozenset(["a", "elsewhere"]), 2: frozenset(["a", "b"])}
    known = Known({("a", v): GlobalPart("g", names) for v, names in participants.items()})
    delivery = Delivery(mailbox, ["a", "b"], known, PROTOCOLS["strobe"].refuse_global)
    mailbox.receive("a", 2, {})
    delivery.enqueue("a", 1)
    assert mailbox.last_position == 1, "for this view it is a local one"
    with pytest.raises(
        SourceViolation, match=r"source a, version 2: .*applies transactions atomically"
    ):
        delivery.enqueue("a", 2)


# --------------------------------------------------------------------------------- pieces of work


class Given:
    """A protocol with given pieces of work."""

    def __init__(self, *works: Work[Frame], width: int = UNBOUNDED) -> None:
        self._works = list(works)
        self.width = width

    def begin(self) -> Work[Frame] | None:
        return self._works.pop(0) if self._works else None


def rounds(installs: list[int], *sizes: int) -> Work[Frame]:
    """A piece that asks rounds of these numbers of questions."""
    for size in sizes:
        answers = yield [Query(RELATIONS["a"], ("x",), page=Page(None, 9)) for _ in range(size)]
        assert len(answers) == size
    return [Install(position, None) for position in installs]


def driven(protocol: Given, delivered: int = 5000) -> tuple[Driver[Frame], list[int]]:
    """Runs a protocol with this many delivered transactions of `a`; returns the driver and the
    sizes of the waves."""
    received: Received[Frame] = Received({r: FrameLog() for r in RELATED}, VECTOR)
    mailbox = Mailbox(received, VECTOR)
    received.receive("a", delivered, {})
    refuse = PROTOCOLS["sweep"].refuse_global
    view = Maintained("v", mailbox, Delivery(mailbox, list(RELATIONS), Known({}), refuse))
    view.enqueue_upto({"a": delivered})
    driver: Driver[Frame] = Driver(received)
    driver.views.append(view)
    view.start(protocol)
    waves = []
    driver.begin()
    while driver.open:
        sent = driver.send()
        waves.append(len(sent))
        for asked in sent:
            driver.answered(asked, Answer(NOTHING, Prefix(1)))
        driver.hand_over_all()
    return driver, waves


def shown(driver: Driver[Frame]) -> list[int]:
    [view] = driver.views
    return [install.position for install in view.take_installs()]


def test_the_rounds_of_all_pieces_go_out_together() -> None:
    works = (rounds([1], 1), rounds([2], 3), rounds([3], 1, 2), rounds([], 0, 1), rounds([], 1, 1))
    driver, waves = driven(Given(*works))
    assert shown(driver) == [1, 2, 3]
    assert waves == [1 + 3 + 1 + 1 + 1, 2 + 1], "a round that asks nothing needs no wave"


def test_as_many_pieces_are_at_work_as_the_protocol_wants() -> None:
    for width, waves in ((1, [1, 1, 1, 1]), (2, [2, 2]), (3, [3, 1])):
        driver, found = driven(Given(*(rounds([n], 1) for n in range(1, 5)), width=width))
        assert (shown(driver), found) == ([1, 2, 3, 4], waves)


def test_thousands_of_pieces_that_ask_nothing_are_no_problem() -> None:
    works = [rounds([position]) for position in range(1, 5001)]
    driver, waves = driven(Given(*works))
    assert (shown(driver), waves) == (list(range(1, 5001)), [])


@pytest.mark.parametrize("states", [([2], [1]), ([1, 1],), ([6],)])
def test_states_out_of_order_twice_or_of_nothing_are_a_bug_that_tells_its_story(
    states: tuple[list[int], ...],
) -> None:
    with pytest.raises(ProtocolBug, match=r"(?s)view v: cannot show .*delivered 1 5"):
        driven(Given(*map(rounds, states)), delivered=5)


def test_to_have_nothing_more_to_do_before_all_is_shown_is_a_bug() -> None:
    driver, _ = driven(Given(rounds([1], 1)), delivered=2)
    with pytest.raises(ProtocolBug, match=r"(?s)no work is left at position 2, .*shows 1"):
        driver.validate()


# ----------------------------------------------------------------------------------- several views


def test_what_two_views_ask_alike_goes_out_once_and_each_is_told() -> None:
    logs: dict[Relation, FrameLog] = {r: FrameLog() for r in RELATED}
    received: Received[Frame] = Received(logs, VECTOR)
    driver: Driver[Frame] = Driver(received)
    told: list[tuple[str, int]] = []
    for name in ("one", "two"):
        mailbox = Mailbox(received, VECTOR)
        refuse = PROTOCOLS["sweep"].refuse_global
        delivery = Delivery(mailbox, list(RELATIONS), Known({}), refuse)

        def note(wanted: WantedAnswer[Frame], _: Answer[Frame], found: Snapshot[Frame]) -> None:
            assert isinstance(wanted.asker, Maintained)
            told.append((wanted.asker.name, found.version))

        view = Maintained(name, mailbox, delivery, note=note)
        view.run(asking_once())
        driver.views.append(view)
    [asked] = driver.send()
    driver.answered(asked, Answer(NOTHING, Prefix(0)))
    driver.hand_over_all()
    assert told == [("one", 0), ("two", 0)]


def asking_once() -> Work[Frame]:
    yield [Query(RELATIONS["a"], ("x",))]
    return []


# ------------------------------------------------------------------------------- in line, in bulk

Line: TypeAlias = list[tuple[str, int]]


def lines() -> st.SearchStrategy[Line]:
    """An order of some versions of a and b, ascending within each source."""

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
    """The columns of an order: the source of each entry, and its version."""
    which = np.array(["ab".index(source) for source, _ in line], np.int64)
    return ("a", "b"), which, np.array([version for _, version in line], np.int64)


def story_of(line: Line, parts: dict[tuple[str, int], GlobalPart], fifo: bool) -> Story:
    """A story that has received the whole line."""
    story = Story(parts, fifo)
    for source, upto in Counter(source for source, _ in line).items():
        story.receive(source, upto)
    return story


def placed(story: Story) -> list[Any]:
    last = story.mailbox.last_position
    groups = [at(story.mailbox, position) for position in range(1, last + 1)]
    return [groups, story.delivery.enqueued, story.delivery.waiting, story.mailbox.vector_at(last)]


@pytest.mark.parametrize("fifo", [False, True], ids=["any order", "fifo"])
@given(drawn=lines_with_parts(), edges=st.tuples(*[st.integers(0, 12)] * 2))
@settings(deadline=None)
def test_in_bulk_transactions_get_the_positions_that_they_get_one_by_one(
    fifo: bool, drawn: tuple[Line, dict[tuple[str, int], GlobalPart]], edges: tuple[int, int]
) -> None:
    line, parts = drawn
    one, bulk = (story_of(line, parts, fifo) for _ in range(2))
    for source, version in line:
        one.delivery.enqueue(source, version)
    # Three batches, so that one without parts may come while a part waits.
    first, second = sorted(edges)
    for stretch in (line[:first], line[first:second], line[second:]):
        bulk.delivery.enqueue_each(*columns_of(stretch))
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
    story.receive("a", 2)
    story.receive("b", 1)
    story.delivery.enqueue_each(*columns_of([("a", 1), ("b", 1), ("a", 2)]))
    # Twice each: on arrival, and with its position.
    assert seen[::2] == seen[1::2] == [{"a": 1, "b": 0}, {"a": 1, "b": 1}, {"a": 2, "b": 1}]
