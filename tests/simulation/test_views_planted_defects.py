"""Would a campaign over random views notice? Slips in the operators, each caught soon.

As in test_planted_defects.py for the protocols: a piece of the real code is replaced, and the
campaign must notice by comparison with DuckDB.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from protocols.algebra.steps import Applied
from protocols.maintenance import tree_sweep
from protocols.maintenance.registry import PROTOCOLS
from protocols.operators import aggregates, joins, placed
from protocols.operators.cores import CoreOperator
from protocols.operators.counting import Counted
from protocols.operators.groups import GroupOperator
from protocols.operators.joins import JoinOperator
from protocols.operators.memory import Memory
from protocols.simulation import campaign, setting, simulator
from protocols.simulation.campaign import Tally
from protocols.simulation.life import Life
from protocols.views.binding.subqueries import Subqueries
from tests.harness.campaigns import assert_right, hunted, planted

#: A defect may not survive this many runs.
SOON = 120
BATCHED = PROTOCOLS["batched-sweep"]


@pytest.fixture(autouse=True)
def _nothing_known_from_before() -> Iterator[None]:
    """Clears the caches: views parsed with and without a defect must not mix."""
    caches = (campaign._drawn, campaign._contents, setting.setting_of, setting.parsed)
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


_check = Counted.check


@pytest.fixture(autouse=True)
def _judged_by_duckdb_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disables other detectors: refusing counts below zero, and validation, would find some slips
    first."""
    monkeypatch.setattr(Counted, "check", lambda *_: None)
    monkeypatch.setattr(Life, "_validate", lambda *_: None)


def _hunted(runs: int = SOON, **given: Any) -> Tally:
    return hunted(BATCHED, runs, family="views", **given)


def test_nothing_is_caught_when_nothing_is_planted() -> None:
    assert_right(_hunted(runs=24))


def test_null_extension_before_compensation_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of a side before the batch are padded as answered, without correction."""
    believed = planted(
        tree_sweep.tree_at_work,
        "changing(node, mailbox), read)",
        "changing(node, mailbox), as_answered)",
    )
    monkeypatch.setattr(tree_sweep, "tree_at_work", believed)
    assert _hunted().of("wrong")


def test_operators_themselves_notice_answers_that_are_believed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    believed = planted(
        tree_sweep.tree_at_work,
        "changing(node, mailbox), read)",
        "changing(node, mailbox), as_answered)",
    )
    monkeypatch.setattr(tree_sweep, "tree_at_work", believed)
    monkeypatch.setattr(Counted, "check", _check)
    ((_, trouble),) = _hunted().troubles
    assert trouble.words.startswith("SourceViolation: ")
    assert "-1 rows for" in trouble.words


def test_orphans_decided_against_the_state_behind_the_batch_are_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whether a row has a partner depends on its own position, not on the last one."""
    behind = planted(
        JoinOperator.change,
        "placed = [entries(*each)",
        "changed = tuple(c.with_columns(pl.lit(span.last, pl.Int64).alias(POSITION)) if c is"
        " changed[1] else c for c in changed)\n    placed = [entries(*each)",
    )
    monkeypatch.setattr(JoinOperator, "change", behind)
    assert _hunted().of("wrong")


def test_not_in_without_a_counter_of_nulls_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    blind = planted(Subqueries._in, '(Comparison(known, "<", rows), _UNKNOWN),', "")
    monkeypatch.setattr(Subqueries, "_in", blind)
    assert _hunted(runs=3 * SOON).of("wrong")


def test_the_least_value_read_at_the_newest_state_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right, wrong = "places[best]", "places[best[order.stops[order.rows] - 1]]"
    newest = planted(aggregates._extremes, right, wrong)
    monkeypatch.setattr(aggregates, "_extremes", newest)
    assert _hunted().of("wrong")


def test_a_least_value_that_is_remembered_though_it_went_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    certain = planted(aggregates.in_doubt, "pl.col(COUNT) < 0", "False")
    monkeypatch.setattr("protocols.operators.groups.in_doubt", certain)
    assert _hunted(runs=2 * SOON).of("wrong")


def test_a_memory_that_does_not_learn_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first counts read for a group are remembered for ever."""
    first = planted(Memory.learn, "self._learnt = rows", "pass")
    monkeypatch.setattr(Memory, "learn", first)
    assert _hunted().troubles


def test_a_memory_that_knows_what_was_not_yet_installed_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Learnt at once instead of at the end: later reads in a batch see the state before it."""
    at_once = planted(Memory.learn, "self._learnt = rows", "self._learnt = rows; self.settle()")
    monkeypatch.setattr(Memory, "learn", at_once)
    assert _hunted(runs=3 * SOON).troubles


def test_a_memory_older_than_the_view_after_a_crash_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As if memories were stored sometimes, and the last copy were read after a crash."""
    copies: dict[tuple[str, ...], Any] = {}
    settle, begin = Memory.settle, simulator._Simulation.__init__

    def remembered(self: Memory, by: list[str], room: int = 1_000_000) -> None:
        made(self, by, room)
        self._parts = list(copies.get(tuple(by), ()))

    def settled(self: Memory) -> None:
        settle(self)
        if self._parts:
            copies.setdefault(tuple(self._by), list(self._parts))

    def begun(self: Any, *given: Any) -> None:
        copies.clear()
        begin(self, *given)

    made = Memory.__init__
    monkeypatch.setattr(Memory, "settle", settled)
    monkeypatch.setattr(Memory, "__init__", remembered)
    monkeypatch.setattr(simulator._Simulation, "__init__", begun)
    assert _hunted(crashes=2).troubles


def test_null_that_equals_null_in_a_join_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    equal = planted(placed.pairs, "nulls_equal=nulls_equal", "nulls_equal=True")
    monkeypatch.setattr(joins, "pairs", equal)
    assert _hunted().of("wrong")


def test_a_group_that_stays_when_it_is_empty_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    stays = planted(GroupOperator._is_there, "to_numpy() > 0", "to_numpy() >= 0")
    monkeypatch.setattr(GroupOperator, "_is_there", stays)
    assert _hunted().of("wrong")


def test_a_key_set_that_forgets_its_nulls_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups of NULL are requested by IS NULL; keys do not match them."""
    none = planted(
        CoreOperator.before,
        "self._swept(span, atom, *each) for each in asked",
        "self._swept(span, atom, *each) for each in asked if not each[1]",
    )
    monkeypatch.setattr(CoreOperator, "before", none)
    assert _hunted().of("wrong")


def test_a_part_that_is_worked_out_for_rows_that_do_not_come_to_it_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It fails for a row that an earlier branch of CASE decides."""
    everywhere = planted(Applied.over, "self.fails and rows.mask is not None", "False")
    monkeypatch.setattr(Applied, "over", everywhere)
    found = _hunted(runs=2 * SOON).of("broke")
    assert "divides by zero" in str(found[0][1])
