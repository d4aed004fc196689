"""Hold-back: global transactions get one position, and nothing overtakes within a source."""

from random import Random

import pytest

from protocols.errors import SourceViolation
from protocols.exchange.holdback import GlobalPart, HoldBack, Incomplete


def part(name: str, sources: str = "ab") -> GlobalPart:
    return GlobalPart(name, frozenset(sources))


@pytest.fixture
def held() -> HoldBack:
    return HoldBack("abc")


def test_a_local_transaction_waits_for_nothing(held: HoldBack) -> None:
    held.arrived("a", 1)
    held.arrived("b", 7)
    assert sorted(held.ready()) == [(("a", 1),), (("b", 7),)]
    held.take((("a", 1),))
    assert held.ready() == [(("b", 7),)]


def test_a_part_waits_for_the_others_and_holds_up_what_is_behind_it(held: HoldBack) -> None:
    held.arrived("a", 1, part("g"))
    held.arrived("a", 2)
    assert held.ready() == []
    assert held.waiting()
    held.arrived("b", 1, part("g"))
    (group,) = held.ready()
    assert group == (("a", 1), ("b", 1))
    held.take(group)
    assert held.ready() == [(("a", 2),)]


def test_what_stands_before_a_part_goes_first_by_itself(held: HoldBack) -> None:
    held.arrived("a", 1, part("g"))
    held.arrived("b", 1)
    held.arrived("b", 2, part("g"))
    assert held.ready() == [(("b", 1),)]
    held.take((("b", 1),))
    assert held.ready() == [(("a", 1), ("b", 2))]


def test_opposite_orders_at_two_sources_become_one_position(held: HoldBack) -> None:
    """No legal vector is between g and h, nor between them and the transaction in the middle."""
    for version, each in enumerate((part("g"), None, part("h")), 1):
        held.arrived("a", version, each)
    held.arrived("b", 1, part("h"))
    assert held.ready() == []
    held.arrived("b", 2, part("g"))
    assert held.ready() == [(("a", 1), ("a", 2), ("a", 3), ("b", 1), ("b", 2))]


def test_a_chain_of_globals_is_complete_only_with_its_last_part(held: HoldBack) -> None:
    held.arrived("a", 1, part("g", "ab"))
    held.arrived("b", 1, part("h", "bc"))
    held.arrived("b", 2, part("g", "ab"))
    held.arrived("c", 1)
    assert held.ready() == [(("c", 1),)]
    held.take((("c", 1),))
    held.arrived("c", 2, part("h", "bc"))
    assert held.ready() == [(("b", 1), ("c", 2))]


def test_a_participant_that_no_queue_is_kept_for_is_not_waited_for(held: HoldBack) -> None:
    held.arrived("a", 1, part("g", "az"))
    assert held.ready() == [(("a", 1),)]


def test_a_source_has_one_part_of_a_global_transaction(held: HoldBack) -> None:
    held.arrived("a", 1, part("g"))
    with pytest.raises(
        SourceViolation, match=r"source a, version 2: this is a second part of .* 'g'"
    ):
        held.arrived("a", 2, part("g"))


def test_any_arrivals_are_delivered_whole_in_order_and_to_the_last() -> None:
    """Random queues, taken in random order: the laws hold for any order of arrival."""
    merged = 0
    for seed in range(300):
        rng = Random(seed)
        queues: dict[str, list[GlobalPart | None]] = {s: [] for s in "abc"}
        for number in range(rng.randint(1, 8)):
            if rng.random() < 0.5:
                queues[rng.choice("abc")].append(None)
                continue
            sources = rng.sample("abc", rng.randint(2, 3))
            for source in sources:
                place = rng.randint(0, len(queues[source]))
                queues[source].insert(place, part(f"g{number}", "".join(sources)))
        merged += _deliver(rng, queues)
    assert merged > 50, "vacuous: opposite orders hardly ever occurred"


def _deliver(rng: Random, queues: dict[str, list[GlobalPart | None]]) -> int:
    held, arrived = HoldBack(queues), dict.fromkeys(queues, 0)
    delivered = dict.fromkeys(queues, 0)
    merged = 0
    while True:
        coming = [s for s, queue in queues.items() if arrived[s] < len(queue)]
        groups = held.ready()
        if coming and (not groups or rng.random() < 0.5):
            source = rng.choice(coming)
            arrived[source] += 1
            held.arrived(source, arrived[source], queues[source][arrived[source] - 1])
        elif groups:
            group = rng.choice(groups)
            held.take(group)
            ids: dict[str, int] = {}
            for source, version in group:
                assert version == delivered[source] + 1
                delivered[source] = version
                here = queues[source][version - 1]
                if here is not None:
                    ids[here.id] = ids.get(here.id, 0) + 1
            assert all(n == _size(queues, id_) for id_, n in ids.items()), "a part was left behind"
            merged += len(ids) > 1
        else:
            break
    assert not held.waiting()
    assert delivered == {source: len(queue) for source, queue in queues.items()}
    return merged


def _size(queues: dict[str, list[GlobalPart | None]], id_: str) -> int:
    return sum(each is not None and each.id == id_ for queue in queues.values() for each in queue)


def test_what_waits_is_named_with_what_it_lacks_and_what_it_holds_back(held: HoldBack) -> None:
    held.arrived("a", 4, part("g", "abx"))
    held.arrived("a", 5)
    held.arrived("c", 2, part("h", "bc"))
    assert held.incomplete() == [
        Incomplete("g", {"a": 4}, ("b",)),
        Incomplete("h", {"c": 2}, ("b",)),
    ]
    assert held.held_back() == {"a": (4, 5), "c": (2, 2)}
    held.arrived("b", 1, part("h", "bc"))
    held.take((("b", 1), ("c", 2)))
    assert held.incomplete() == [Incomplete("g", {"a": 4}, ("b",))]
    held.arrived("b", 2, part("g", "abx"))
    assert held.incomplete() == []
    assert held.held_back() == {"a": (4, 5), "b": (2, 2)}
