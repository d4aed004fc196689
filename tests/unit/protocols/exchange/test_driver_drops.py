"""A view that fails is dropped from the driver: the others go on, and nothing is kept for it."""

import pytest

from protocols.algebra.frame import Frame
from protocols.algebra.framelog import FrameLog
from protocols.exchange.copies import Copy
from protocols.exchange.copying import Copying
from protocols.exchange.delivery import Delivery
from protocols.exchange.driver import Driver
from protocols.exchange.inclusion import Prefix
from protocols.exchange.mailbox import Mailbox, Received
from protocols.exchange.maintained import Asker, Maintained
from protocols.exchange.protocol import UNBOUNDED, Install, Work
from protocols.exchange.questions import Answer, Query
from protocols.maintenance.registry import PROTOCOLS
from tests.unit.protocols.exchange.test_driver import (
    NOTHING,
    RELATIONS,
    VECTOR,
    Known,
    Story,
    changes,
)

A, B = RELATIONS["a"], RELATIONS["b"]


class _OutOfOrder(Exception):
    """The error of a protocol."""


class Asking:
    """Asks the relation `b.r` once for each position; may fail at an answer."""

    width = UNBOUNDED

    def __init__(self, mailbox: Mailbox[Frame], fails: bool) -> None:
        self._mailbox, self._fails = mailbox, fails
        self._begun = 0

    def begin(self) -> Work[Frame] | None:
        if self._begun == self._mailbox.last_position:
            return None
        self._begun += 1
        return self._work(self._begun)

    def _work(self, position: int) -> Work[Frame]:
        yield [Query(B, ("x",), position=position)]
        if self._fails:
            raise _OutOfOrder("this view has failed")
        return [Install(position, None)]


class Two:
    """View `one` over the sources a and b, which may fail; view `two` over b alone."""

    def __init__(self, one_fails: bool = True) -> None:
        self.logs = {relation: FrameLog() for relation in (A, B)}
        self.received: Received[Frame] = Received(self.logs, VECTOR)
        self.driver: Driver[Frame] = Driver(self.received)
        self.one = self._view("one", "ab", one_fails)
        self.two = self._view("two", "b", False)
        self.failed: list[str] = []

    def _view(self, name: str, sources: str, fails: bool) -> Maintained[Frame]:
        mailbox = Mailbox(self.received, dict.fromkeys(sources, 0))
        refuse = PROTOCOLS["sweep"].refuse_global
        view = Maintained(name, mailbox, Delivery(mailbox, list(sources), Known({}), refuse))
        view.start(Asking(mailbox, fails))
        self.driver.views.append(view)
        return view

    def drop_failed(self) -> None:
        """From now on a view that fails is dropped."""

        def drop(asker: Asker[Frame], error: BaseException) -> None:
            assert isinstance(asker, Maintained)
            assert isinstance(error, _OutOfOrder)
            self.failed.append(asker.name)
            self.driver.drop(asker)

        self.driver.failed = drop

    def receive(self, upto: int) -> None:
        """Receives versions of both sources and delivers them."""
        for relation in (A, B):
            after = self.received.received(relation.source)
            rows = changes(*range(after + 1, upto + 1))
            self.received.receive(relation.source, upto, {relation: rows})
        for view in self.driver.views:
            view.enqueue_upto({"a": upto, "b": upto})

    def wave(self) -> int:
        """Answers all questions that are to be sent; returns their number."""
        self.driver.begin()
        sent = self.driver.send()
        for asked in sent:
            self.driver.answered(asked, Answer(NOTHING, Prefix(self.received.received("b"))))
        self.driver.hand_over_all()
        return len(sent)


def test_an_error_of_a_view_is_raised_unless_somebody_takes_it() -> None:
    two = Two()
    two.receive(1)
    with pytest.raises(_OutOfOrder):
        two.wave()


def test_the_other_view_gets_the_answers_that_both_wanted_and_goes_on() -> None:
    two = Two()
    two.drop_failed()
    two.receive(2)
    assert two.wave() == 1, "equal questions go out once"
    assert two.failed == ["one"]
    assert [install.position for install in two.two.take_installs()] == [1, 2]
    two.receive(3)
    assert two.wave() == 1
    assert [install.position for install in two.two.take_installs()] == [3]
    assert two.driver.views == [two.two]
    assert not two.driver.open
    assert not two.driver.unanswered
    assert two.one.open == 0


def test_a_question_of_the_view_alone_is_expected_no_more() -> None:
    two = Two()
    two.receive(1)
    two.one.begin()
    assert len(two.driver.send()) == 1
    two.driver.drop(two.one)
    assert not two.driver.unanswered
    assert not two.driver.holds_answers


def test_no_update_is_kept_for_the_view_and_those_of_others_are() -> None:
    two = Two(one_fails=False)
    two.receive(3)
    two.driver.forget()
    assert [log.rows() is None for log in two.logs.values()] == [False, False]
    two.driver.drop(two.one)
    two.driver.forget()
    assert [log.rows() is None for log in two.logs.values()] == [True, False]
    two.receive(5)
    two.driver.forget()
    assert [log.rows() is None for log in two.logs.values()] == [True, False]
    two.two.mailbox.forget(5)
    assert [log.rows() is None for log in two.logs.values()] == [True, True]


def test_a_view_behind_a_channel_leaves_the_updates_as_well() -> None:
    story = Story(fifo=True)
    story.receive("a", 2)
    story.driver.forget()
    assert story.received.forgotten("a") == 0
    story.driver.drop(story.view)
    story.driver.forget()
    assert story.received.forgotten("a") == 2


def test_copies_go_with_the_last_view_that_reads_their_source() -> None:
    two = Two()
    told: list[int] = []
    for relation in (A, B):
        Copying(two.driver, relation, 9, lambda rows, _: told.append(rows))
    assert len(two.driver.send()) == 2
    for relation in (A, B):
        two.driver.router.add(Copy(relation, two.received, NOTHING, 0))
    two.driver.drop(two.one)
    assert list(two.driver.router.copies) == [B]
    assert [each.mailbox.sources for each in two.driver.asking] == [("b",)]
    assert [asked.question.source for asked in two.driver.unanswered] == ["b"]
    two.receive(2)
    two.driver.forget()
    assert two.logs[A].rows() is None
