"""The note of an order of delivery is complete and short."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from protocols.errors import WrongUse
from protocols.exchange.deliveries import Deliveries
from warehouse.order import order_from_note, order_to_note

Order = list[tuple[int, str, int]]
#: (source, version, whether it shares the position of the previous update)
UPDATES = st.lists(st.tuples(st.text(max_size=4), st.integers(0, 2**40), st.booleans()))


def arrays(order: Order, sources: tuple[str, ...]) -> Deliveries:
    position, source, version = (
        np.array(
            [(position, sources.index(source), version) for position, source, version in order],
            np.int64,
        )
        .reshape(-1, 3)
        .T
    )
    return Deliveries(sources, position, source, version)


def plain(order: Deliveries) -> Order:
    names = [order.sources[index] for index in order.source]
    return list(zip(order.position.tolist(), names, order.version.tolist(), strict=True))


@settings(deadline=None)
@given(UPDATES, st.integers(1, 2**40), st.data())
@example([("a", 4, False), ("b", 7, True), ("a", 5, False)], 1, None)
def test_an_order_of_delivery_survives_as_a_note(
    updates: list[tuple[str, int, bool]], first: int, data: st.DataObject | None
) -> None:
    order: Order = []
    for source, version, joint in updates:
        position = order[-1][0] + (not joint) if order else first
        order.append((position, source, version))
    sources = tuple(sorted({source for source, _, _ in updates} | {"silent"}))
    positions = sorted({position for position, _, _ in order})
    some = data.draw(st.lists(st.sampled_from(positions), unique=True)) if data and order else []
    shown = np.array(sorted(some), np.int64)
    for each in (None, shown):
        read, seen = order_from_note(order_to_note(arrays(order, sources), each))
        assert plain(read) == order
        assert read.sources == sources
        assert (seen is None) if each is None else (seen is not None and list(seen) == list(each))


def interleaved(sources: int, count: int) -> Deliveries:
    random = np.random.default_rng(7)
    source = random.integers(0, sources, count)
    version = np.empty(count, np.int64)
    for index in range(sources):
        mine = source == index
        version[mine] = 1_000_000 + np.arange(mine.sum())
    names = tuple(f"source-{index}" for index in range(sources))
    return Deliveries(names, 5_000_000 + np.arange(count), source, version)


@pytest.mark.parametrize(("sources", "most"), [(1, 1_000), (4, 40_000), (8, 60_000)])
def test_the_note_of_a_hundred_thousand_interleaved_transactions_is_short(
    sources: int, most: int
) -> None:
    assert len(order_to_note(interleaved(sources, 100_000))) < most


def test_a_stretch_of_one_source_after_the_other_takes_next_to_nothing() -> None:
    order = interleaved(4, 100_000)
    ordered = np.argsort(order.source, kind="stable")
    stretches = Deliveries(
        order.sources, order.position, order.source[ordered], order.version[ordered]
    )
    assert len(order_to_note(stretches)) < 1_500


@pytest.mark.parametrize(
    "text",
    ["", "a:1-2 b:7", "[]", "{}", order_to_note(interleaved(2, 9)).replace("1:", "3:")],
)
def test_a_note_of_somebody_else_is_refused(text: str) -> None:
    with pytest.raises(WrongUse, match="this is not an order of delivery"):
        order_from_note(text)
