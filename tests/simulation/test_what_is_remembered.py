"""The memories of operators equal a new reading, in runs over random views.

Every run of the simulator compares memories after some installs; here after all of them.
"""

import re
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from protocols.exchange.questions import Maintenance
from protocols.maintenance.registry import PROTOCOLS
from protocols.maintenance.tree_sweep import validate
from protocols.operators.memory import Memory
from protocols.simulation import campaign, life, setting
from protocols.simulation.campaign import Campaign, Tally
from tests.harness.campaigns import assert_right, hunted, planted

BATCHED = PROTOCOLS["batched-sweep"]


@pytest.fixture(autouse=True)
def _nothing_known_from_before() -> Iterator[None]:
    caches = (campaign._drawn, campaign._contents, setting.setting_of, setting.parsed)
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


@pytest.fixture(params=["everything", "a sample"])
def compared(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of groups compared after each install."""
    numbers: list[int] = []

    def counting(root: Any, core: Any, memories: Any, at: int) -> Maintenance[Any, int]:
        sample = Random(7) if request.param == "a sample" else None
        number = yield from validate(root, core, memories, at, sample)
        numbers.append(number)
        return number

    monkeypatch.setattr(life, "validate", counting)
    monkeypatch.setattr(life, "_VALIDATED", 1)
    return numbers


def _hunted(runs: int = 60) -> Tally:
    return hunted(BATCHED, runs, family="views")


def test_what_is_remembered_is_what_is_read_again(compared: list[int]) -> None:
    assert_right(Campaign(BATCHED, family="views").over(range(3000, 3016)))
    assert len(compared) > 32
    assert sum(compared) > 2 * len(compared), "vacuous: hardly anything was remembered"


@pytest.mark.usefixtures("compared")
def test_a_memory_that_forgets_an_update_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Memory, "learn", planted(Memory.learn, "self._learnt = rows", "pass"))
    ((_, trouble),) = _hunted().troubles
    assert re.match(r"ProtocolBug: .* remembers \(.*\) at position \d+; .* say", trouble.words)


def test_a_memory_that_takes_what_it_forgot_for_empty_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(life, "_VALIDATED", 1)
    monkeypatch.setattr(Memory.__init__, "__defaults__", (2,))
    right, wrong = "np.sort(newest)), False", "np.sort(newest)), self._knows_all"
    sure = planted(Memory._keep_to_the_room, right, wrong)
    monkeypatch.setattr(Memory, "_keep_to_the_room", sure)
    ((_, trouble),) = _hunted().troubles
    assert "no such group" in trouble.words
