"""The mailbox: versions, positions, and refusals."""

from collections.abc import Mapping

import numpy as np
import pytest

from protocols.algebra.bag import Bag, BagLog, Row
from protocols.algebra.types import column_type
from protocols.errors import ProtocolBug
from protocols.exchange.correction import at_cut
from protocols.exchange.mailbox import Mailbox, Received
from protocols.exchange.questions import Query, Snapshot
from protocols.views.catalog import Relation
from tests.harness.delivered import at

BIGINT = column_type("BIGINT")
R = Relation("a", "r", (("x", BIGINT),))
S = Relation("b", "s", (("y", BIGINT),))


@pytest.fixture
def mailbox() -> Mailbox[Bag]:
    """a:6 and b:1 are the past (position 4); then a:7 = 5, b:2 = 6, a:8 = 7; a:9 has no position.

    Version v of a inserts the row (v).
    """
    mailbox: Mailbox[Bag] = Mailbox({R: BagLog(), S: BagLog()}, {"a": 6, "b": 1}, position=4)
    for version in (7, 8, 9):
        mailbox.receive("a", version, {R: (version, Bag(("x",), {(version,): 1}))})
    mailbox.receive("b", 2, {S: (2, Bag(("y",), {(0,): -1}))})
    assert [mailbox.deliver(at) for at in (("a", 7), ("b", 2), ("a", 8))] == [5, 6, 7]
    return mailbox


def corrected(mailbox: Mailbox[Bag], version: int, cut: int) -> Mapping[Row, int]:
    """An answer without rows, corrected to a cut."""
    nothing = Snapshot(Bag(("x",)), version)
    return at_cut(mailbox, Query(R, ("x",)), nothing, cut).counts


def test_a_cut_knows_the_version_of_every_source(mailbox: Mailbox[Bag]) -> None:
    vectors = [mailbox.vector_at(cut) for cut in (4, 5, 6, 7, 99)]
    assert vectors[0] == {"a": 6, "b": 1}
    assert vectors[1] == {"a": 7, "b": 1}
    assert vectors[2] == {"a": 7, "b": 2}
    assert vectors[3] == vectors[4] == {"a": 8, "b": 2}


def test_an_update_is_found_by_its_position(mailbox: Mailbox[Bag]) -> None:
    assert at(mailbox, 6) == (("b", 2),)
    assert mailbox.change(S, 6) == Bag(("y",), {(0,): -1})
    assert mailbox.change(R, 6) is None
    assert mailbox.change(R, 7) == Bag(("x",), {(8,): 1})


@pytest.mark.parametrize(
    ("version", "cut", "difference"),
    [
        (7, 5, {}),
        (9, 5, {(8,): -1, (9,): -1}),
        (9, 7, {(9,): -1}),
        (6, 7, {(7,): 1, (8,): 1}),
        (6, 4, {}),
        (8, 4, {(7,): -1, (8,): -1}),
    ],
)
def test_the_difference_leads_from_an_answer_to_a_cut_both_ways(
    mailbox: Mailbox[Bag], version: int, cut: int, difference: dict[tuple[int], int]
) -> None:
    assert corrected(mailbox, version, cut) == difference


def test_what_is_received_without_position_lies_behind_every_cut(mailbox: Mailbox[Bag]) -> None:
    assert corrected(mailbox, 9, mailbox.last_position) == {(9,): -1}


def test_what_is_forgotten_is_not_needed_by_later_cuts(mailbox: Mailbox[Bag]) -> None:
    before = corrected(mailbox, 9, 6), corrected(mailbox, 7, 7), mailbox.vector_at(6)
    mailbox.forget(6)
    assert (corrected(mailbox, 9, 6), corrected(mailbox, 7, 7)) == before[:2]
    assert mailbox.vector_at(6) == before[2]
    assert mailbox.last_position == 7
    assert at(mailbox, 7) == (("a", 8),)
    assert mailbox.deliver(("a", 9)) == 8


def test_a_version_received_twice_is_a_bug(mailbox: Mailbox[Bag]) -> None:
    with pytest.raises(ProtocolBug, match="version 9 of source 'a' was received before"):
        mailbox.receive("a", 9, {})


@pytest.mark.parametrize("at", [("a", 8), ("a", 10), ("b", 3)])
def test_positions_follow_each_source_and_what_is_here(
    mailbox: Mailbox[Bag], at: tuple[str, int]
) -> None:
    with pytest.raises(ProtocolBug, match="is next, not"):
        mailbox.deliver(at)


def test_several_versions_may_be_received_in_one_piece() -> None:
    mailbox: Mailbox[Bag] = Mailbox({R: BagLog(), S: BagLog()}, {"a": 0, "b": 0})
    mailbox.receive("a", 3, {})
    assert [mailbox.deliver(("a", version)) for version in (1, 2, 3)] == [1, 2, 3]
    assert mailbox.change(R, 2) is None


def test_positions_given_one_by_one_or_all_at_once_are_the_same() -> None:
    one, other = (Mailbox[Bag]({R: BagLog()}, {"b": 1, "a": 6}, position=4) for _ in range(2))
    order = [("a", 7), ("b", 2), ("b", 3), ("a", 8)]
    for mailbox in (one, other):
        mailbox.receive("a", 8, {})
        mailbox.receive("b", 3, {})
    for entry in order:
        one.deliver(entry)
    other.deliver_each(("a", "b"), np.array([0, 1, 1, 0]), np.array([7, 2, 3, 8]))
    for mailbox in (one, other):
        assert [at(mailbox, position) for position in range(5, 9)] == [(each,) for each in order]
        assert mailbox.last_position == 8
        vectors = [{"b": 1, "a": 7}, {"b": 2, "a": 7}, {"b": 3, "a": 7}, {"b": 3, "a": 8}]
        assert [mailbox.vector_at(cut) for cut in range(5, 9)] == vectors


@pytest.mark.parametrize("versions", [[8], [7, 9], [7, 8, 9, 10]])
def test_an_order_with_a_gap_or_beyond_what_is_here_is_a_bug(versions: list[int]) -> None:
    mailbox = Mailbox[Bag]({R: BagLog()}, {"a": 6})
    mailbox.receive("a", 9, {})
    with pytest.raises(ProtocolBug):
        mailbox.deliver_each(("a",), np.zeros(len(versions), np.int64), np.array(versions))


def test_what_one_of_two_views_still_needs_is_not_forgotten() -> None:
    """They read the same updates in different orders, one of them further than the other."""
    received = Received[Bag]({R: BagLog(), S: BagLog()}, {"a": 0, "b": 0})
    slow, quick = Mailbox(received, {"a": 0}), Mailbox(received, {"a": 1, "b": 0}, position=9)
    for version in (1, 2, 3):
        received.receive("a", version, {R: (version, Bag(("x",), {(version,): 1}))})
    received.receive("b", 1, {S: (1, Bag(("y",), {(0,): 1}))})
    slow.deliver(("a", 1))
    assert [quick.deliver(each) for each in (("a", 2), ("b", 1), ("a", 3))] == [10, 11, 12]
    quick.forget(12)
    assert received.first_arrival == 0
    assert corrected(slow, 0, 1) == {(1,): 1}
    slow.forget(1)
    assert received.first_arrival == 1
    assert received.arrival(1) == ("a", 2)
    assert [slow.deliver(("a", version)) for version in (2, 3)] == [2, 3]
    slow.forget(3)
    assert received.first_arrival == 4
    assert corrected(slow, 0, 3) == {}
    assert received.forgotten("a") == 3
