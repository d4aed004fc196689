"""Where a view may begin: the latest vector without a global transaction in part."""

from collections.abc import Mapping
from itertools import product
from random import Random

import pytest

from protocols.exchange.holdback import GlobalPart, legal_below

Parts = Mapping[str, Mapping[int, GlobalPart]]


def parts(**sources: Mapping[int, str]) -> Parts:
    """Parts from source → version → id; participants are the sources that have a part, and more may
    follow a colon in the id."""
    names = {id_ for each in sources.values() for id_ in each.values()}
    there = {id_: {s for s, each in sources.items() if id_ in each.values()} for id_ in names}
    return {
        source: {v: GlobalPart(i, frozenset(there[i] | set(i.partition(":")[2]))) for v, i in f}
        for source, f in ((source, sorted(each.items())) for source, each in sources.items())
    }


def test_whole_transactions_lower_nothing() -> None:
    found = parts(a={2: "g", 5: "h"}, b={1: "h", 3: "g"})
    assert legal_below({"a": 7, "b": 3}, found) == {"a": 7, "b": 3}


def test_a_part_whose_partner_is_behind_the_vector_is_behind_it_too() -> None:
    found = parts(a={3: "g"}, b={4: "g"})
    assert legal_below({"a": 9, "b": 3}, found) == {"a": 2, "b": 3}


def test_a_part_whose_partner_has_not_come_is_behind_the_vector() -> None:
    assert legal_below({"a": 9, "b": 3}, parts(a={3: "g:b"})) == {"a": 2, "b": 3}


def test_lowering_one_source_tears_at_the_next_and_at_the_one_after_that() -> None:
    found = parts(a={2: "g:b", 5: "h"}, b={4: "h", 6: "i", 8: "k"}, c={1: "k", 7: "i"})
    # g excludes h at a; h excludes i and k at b, and k is the first at c.
    assert legal_below({"a": 9, "b": 9, "c": 9}, found) == {"a": 1, "b": 3, "c": 0}


def test_what_is_whole_before_all_that_is_torn_stays() -> None:
    found = parts(a={1: "g", 4: "h:b", 6: "i"}, b={2: "g", 5: "i"}, c={})
    assert legal_below({"a": 9, "b": 9, "c": 9}, found) == {"a": 3, "b": 4, "c": 9}


def test_sources_that_are_not_asked_about_are_not_waited_for() -> None:
    assert legal_below({"a": 9, "b": 3}, parts(a={3: "g:c"})) == {"a": 9, "b": 3}


@pytest.mark.parametrize("seed", range(100))
def test_it_is_the_latest_of_all_legal_vectors(seed: int) -> None:
    """Compared with all vectors that fit the definition."""
    dice = Random(seed)
    vector = {source: dice.randint(0, 5) for source in "abc"}
    ids = [f"g{number}:{dice.choice(['', 'a', 'c'])}" for number in range(dice.randint(1, 5))]
    found: dict[str, dict[int, str]] = {source: {} for source in vector}
    for id_ in ids:
        for source in dice.sample("abc", dice.randint(1, 3)):
            free = [v for v in range(1, 7) if v not in found[source]]
            found[source][dice.choice(free)] = id_
    known = parts(**found)
    legal = [v for v in _vectors_below(vector) if _is_legal(v, known)]
    latest = {source: max(v[source] for v in legal) for source in vector}
    assert latest in legal
    assert legal_below(vector, known) == latest


def _vectors_below(vector: Mapping[str, int]) -> list[dict[str, int]]:
    ranges = [range(upto + 1) for upto in vector.values()]
    return [dict(zip(vector, versions, strict=True)) for versions in product(*ranges)]


def _is_legal(vector: Mapping[str, int], known: Parts) -> bool:
    inside = {s: {p.id for v, p in each.items() if v <= vector[s]} for s, each in known.items()}
    every = (part for each in known.values() for part in each.values())
    return all(
        len({part.id in inside[source] for source in part.participants}) == 1 for part in every
    )
