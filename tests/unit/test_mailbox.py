"""The mailbox: what it knows of versions and positions, and what it refuses."""

import pytest

from protocols.algebra.bag import Bag, BagLog
from protocols.algebra.types import column_type
from protocols.errors import ProtocolBug
from protocols.maintenance.mailbox import Mailbox
from protocols.views.catalog import Relation

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


def test_a_cut_knows_the_version_of_every_source(mailbox: Mailbox[Bag]) -> None:
    vectors = [mailbox.vector_at(cut) for cut in (4, 5, 6, 7, 99)]
    assert vectors[0] == {"a": 6, "b": 1}
    assert vectors[1] == {"a": 7, "b": 1}
    assert vectors[2] == {"a": 7, "b": 2}
    assert vectors[3] == vectors[4] == {"a": 8, "b": 2}


def test_an_update_is_found_by_its_position(mailbox: Mailbox[Bag]) -> None:
    assert mailbox.at(6) == (("b", 2),)
    assert mailbox.change(S, 6) == Bag(("y",), {(0,): -1})
    assert mailbox.change(R, 6) is None
    assert mailbox.change(R, 7) == Bag(("x",), {(8,): 1})


@pytest.mark.parametrize(
    ("version", "cut", "difference"),
    [
        (7, 5, None),
        (9, 5, {(8,): -1, (9,): -1}),
        (9, 7, {(9,): -1}),
        (6, 7, {(7,): 1, (8,): 1}),
        (6, 4, None),
        (8, 4, {(7,): -1, (8,): -1}),
    ],
)
def test_the_difference_leads_from_an_answer_to_a_cut_both_ways(
    mailbox: Mailbox[Bag], version: int, cut: int, difference: dict[tuple[int], int] | None
) -> None:
    found = mailbox.difference(R, version, cut)
    assert (None if found is None else found.counts) == difference


def test_what_is_received_without_position_lies_behind_every_cut(mailbox: Mailbox[Bag]) -> None:
    found = mailbox.difference(R, 9, mailbox.last_position)
    assert found is not None
    assert found.counts == {(9,): -1}


def test_it_has_caught_up_with_what_it_received(mailbox: Mailbox[Bag]) -> None:
    assert mailbox.received("a") == 9
    assert mailbox.caught_up("a", 9)
    assert not mailbox.caught_up("a", 10)


def test_what_is_forgotten_is_not_needed_by_later_cuts(mailbox: Mailbox[Bag]) -> None:
    before = mailbox.difference(R, 9, 6), mailbox.difference(R, 7, 7), mailbox.vector_at(6)
    mailbox.forget(6)
    assert (mailbox.difference(R, 9, 6), mailbox.difference(R, 7, 7)) == before[:2]
    assert mailbox.vector_at(6) == before[2]
    assert mailbox.last_position == 7
    assert mailbox.at(7) == (("a", 8),)
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
