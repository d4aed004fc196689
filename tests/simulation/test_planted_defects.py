"""Would a campaign notice? Each defect is one slip in the real code, and has to be caught soon.

`planted` replaces one piece of a function's source. When the code is rewritten so that the piece is
gone, the test fails and the defect has to be found a new place.
"""

from collections.abc import Callable
from typing import Any

import pytest
from campaigns import assert_right, assert_telling, hunted, planted

from protocols.algebra.bag import Bag
from protocols.algebra.frame import Frame
from protocols.exchange import asof
from protocols.exchange.mailbox import Mailbox, Received
from protocols.maintenance import firststate
from protocols.maintenance.registry import PROTOCOLS, Entry
from protocols.maintenance.sweep import Sweep
from protocols.simulation import simulator
from protocols.simulation.campaign import Tally
from protocols.simulation.journal import Journal

#: A defect that shows in many schedules may not survive this many runs.
SOON = 60
SWEEP = PROTOCOLS["sweep"]


def _hunted(protocol: Entry = SWEEP, runs: int = SOON, **given: Any) -> Tally:
    return hunted(protocol, runs, **given)


def _correcting(monkeypatch: pytest.MonkeyPatch, right: str, wrong: str) -> None:
    monkeypatch.setattr(asof, "corrected", planted(asof.corrected, right, wrong))


def test_nothing_is_caught_when_nothing_is_planted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert_right(assert_telling(_hunted(runs=4 * SOON)))
    _correcting(monkeypatch, "error.matching(keys)", "error.matching(keys)")
    assert_right(_hunted())


def test_a_defect_that_finds_no_place_in_the_code_fails_its_test() -> None:
    with pytest.raises(AssertionError, match="is not"):
        planted(asof.asof, "no such piece", "pass")


def test_compensating_by_what_was_received_instead_of_the_version_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The race of the printed Figure 4: updates that the answer lacks are taken out of it.

    It needs an update that arrives between two particular events.
    """
    _correcting(
        monkeypatch,
        "mailbox.difference(atom.relation, version, cut)",
        "mailbox.difference(atom.relation, mailbox.received(atom.relation.source), cut)",
    )
    assert _hunted(runs=3 * SOON, stale=False, partitions=1, crashes=0).of("wrong")


def test_correcting_all_partitions_by_the_newest_version_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _correcting(
        monkeypatch,
        "mailbox.difference(atom.relation, version, cut)",
        "mailbox.difference(atom.relation, answer.version, cut)",
    )
    assert_right(_hunted(partitions=1))
    assert _hunted(partitions=3).of("wrong")


def test_correcting_each_partition_by_the_whole_error_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _correcting(monkeypatch, "if condition is not None:", "if False:")
    assert_right(_hunted(partitions=1))
    assert _hunted(partitions=2).of("wrong")


@pytest.mark.parametrize("everything_at", ["before", "position"])
def test_reading_all_other_atoms_at_one_cut_is_caught(
    everything_at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No tie-break between atoms that one transaction changes."""
    right = "cut = position if step.atom.index < way.origin.index else before"
    untied = planted(Sweep.view_change, right, f"cut = {everything_at}")
    monkeypatch.setattr(Sweep, "view_change", untied)
    assert _hunted().of("wrong")


@pytest.mark.parametrize("algebra", ["bag", "frame"])
def test_null_that_equals_null_is_caught(algebra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two slips: keys without NULL and a join that never links NULL each suffice alone."""
    monkeypatch.setattr(Bag, "keys", planted(Bag.keys, " if None not in row", ""))
    monkeypatch.setattr(Bag, "join", planted(Bag.join, "if None not in theirs(row):", "if True:"))
    monkeypatch.setattr(Frame, "keys", planted(Frame.keys, "known_once(", "once("))
    equal = planted(Frame.join, "other.data, on)", "other.data, on, nulls_equal=True)")
    monkeypatch.setattr(Frame, "join", equal)
    assert _hunted(algebra=algebra).of("wrong")


def test_never_adding_back_what_a_stale_answer_lacks_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one_sided = planted(Mailbox.difference, "return log.between(version, wanted)", "return None")
    monkeypatch.setattr(Mailbox, "difference", one_sided)
    assert _hunted(stale=True).of("wrong")


def test_never_taking_out_what_is_too_much_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    one_sided = planted(Mailbox.difference, "error.negated()", "None")
    monkeypatch.setattr(Mailbox, "difference", one_sided)
    assert _hunted().of("wrong")


def test_errors_that_the_condition_of_the_atom_excludes_are_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _correcting(monkeypatch, "error = error.where(atom.condition)", "pass")
    assert _hunted().of("wrong")


def test_an_uncorrected_page_of_the_first_state_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = "rows = rows.plus(error.select([(column, column) for column in columns]))"
    monkeypatch.setattr(firststate, "_page", planted(firststate._page, right, "pass"))
    assert _hunted().of("wrong")


def test_a_correction_beyond_the_page_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = "error = error if inside is None else error.where(inside)"
    monkeypatch.setattr(firststate, "_page", planted(firststate._page, right, "pass"))
    assert _hunted().of("wrong")


def test_a_log_that_forgets_one_version_too_many_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stale answers are corrected from the oldest version that is still promised."""
    too_many = planted(
        Received.forget,
        "log.forget(needed[relation.source])",
        "log.forget(needed[relation.source] + 1)",
    )
    monkeypatch.setattr(Received, "forget", too_many)
    assert _hunted().of("wrong")


def test_a_crash_that_leaves_undone_deliveries_behind_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The trace would show positions twice; so the simulator itself can be told to be wrong."""
    kept = planted(Journal.undo, "if position > max(durable, 0):", "if False:")
    monkeypatch.setattr(Journal, "undo", kept)
    assert_right(_hunted(crashes=0))
    assert _hunted(crashes=2, redelivery="other").troubles


def test_a_life_that_begins_before_what_was_installed_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = "states[-1].vector if states else self._vector"
    behind = planted(simulator._Simulation._crash, right, "self._vector")
    monkeypatch.setattr(simulator._Simulation, "_crash", behind)
    assert_right(_hunted(crashes=0))
    assert _hunted(crashes=2).troubles


def test_forgetting_the_tie_break_is_caught_in_a_pipeline_too() -> None:
    """The same defects have to be caught whatever drives the sweeps."""
    lost: Callable[..., Any] = planted(
        Mailbox.change, "position - 1, position", "position, position"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Mailbox, "change", lost)
        assert _hunted(PROTOCOLS["pipelined-sweep"]).of("wrong")
