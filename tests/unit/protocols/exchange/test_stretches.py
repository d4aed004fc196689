"""A stretch that executors sweep: its view waits for it, and all others continue."""

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pytest

from protocols.algebra.delta import COUNT, POSITION
from protocols.algebra.frame import Frame
from protocols.algebra.framelog import FrameLog
from protocols.algebra.types import column_type
from protocols.errors import ProtocolBug
from protocols.exchange.delivery import Delivery
from protocols.exchange.driver import Driver
from protocols.exchange.inclusion import Prefix
from protocols.exchange.mailbox import Mailbox, Received
from protocols.exchange.maintained import Maintained
from protocols.exchange.protocol import Stretch
from protocols.exchange.questions import Answer, Maintenance, Page, Query
from protocols.exchange.slices import Slice, cut
from protocols.maintenance.registry import PROTOCOLS
from protocols.views.catalog import Relation

RELATION = Relation("a", "r", (("x", column_type("BIGINT")),))
NOTHING = Frame(pl.DataFrame(schema={"x": pl.Int64, COUNT: pl.Int64}))


class Known:
    """Local transactions of one row, of no particular time."""

    def part_of(self, source: str, version: int) -> None:
        """No transaction is part of a global one."""

    def times(self, source: str, after: int, upto: int) -> Any:  # noqa: ARG002
        return np.zeros(upto - after, np.int64)

    def sizes(self, source: str, after: int, upto: int) -> Any:  # noqa: ARG002
        return np.ones(upto - after, np.int64)

    def has_parts(self, source: str, after: int, upto: int) -> bool:  # noqa: ARG002
        return False


class Batches:
    """A protocol that begins all delivered transactions, and asks one question for them."""

    width = 1

    def __init__(self, mailbox: Mailbox[Frame]) -> None:
        self._mailbox = mailbox
        self._begun = 0

    def begin(self) -> Stretch[Frame] | None:
        first, last = self._begun + 1, self._mailbox.last_position
        self._begun = last
        return None if first > last else Stretch(first, last, self.change)

    def change(self, _first: int, last: int) -> Maintenance[Frame, Frame | None]:
        yield [Query(RELATION, ("x",), page=Page(None, 9), position=last)]
        return None


class Views:
    """Two views over one reading; `elsewhere` applies to the first one."""

    def __init__(self, elsewhere: Callable[[Stretch[Frame]], bool] | None) -> None:
        self.received: Received[Frame] = Received({RELATION: FrameLog()}, {"a": 0})
        self.driver: Driver[Frame] = Driver(self.received)
        self.away, self.here = (self._view(name, e) for name, e in (("v", elsewhere), ("w", None)))

    def _view(self, name: str, elsewhere: Any) -> Maintained[Frame]:
        mailbox = Mailbox(self.received, {"a": 0})
        delivery = Delivery(mailbox, ["a"], Known(), PROTOCOLS["sweep"].refuse_global)
        view = Maintained(name, mailbox, delivery, elsewhere=elsewhere)
        self.driver.views.append(view)
        view.start(Batches(mailbox))
        return view

    def deliver(self, upto: int, *views: Maintained[Frame]) -> None:
        if self.received.received("a") < upto:
            self.received.receive("a", upto, {})
        for view in views or (self.away, self.here):
            view.enqueue_upto({"a": upto})
            view.begin()

    def wave(self) -> list[int]:
        """Asks and answers a wave of questions; returns their positions."""
        sent = self.driver.send()
        for asked in sent:
            self.driver.answered(asked, Answer(NOTHING, Prefix(0)))
        self.driver.hand_over_all()
        return [asked.question.position for asked in sent]


def shown(view: Maintained[Frame]) -> list[tuple[int | None, int]]:
    return [(install.first, install.position) for install in view.take_installs()]


def test_another_view_goes_on_while_a_stretch_is_out() -> None:
    views = Views(lambda _: True)
    views.deliver(3)
    [stretch] = views.away.take_stretches()
    assert (stretch.first, stretch.last) == (1, 3)
    assert views.wave() == [3], "only the other view asks"
    assert shown(views.here) == [(1, 3)]
    views.deliver(5)
    assert views.wave() == [5]
    assert shown(views.here) == [(4, 5)]
    assert (views.driver.open, views.away.open, views.here.open) == (True, 1, 0)
    assert not views.away.take_stretches(), "its next batch waits for the one that is out"
    views.driver.validate()


def test_what_was_delivered_meanwhile_follows_in_its_order() -> None:
    views = Views(lambda _: True)
    views.deliver(2, views.away)
    [stretch] = views.away.take_stretches()
    views.deliver(5, views.away)
    change = Frame(NOTHING.data.with_columns(pl.lit(1, pl.Int64).alias(POSITION)))
    views.away.swept(stretch, change)
    [install] = views.away.take_installs()
    assert (install.first, install.position, install.change) == (1, 2, change)
    [following] = views.away.take_stretches()
    assert (following.first, following.last) == (3, 5)
    views.away.swept(following, None)
    assert shown(views.away) == [(3, 5)]
    assert not views.driver.open
    views.driver.validate()


def test_what_is_not_wanted_elsewhere_is_swept_here() -> None:
    views = Views(lambda stretch: stretch.last > 2)
    views.deliver(2)
    assert not views.away.take_stretches()
    assert views.wave() == [2, 2]
    views.deliver(3)
    assert len(views.away.take_stretches()) == 1
    assert views.wave() == [3]


def test_nothing_is_shown_of_a_stretch_whose_sweep_has_failed() -> None:
    """Its executor is silent; the job ends, and Delta tells where to resume."""
    views = Views(lambda _: True)
    views.deliver(2)
    assert views.driver.open, "nobody has taken it"
    views.away.take_stretches()
    views.wave()
    assert (shown(views.away), shown(views.here)) == ([], [(1, 2)])
    assert views.driver.open


def test_a_stretch_is_swept_once() -> None:
    views = Views(lambda _: True)
    views.deliver(2, views.away)
    [stretch] = views.away.take_stretches()
    views.away.swept(stretch, None)
    with pytest.raises(ProtocolBug, match="view v: positions 1 to 2 were not handed out"):
        views.away.swept(stretch, None)


def test_a_transaction_is_in_one_slice_whatever_its_rows() -> None:
    rows = np.array([1, 4, 4, 4, 4, 4, 9, 9])
    assert cut(rows, 1, 9, 1) == [Slice(1, 9)]
    assert cut(rows, 1, 9, 2) == [Slice(1, 3), Slice(4, 9)]
    assert cut(rows, 1, 9, 8) == [Slice(1, 3), Slice(4, 8), Slice(9, 9)]
