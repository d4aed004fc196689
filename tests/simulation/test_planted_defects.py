"""Would a campaign notice? Each defect is one slip in the real code, and has to be caught soon.

`planted` replaces one piece of a function's source. When the code is rewritten so that the piece is
gone, the test fails and the defect has to be found a new place.
"""

from collections.abc import Callable
from typing import Any

import pytest
from campaigns import Campaign, campaign, planted

from protocols.algebra.bag import Bag
from protocols.algebra.frame import Frame
from protocols.maintenance import firststate
from protocols.maintenance.asof import asof
from protocols.maintenance.mailbox import Mailbox
from protocols.maintenance.registry import PROTOCOLS, Entry
from protocols.maintenance.sweep import Sweep

#: A defect that shows in many schedules may not survive this many runs.
SOON = 60


def _reading(wrong_read: Callable[..., Any]) -> Entry:
    return Entry("sweep", lambda view, mailbox, _: Sweep(view, mailbox, wrong_read), "defective")


def _hunted(protocol: Entry = PROTOCOLS["sweep"], runs: int = SOON, **options: Any) -> Campaign:
    found = campaign(protocol, range(runs), until_wrong=True, **options)
    print(f"caught in run {found.first_wrong}")
    return found


def test_nothing_is_caught_when_nothing_is_planted() -> None:
    _hunted().assert_telling().assert_right()
    same = planted(asof, "error = error.matching(keys)", "error = error.matching(keys)")
    _hunted(_reading(same)).assert_right()


def test_a_defect_that_finds_no_place_in_the_code_fails_its_test() -> None:
    with pytest.raises(AssertionError, match="is not"):
        planted(asof, "no such piece", "pass")


def test_compensating_by_what_was_received_instead_of_the_version_is_caught() -> None:
    """The race of the printed Figure 4: updates that the answer lacks are taken out of it.

    It needs an update that arrives between two particular events: about one run in twenty has it.
    """
    by_received = planted(
        asof, "answer.version, cut", "mailbox.received(atom.relation.source), cut"
    )
    assert _hunted(_reading(by_received), runs=3 * SOON, stale=False).wrong


@pytest.mark.parametrize("everything_at", ["before", "position"])
def test_reading_all_other_atoms_at_one_cut_is_caught(
    everything_at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No tie-break between atoms that one transaction changes."""
    right = "cut = position if step.atom.index < way.origin.index else before"
    untied = planted(Sweep.view_change, right, f"cut = {everything_at}")
    monkeypatch.setattr(Sweep, "view_change", untied)
    assert _hunted().wrong


@pytest.mark.parametrize("algebra", ["bag", "frame"])
def test_null_that_equals_null_is_caught(algebra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two slips: keys without NULL and a join that never links NULL each suffice alone."""
    monkeypatch.setattr(Bag, "keys", planted(Bag.keys, " if None not in row", ""))
    monkeypatch.setattr(Bag, "join", planted(Bag.join, "if None not in theirs(row):", "if True:"))
    monkeypatch.setattr(Frame, "keys", planted(Frame.keys, ".drop_nulls()", ""))
    monkeypatch.setattr(Frame, "join", planted(Frame.join, "nulls_equal=False", "nulls_equal=True"))
    assert _hunted(algebra=algebra).wrong


def test_never_adding_back_what_a_stale_answer_lacks_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one_sided = planted(Mailbox.difference, "return log.between(version, wanted)", "return None")
    monkeypatch.setattr(Mailbox, "difference", one_sided)
    assert _hunted(stale=True).wrong
    _hunted(stale=False).assert_right()


def test_never_taking_out_what_is_too_much_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    one_sided = planted(Mailbox.difference, "error.negated()", "None")
    monkeypatch.setattr(Mailbox, "difference", one_sided)
    assert _hunted().wrong


def test_errors_that_the_condition_of_the_atom_excludes_are_caught() -> None:
    unfiltered = planted(asof, "error = error.where(atom.condition)", "pass")
    assert _hunted(_reading(unfiltered)).wrong


def test_an_uncorrected_page_of_the_first_state_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = "rows = rows.plus(error.select([(column, column) for column in columns]))"
    uncorrected = planted(firststate.stretch, right, "pass")
    monkeypatch.setattr("protocols.simulation.simulator.stretch", uncorrected)
    assert _hunted().wrong


def test_a_correction_beyond_the_page_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = "error = error if inside is None else error.where(inside)"
    beyond = planted(firststate.stretch, right, "pass")
    monkeypatch.setattr("protocols.simulation.simulator.stretch", beyond)
    assert _hunted().wrong


def test_a_log_that_forgets_one_version_too_many_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stale answers are corrected from the oldest version that is still promised."""
    too_many = planted(
        Mailbox.forget,
        "log.forget(self._base[relation.source])",
        "log.forget(self._base[relation.source] + 1)",
    )
    monkeypatch.setattr(Mailbox, "forget", too_many)
    assert _hunted().wrong
