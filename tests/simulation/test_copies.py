"""Copies that answer for sources: right under every protocol, and defects in them are caught."""

from typing import Any

import pytest

from protocols.errors import WrongUse
from protocols.exchange import copies, copying
from protocols.maintenance.registry import PROTOCOLS, Entry
from protocols.simulation.campaign import Tally
from protocols.simulation.schedule import drawn_schedule
from tests.harness.campaigns import assert_right, hunted, planted

#: Protocols that accept answers at any version.
ABLE = [entry for entry in PROTOCOLS.values() if not entry.fifo and not entry.control]
SOON = 60


@pytest.mark.parametrize("entry", ABLE, ids=lambda entry: entry.name)
@pytest.mark.parametrize("reads", ["versions", "holes", "windows"])
def test_copies_of_any_relations_leave_every_state_right(entry: Entry, reads: str) -> None:
    for kept in ("some", "all"):
        tally = assert_right(hunted(entry, SOON, copies=kept, reads=reads))
        assert tally.concurrent > tally.runs, "hardly any answer differed from what was needed"


def test_views_beyond_inner_joins_do_not_notice_who_answers() -> None:
    assert_right(hunted(PROTOCOLS["batched-sweep"], SOON, family="views", copies="all"))


def test_a_copy_saves_questions() -> None:
    asked: dict[str, int] = {}
    for kept in ("none", "all"):
        asked[kept] = _hunted(runs=SOON, copies=kept, crashes=0).queries
    # The pages of the copies and of the first states are not counted as the protocol's questions.
    assert asked["all"] < asked["none"] / 2


def test_the_control_is_caught_over_copies_as_well() -> None:
    """It believes a copy, which is mostly older than it needs."""
    assert hunted(PROTOCOLS["naive"], SOON, copies="all").of("wrong")


def test_protocols_that_count_on_fifo_are_refused_copies() -> None:
    with pytest.raises(WrongUse, match="FIFO"):
        drawn_schedule(1, PROTOCOLS["strobe"], {"copies": "all"})
    drawn = [drawn_schedule(seed, PROTOCOLS["strobe"], {}) for seed in range(100)]
    assert {schedule.copies for schedule in drawn} == {"none"}


def _hunted(runs: int = 4 * SOON, **given: Any) -> Tally:
    return hunted(PROTOCOLS["sweep"], runs, **{"copies": "all", **given})


DEFECTS: dict[str, tuple[type[Any], Any, str, str]] = {
    "a copy that says it holds all that is received": (
        copies.Copy,
        copies.Copy.answer,
        "Prefix(self._version)",
        "Prefix(self._received.received(query.relation.source))",
    ),
    "late changes that are left out of answers": (
        copies.Copy,
        copies.Copy.answer,
        "rows = rows.plus(restricted(self._late, query))",
        "pass",
    ),
    "an advance that forgets what came late before": (
        copies.Copy,
        copies.Copy.advance,
        "change if self._late is None else self._late.plus(change)",
        "change",
    ),
    "an advance that takes in the first version once more": (
        copies.Copy,
        copies.Copy.advance,
        "log.between(self._version, upto)",
        "log.between(self._version - 1, upto)",
    ),
    "a log that is not kept for the copy": (
        copies.Copy,
        copies.Copy.reads,
        "source == self.relation.source",
        "False",
    ),
    "pages at versions of their own": (
        copying.Copying,
        copying.Copying.hand_over,
        "at_cut(self.mailbox, wanted.question, found, self.mailbox.start)",
        "found.rows",
    ),
    "a copy that answers after its first page": (
        copying.Copying,
        copying.Copying.hand_over,
        "if found.last_key is not None:",
        "if False:",
    ),
    "a copy at the version of its last page": (
        copying.Copying,
        copying.Copying._stands,
        "self.mailbox.base(source)",
        "driver.received.received(source)",
    ),
}


@pytest.fixture
def _much_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delays merging: relations are so small that every change would be merged at once."""
    monkeypatch.setattr(copies, "_LATE", 1 / 8)


@pytest.mark.usefixtures("_much_is_late")
def test_nothing_is_caught_when_nothing_is_planted() -> None:
    assert_right(_hunted())


@pytest.mark.usefixtures("_much_is_late")
@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_of_copies_is_caught(defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, function, right, wrong = DEFECTS[defect]
    monkeypatch.setattr(owner, function.__name__, planted(function, right, wrong))
    assert _hunted().troubles
