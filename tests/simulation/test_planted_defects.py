"""Would a campaign notice? Each defect is one slip in the real code, and must be caught soon.

`planted` replaces one piece of a function's source. If the code is rewritten without that piece,
the test fails and the defect needs a new place.
"""

from collections.abc import Callable
from typing import Any

import pytest

from protocols.algebra.bag import Bag
from protocols.algebra.frame import Frame
from protocols.exchange import correction, delivery, driver, order, sharing, slices
from protocols.exchange.asof import asof
from protocols.exchange.mailbox import Mailbox, Received
from protocols.maintenance import firststate
from protocols.maintenance.registry import PROTOCOLS, Entry
from protocols.maintenance.sweep import Sweep
from protocols.simulation import elsewhere, simulator
from protocols.simulation.campaign import Tally
from protocols.simulation.drawn import random_scenario
from protocols.simulation.journal import Journal
from tests.harness.campaigns import assert_right, assert_telling, hunted, planted

#: A defect that shows in many schedules may not survive this many runs.
SOON = 60
SWEEP = PROTOCOLS["sweep"]
BATCHED = PROTOCOLS["batched-sweep"]


def _hunted(protocol: Entry = SWEEP, runs: int = SOON, **given: Any) -> Tally:
    return hunted(protocol, runs, **given)


def _correcting(
    monkeypatch: pytest.MonkeyPatch, function: Callable[..., Any], right: str, wrong: str
) -> None:
    monkeypatch.setattr(correction, function.__name__, planted(function, right, wrong))


def test_nothing_is_caught_when_nothing_is_planted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert_right(assert_telling(_hunted(runs=4 * SOON)))
    same = "changes.matching(keys[0])"
    _correcting(monkeypatch, correction._matching_any, same, same)
    assert_right(_hunted())


def test_a_defect_that_finds_no_place_in_the_code_fails_its_test() -> None:
    with pytest.raises(AssertionError, match="is not"):
        planted(asof, "no such piece", "pass")


def test_compensating_by_what_was_received_instead_of_the_version_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The race of the printed Figure 4: updates that the answer lacks are removed from it.

    It needs an update that arrives between two particular events.
    """
    _correcting(
        monkeypatch,
        correction.snapshot,
        "version = max(inclusion.version for _, inclusion in readings)",
        "version = received.received(question.source); readings = []",
    )
    monkeypatch.setattr(driver, "snapshot", correction.snapshot)
    given: dict[str, Any] = {"stale": False, "partitions": 1, "crashes": 0, "reads": "versions"}
    assert _hunted(runs=3 * SOON, **given).of("wrong")


def _snapshots(
    monkeypatch: pytest.MonkeyPatch, function: Callable[..., Any], right: str, wrong: str
) -> None:
    """Plants a defect between an answer and its snapshot."""
    _correcting(monkeypatch, function, right, wrong)
    monkeypatch.setattr(driver, "snapshot", correction.snapshot)


def test_taking_all_partitions_for_the_newest_version_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _snapshots(monkeypatch, correction._towards, "log.between(inclusion.upto, version)", "None")
    assert_right(_hunted(partitions=1, reads="versions"))
    assert _hunted(partitions=3, reads="versions").of("wrong")


def test_correcting_each_partition_by_the_whole_error_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = "change if condition is None else change.where(condition)"
    _snapshots(monkeypatch, correction.snapshot, right, "change")
    assert_right(_hunted(partitions=1, reads="versions"))
    assert _hunted(partitions=2, reads="versions").of("wrong")


# -- inclusions of database answers --------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["sweep", "nested-sweep", "batched-sweep", "pipelined-sweep"])
@pytest.mark.parametrize("reads", ["holes", "windows"])
def test_answers_with_holes_and_from_windows_are_right(reads: str, protocol: str) -> None:
    found = assert_right(_hunted(PROTOCOLS[protocol], runs=2 * SOON, reads=reads))
    assert found.concurrent > found.runs, "vacuous: hardly any answer needed compensation"


@pytest.mark.parametrize("ignored", ["inclusion.besides", "inclusion.without"])
def test_overlooking_one_kind_of_exception_is_caught(
    ignored: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Transactions after the prefix that it contains, and such before its end that it lacks."""
    _snapshots(monkeypatch, correction._towards, f"in {ignored}", "in ()")
    assert_right(_hunted(reads="versions"))
    assert _hunted(reads="holes").of("wrong")


def test_ignoring_exceptions_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = "_towards(log, inclusion, version)"
    wrong = "_towards(log, Prefix(inclusion.upto), version)"
    _snapshots(monkeypatch, correction.snapshot, right, wrong)
    assert_right(_hunted(reads="versions"))
    assert _hunted(reads="holes").of("wrong")


def test_an_answer_that_lacks_what_is_forgotten_has_to_be_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(driver, "came_too_late", lambda *_: False)
    assert_right(_hunted(reads="versions"))
    assert _hunted(runs=4 * SOON, reads="holes").of("wrong")


def test_using_an_answer_before_all_that_it_contains_is_here_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(driver, "_needed", lambda *_: 0)
    for reads in ("versions", "holes", "windows"):
        assert _hunted(reads=reads).troubles


#: Piece of the code that closes a window → its replacement.
WINDOWS = {
    "touched keys taken from the answer": ("touched is None", "True"),
    "touched keys left out": (
        "return untouched.plus(restricted(last, question, answer.last_key))",
        "return untouched",
    ),
    "any after-image instead of the last one": (
        "touched.earliest(key, POSITION).positive()",
        "touched.positive()",
    ),
    "a row that moved out of what was asked for": (
        "restricted(last, question, answer.last_key)",
        "last.select([(name, name) for name in question.columns])",
    ),
    "a row that moved into what was asked for": (
        "touched.earliest(key, POSITION).positive()",
        "touched.earliest(key, POSITION).positive().apart(answer.rows, key)[0]",
    ),
}


@pytest.mark.parametrize("defect", WINDOWS)
def test_a_window_closed_in_a_wrong_way_is_caught(
    defect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _snapshots(monkeypatch, correction._closed, *WINDOWS[defect])
    assert_right(_hunted(reads="versions"))
    # Keyed relations, and enough updates to change many keys inside one window.
    keyed = (random_scenario(f"windows {number}", 20, keys=True) for number in range(SOON))
    assert any(_hunted(runs=10, shaped=each, reads="windows").of("wrong") for each in keyed)


# -- from versions to cuts -----------------------------------------------------------------------


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
    monkeypatch.setattr(Bag, "join", planted(Bag.join, "if None not in link:", "if True:"))
    monkeypatch.setattr(Frame, "keys", planted(Frame.keys, "known_once(", "once("))
    equal = planted(Frame.join, "other.data, on)", "other.data, on, nulls_equal=True)")
    monkeypatch.setattr(Frame, "join", equal)
    assert _hunted(algebra=algebra).of("wrong")


def test_never_adding_back_what_a_stale_answer_lacks_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = "return mailbox.logged(relation, version, wanted)"
    _correcting(monkeypatch, correction._difference, right, "return None")
    assert _hunted(stale=True).of("wrong")


def test_never_taking_out_what_is_too_much_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    _correcting(monkeypatch, correction._difference, "error.negated()", "None")
    assert _hunted().of("wrong")


def test_errors_that_the_condition_of_the_atom_excludes_are_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = "changes = changes.where(question.condition)"
    _correcting(monkeypatch, correction.restricted, right, "pass")
    assert _hunted().of("wrong")


def test_an_uncorrected_page_of_the_first_state_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = "at_cut(mailbox, question, found, cut), found.last_key"
    uncorrected = planted(firststate.page, right, "found.rows, found.last_key")
    monkeypatch.setattr(firststate, "page", uncorrected)
    assert _hunted().of("wrong")


def test_a_correction_beyond_the_page_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = "changes if inside is None else changes.where(inside)"
    _correcting(monkeypatch, correction.restricted, right, "changes")
    assert _hunted().of("wrong")


def test_a_log_that_forgets_one_version_too_many_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stale answers are corrected from the oldest version still guaranteed."""
    too_many = planted(
        Received.forget,
        "log.forget(needed[relation.source])",
        "log.forget(needed[relation.source] + 1)",
    )
    monkeypatch.setattr(Received, "forget", too_many)
    assert _hunted().of("wrong")


# -- the driver ----------------------------------------------------------------------------------


def _several_views(runs: int = 10, **given: Any) -> bool:
    """Whether any run with several views on one reading goes wrong."""
    drawn = (random_scenario(f"together {number}", 12, together=True) for number in range(SOON))
    return any(_hunted(runs=runs, shaped=each, **given).troubles for each in drawn)


def test_several_views_on_one_reading_are_right() -> None:
    assert not _several_views(runs=3)


def test_an_order_of_delivery_that_ignores_a_sources_own_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = "np.maximum.accumulate(times(source, after, upto))"
    unordered = planted(order.positions_of, right, "times(source, after, upto)")
    monkeypatch.setattr(delivery, "positions_of", unordered)
    assert _hunted().troubles


#: Function of sharing → piece of the code → its replacement.
SHARING: dict[str, tuple[Callable[..., Any], str, str]] = {
    "questions that differ in their condition": (
        sharing._likeness,
        "question.condition, columns",
        "columns",
    ),
    "questions that differ in their columns": (
        sharing._united,
        "if name in names",
        "if name in one.columns",
    ),
    "questions that differ in their keys": (
        sharing._united,
        "ours.plus(theirs[ours.columns]).keys(",
        "ours.keys(",
    ),
    "keys of other columns": (
        sharing._likeness,
        "None if question.keys is None else frozenset(k.columns for k in question.keys)",
        "question.keys is None",
    ),
}


@pytest.mark.parametrize("defect", SHARING)
def test_sharing_what_differs_is_caught(defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, right, wrong = SHARING[defect]
    monkeypatch.setattr(sharing, function.__name__, planted(function, right, wrong))
    assert _several_views()


def test_in_turn_order_by_arrival_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "_turn", lambda _: ("", 0))
    assert any(_hunted(PROTOCOLS[name], 4 * SOON).troubles for name in ("strobe", "eca", "lca"))


def test_updates_that_get_in_line_while_a_question_is_under_way_are_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The answer may have been read before them."""
    monkeypatch.setattr(driver.Driver, "may_enqueue", lambda *_: True)
    assert any(_hunted(PROTOCOLS[name], 4 * SOON).troubles for name in ("strobe", "eca", "lca"))


def test_using_an_answer_before_all_that_the_view_stands_at_is_here_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A view created later than others is ahead of the received updates."""
    right = "max(asked.answer.newest, wanted.asker.mailbox.base(asked.question.source))"
    hasty = planted(driver._needed, right, "asked.answer.newest")
    monkeypatch.setattr(driver, "_needed", hasty)
    assert _several_views(stale=True, crashes=2)


def test_a_view_that_takes_what_an_earlier_one_needs_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Views that begin later are ahead of earlier ones."""
    greedy = planted(Received.forget, "min((r.base(source) for r", "max((r.base(source) for r")
    monkeypatch.setattr(Received, "forget", greedy)
    assert _several_views()


def test_a_channel_that_lets_go_of_what_has_not_passed_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The channel has the only copy of updates that FIFO protocols have not received."""
    monkeypatch.setattr(delivery.Channel, "base", lambda channel, s: channel._received.received(s))
    assert _hunted(PROTOCOLS["strobe"]).of("wrong")


# -- batches that executors sweep ------------------------------------------------------------------

#: Piece of the code that cuts a batch into slices → its replacement.
CUTS = {
    "a slice that begins one position too late": (
        "zip(begins, ends, strict=True)",
        "zip([first, *(each + 1 for each in begins[1:])], ends, strict=True)",
    ),
    "a slice that begins one position too early": (
        "zip(begins, ends, strict=True)",
        "zip([first, *(each - 1 for each in begins[1:])], ends, strict=True)",
    ),
    "a slice that is forgotten": ("zip(begins, ends, strict=True)", "[(begins[0], ends[0])]"),
}


@pytest.mark.parametrize("defect", CUTS)
def test_a_batch_that_is_cut_in_a_wrong_way_is_caught(
    defect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elsewhere, "cut", planted(slices.cut, *CUTS[defect]))
    assert_right(_hunted(BATCHED, slices=1))
    assert _hunted(BATCHED, slices=4).of("wrong")


def test_a_slice_whose_mailbox_lacks_what_was_delivered_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = "mailbox.deliveries(mailbox.start, mailbox.last_position)"
    behind = "mailbox.deliveries(mailbox.start, mailbox.last_position - 1)"
    lacking = planted(elsewhere.same_deliveries, right, behind)
    monkeypatch.setattr("protocols.simulation.life.same_deliveries", lacking)
    assert _hunted(BATCHED, slices=4).troubles


def test_a_batch_whose_slices_have_not_all_been_swept_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        elsewhere.Parted, "swept", property(lambda each: any(part.swept for part in each.parts))
    )
    assert_right(_hunted(BATCHED, slices=1))
    assert _hunted(BATCHED, slices=4).troubles


# -- crashes -------------------------------------------------------------------------------------


def test_a_crash_that_leaves_undone_deliveries_behind_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The trace would show positions twice: a defect in the simulator itself is caught too."""
    kept = planted(Journal.undo, "if position > max(durable, 0):", "if False:")
    monkeypatch.setattr(Journal, "undo", kept)
    assert_right(_hunted(crashes=0))
    assert _hunted(crashes=2, redelivery="other").troubles


def test_a_life_that_begins_before_what_was_installed_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = "states[-1].vector if states else view.vector"
    behind = planted(simulator._Simulation._new_life, right, "view.vector")
    monkeypatch.setattr(simulator._Simulation, "_new_life", behind)
    alone = random_scenario("alone", 9)
    assert "beside" not in alone.form, "a further view would be created by a restart"
    assert_right(_hunted(shaped=alone, crashes=0))
    assert _hunted(crashes=2).troubles


def test_forgetting_the_tie_break_is_caught_in_a_pipeline_too() -> None:
    """The same defects must be caught whatever drives the sweeps."""
    lost: Callable[..., Any] = planted(
        Mailbox.change, "position - 1, position", "position, position"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Mailbox, "change", lost)
        assert _hunted(PROTOCOLS["pipelined-sweep"]).of("wrong")
