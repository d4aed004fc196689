"""Inclusions of answers: their forms, and their unchanged transport."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.exchange.inclusion import Inclusion, Prefix, Window
from sources.wire import inclusions
from sources.wire.inclusions import NoInclusion, decode_inclusion, encode_inclusion

LAST = 12


@st.composite
def prefixes(draw: st.DrawFn) -> tuple[Prefix, set[int]]:
    """One of the prefixes that name a set of transactions, and the set."""
    contained = draw(st.sets(st.integers(1, LAST)))
    upto = draw(st.integers(0, LAST))
    besides = tuple(sorted(each for each in contained if each > upto))
    without = tuple(each for each in range(1, upto + 1) if each not in contained)
    return Prefix(upto, besides, without), contained


@settings(deadline=None)
@given(prefixes())
def test_a_set_can_be_told_in_many_ways_and_is_the_same(told: tuple[Prefix, set[int]]) -> None:
    prefix, contained = told
    for one in (prefix, prefix.longest()):
        assert {each for each in range(1, LAST + 2) if one.contains(each)} == contained
    assert not prefix.longest().contains(prefix.longest().upto + 1)
    assert prefix.newest >= max(contained, default=0)


def test_as_many_exceptions_as_an_answer_may_have_are_gone_through_once() -> None:
    """Searching all of them for each one would take most of a minute."""
    last = inclusions._MOST
    assert Prefix(0, tuple(range(1, last + 1))).longest() == Prefix(last)


INCLUSIONS = prefixes().map(lambda told: told[0]) | st.builds(
    lambda low, more: Window(low, low + more), st.integers(0, LAST), st.integers(0, LAST)
)


@settings(deadline=None)
@given(INCLUSIONS)
def test_it_travels_as_it_is(inclusion: Inclusion) -> None:
    assert decode_inclusion(inclusion.version, encode_inclusion(inclusion)) == inclusion


def test_a_source_that_says_nothing_answers_from_its_version() -> None:
    assert decode_inclusion(7, None) == Prefix(7)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "is not JSON"),
        ("7", 'has no "upto", "besides" and "without"'),
        ('{"upto": 7}', 'has no "upto", "besides" and "without"'),
        ('{"upto": "7", "besides": [], "without": []}', "not a version"),
        ('{"upto": true, "besides": [], "without": []}', "not a version"),
        ('{"upto": 7, "besides": [-1], "without": []}', "not a version"),
        ('{"upto": 7, "besides": [7], "without": []}', "wrong side of 7"),
        ('{"upto": 7, "besides": [], "without": [8]}', "wrong side of 7"),
        ('{"upto": 7, "besides": [], "without": [0]}', "wrong side of 7"),
        ('{"upto": 7, "besides": [9, 9], "without": []}', "not in ascending order"),
        ('{"upto": 7, "besides": [], "without": [6, 5]}', "not in ascending order"),
        ('{"upto": 8, "besides": [], "without": []}', "of version 8, the answer of version 7"),
        ('{"window": [7]}', "two versions"),
        ('{"window": [8, 7]}', "ends at 7, before it begins at 8"),
        ('{"window": [5, 7], "upto": 7}', "two versions"),
        ('{"window": [5, 6]}', "of version 6, the answer of version 7"),
    ],
)
def test_what_is_no_inclusion_is_refused(text: str, why: str) -> None:
    with pytest.raises(NoInclusion, match=why):
        decode_inclusion(7, text.encode())
