"""All schedules of small scenarios: how many there are, and that a defect cannot hide in any."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from campaigns import planted
from oracle import Oracle

from protocols.errors import WrongUse
from protocols.exchange import asof, correction
from protocols.maintenance.registry import PROTOCOLS, Entry
from protocols.simulation.campaign import trouble_of
from protocols.simulation.exhaustive import Exploration
from protocols.simulation.judging import Contents
from protocols.simulation.scenario import scenario_from_json

SCENARIOS = Path(__file__).parents[2] / "examples" / "scenarios"
SWEEP = PROTOCOLS["sweep"]


def _form(name: str = "two-sources-three-updates") -> Any:
    return json.loads((SCENARIOS / f"{name}.json").read_text())


def _explored(entry: Entry, form: Any) -> tuple[int, int, int]:
    """How many schedules, different runs, and wrong ones there are."""
    scenario = scenario_from_json(form)
    exploration = Exploration(scenario, entry)
    schedules, wrong, seen = 0, 0, set()
    for outcome in exploration.schedules():
        schedules += 1
        seen.add(outcome.lines)
        contents = exploration.contents
        wrong += trouble_of(scenario, entry, outcome, contents=contents) is not None
    return schedules, len(seen), wrong


def _counted() -> int:
    """By hand, for SWEEP over a:1, b:2 updates, each of which asks the other source once."""
    commits = {"a": 1, "b": 2}
    other = {"a": "b", "b": "a"}

    @cache
    def schedules(order: str, answered: int, open_: int | None, a: int, b: int) -> int:
        """`open_` is the version of the answer under way; a and b are what was seen of them."""
        known = {"a": a, "b": b}
        if open_ is None and answered < len(order):
            asked = other[order[answered]]
            return sum(
                schedules(order, answered, version, a, b)
                for version in range(known[asked], commits[asked] + 1)
            )
        ways = 0
        for source in commits:
            delivered = order.count(source) + 1
            if delivered <= commits[source]:
                seen = {**known, source: max(known[source], delivered)}
                ways += schedules(order + source, answered, open_, seen["a"], seen["b"])
        if open_ is not None:
            asked = other[order[answered]]
            seen = {**known, asked: max(known[asked], open_)}
            ways += schedules(order, answered + 1, None, seen["a"], seen["b"])
        return ways or 1

    return schedules("", 0, None, 0, 0)


def test_the_number_of_schedules_is_the_one_counted_by_hand() -> None:
    assert _explored(SWEEP, _form()) == (_counted(), _counted(), 0)
    assert _counted() == 47


@pytest.mark.parametrize(
    ("name", "schedules"),
    [("nested-sweep", 47), ("batched-sweep", 47), ("parallel-sweep", 47), ("pipelined-sweep", 162)],
)
def test_every_schedule_is_another_one_and_none_is_wrong(name: str, schedules: int) -> None:
    assert _explored(PROTOCOLS[name], _form()) == (schedules, schedules, 0)


def test_the_control_fails_in_most_schedules_and_duckdb_agrees_with_the_judge() -> None:
    assert _explored(PROTOCOLS["naive"], _form())[2] > 20
    scenario = scenario_from_json(_form())
    exploration = Exploration(scenario, SWEEP)
    assert isinstance(exploration.contents, Contents)
    oracle = Oracle(scenario)
    for a in range(2):
        for b in range(3):
            vector = {"a": a, "b": b}
            assert exploration.contents.at(vector) == oracle.at(vector)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("found.version, cut)", "found.version + 1, cut)"),
        ("found.rows.plus(restricted(error, question, found.last_key))", "found.rows"),
        ("found.version, cut)", "found.version, cut + 1)"),
    ],
)
def test_a_planted_defect_shows_in_some_schedule(
    right: str, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asof, "at_cut", planted(correction.at_cut, right, wrong))
    assert _explored(SWEEP, _form())[2]


def _at_one_source(form: Any) -> Any:
    text = json.dumps(form).replace("b.s", "a.s").replace('"source": "b"', '"source": "a"')
    moved = json.loads(text)
    relations = moved["sources"].pop("b")["relations"]
    moved["sources"]["a"]["relations"].update(relations)
    return moved


def test_fifo_protocols_are_explored_message_by_message() -> None:
    keyed = _form()
    keyed["sources"]["a"]["relations"]["r"]["key"] = ["a"]
    keyed["sources"]["b"]["relations"]["s"]["key"] = ["c"]
    for name in ("strobe", "t-strobe", "g-strobe", "c-strobe"):
        schedules, different, wrong = _explored(PROTOCOLS[name], keyed)
        assert (schedules, wrong) == (different, 0)
    # By hand: the first question is answered at version 1, 2 or 3. Behind 1 come two schedules of
    # the two updates that are left, behind 2 the next question is answered at 2 or 3, behind 3 all
    # updates are in line.
    for name in ("eca", "lca"):
        assert _explored(PROTOCOLS[name], _at_one_source(_form())) == (5, 5, 0)


def test_a_global_transaction_is_one_delivery() -> None:
    form = _form()
    for update in form["updates"][:2]:
        update["global"] = "g"
    schedules, different, wrong = _explored(SWEEP, form)
    assert (schedules, wrong) == (different, 0)
    assert schedules < _counted()


def test_times_leave_nothing_to_explore() -> None:
    form = _form()
    form["updates"][0]["at"] = 1.0
    with pytest.raises(WrongUse, match="all schedules are tried"):
        Exploration(scenario_from_json(form), SWEEP)
