"""All schedules of small scenarios: their number, and that no defect can hide in any."""

import json
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pytest

from protocols.errors import WrongUse
from protocols.exchange import asof, correction
from protocols.exchange.inclusion import Reads
from protocols.maintenance.registry import PROTOCOLS, Entry
from protocols.simulation.campaign import trouble_of
from protocols.simulation.exhaustive import Exploration
from protocols.simulation.judging import Contents
from protocols.simulation.scenario import scenario_from_json
from tests.harness.campaigns import planted
from tests.harness.oracle import Oracle
from tests.harness.places import ROOT

SCENARIOS = ROOT / "examples" / "scenarios"
SWEEP = PROTOCOLS["sweep"]


def _form(name: str = "two-sources-three-updates") -> Any:
    return json.loads((SCENARIOS / f"{name}.json").read_text())


def _keyed() -> Any:
    form = _form()
    form["sources"]["a"]["relations"]["r"]["key"] = ["a"]
    form["sources"]["b"]["relations"]["s"]["key"] = ["c"]
    return form


def _explored(entry: Entry, form: Any, reads: Reads = "versions") -> tuple[int, int, int]:
    """The numbers of schedules, of different runs, and of wrong runs."""
    scenario = scenario_from_json(form)
    exploration = Exploration(scenario, entry, reads)
    schedules, wrong, seen = 0, 0, set()
    for outcome in exploration.schedules():
        schedules += 1
        seen.add(outcome.lines)
        contents = exploration.contents
        wrong += trouble_of(scenario, entry, outcome, contents=contents) is not None
    return schedules, len(seen), wrong


#: How many updates the two sources commit.
COMMITS = {"a": 1, "b": 2}


def _versions(source: str, known: int) -> Sequence[int]:
    """The possible answers of a source, each as the newest version that it reveals."""
    return range(known, COMMITS[source] + 1)


def _holes(source: str, _known: int) -> Sequence[int]:
    """A snapshot of `a` contains its update or not, and may include it in the prefix that it names.

    A snapshot of `b` contains none of its updates (and names a prefix of 0, 1 or 2), the first (1
    or 2), the second (0 or 2), or both.
    """
    return {"a": [0, 1, 1], "b": [0, 1, 2, 1, 2, 2, 2, 2]}[source]


def _windows(source: str, known: int) -> Sequence[int]:
    """Windows by their two ends, the first of them not before the known version.

    A row whose key changes inside a window of two versions is read at one of them or at both;
    inside a window of three versions at one of them or at two. Both updates of `b` change a key.
    """
    ways = {
        "a": {(0, 0): 1, (0, 1): 3, (1, 1): 1},
        "b": {(0, 0): 1, (0, 1): 3, (0, 2): 6 * 6, (1, 1): 1, (1, 2): 3, (2, 2): 1},
    }[source]
    return [high for (low, high), number in ways.items() if low >= known for _ in range(number)]


def _counted(answers: Callable[[str, int], Sequence[int]] = _versions) -> int:
    """The number counted by hand, for SWEEP over one update of a and two of b; each update asks the
    other source once."""
    commits = COMMITS
    other = {"a": "b", "b": "a"}

    @cache
    def schedules(order: str, answered: int, open_: int | None, a: int, b: int) -> int:
        """`open_` is the version of the pending answer; a and b are the versions seen so far."""
        known = {"a": a, "b": b}
        if open_ is None and answered < len(order):
            asked = other[order[answered]]
            return sum(
                schedules(order, answered, version, a, b)
                for version in answers(asked, known[asked])
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


# -- sources that read otherwise -----------------------------------------------------------------


def test_schedules_with_holes_and_windows_are_as_many_as_counted_by_hand() -> None:
    assert _explored(SWEEP, _form(), "holes")[0] == _counted(_holes) == 1080
    assert _explored(SWEEP, _keyed(), "windows")[0] == _counted(_windows) == 371
    # A relation without a key is read at one version.
    assert _explored(SWEEP, _form(), "windows")[0] == _counted()


@pytest.mark.parametrize("name", ["sweep", "nested-sweep", "pipelined-sweep", "batched-sweep"])
@pytest.mark.parametrize("reads", ["holes", "windows"])
def test_no_schedule_with_holes_or_windows_is_wrong(name: str, reads: Reads) -> None:
    schedules, _, wrong = _explored(PROTOCOLS[name], _keyed(), reads)
    assert wrong == 0
    assert schedules > 300


def test_a_snapshot_has_no_transaction_without_what_it_depends_on() -> None:
    form = _form()
    # The second update of b inserts the row again that the first one deleted.
    form["updates"][2]["changes"][0]["row"] = [1, 7]
    answers = {"a": [0, 1, 1], "b": [0, 1, 2, 1, 2, 2]}
    counted = _counted(lambda source, _: answers[source])
    assert _explored(SWEEP, form, "holes")[::2] == (counted, 0)
    assert counted < _counted(_holes)


@pytest.mark.parametrize(
    ("reads", "changed", "right", "wrong"),
    [
        ("holes", "_towards", "in inclusion.besides", "in ()"),
        ("holes", "_towards", "in inclusion.without", "in ()"),
        ("windows", "_closed", "touched is None", "True"),
        ("windows", "_closed", "touched.earliest(key, POSITION).positive()", "touched.positive()"),
    ],
)
def test_a_slip_about_what_answers_contain_shows_in_some_schedule(
    reads: Reads, changed: str, right: str, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(correction, changed, planted(getattr(correction, changed), right, wrong))
    assert _explored(SWEEP, _keyed())[2] == 0
    scenario = scenario_from_json(_form("two-keyed-sources-four-updates"))
    exploration = Exploration(scenario, SWEEP, reads)
    assert any(trouble_of(scenario, SWEEP, outcome) for outcome in exploration.schedules())


def test_protocols_over_fifo_channels_know_neither_holes_nor_windows() -> None:
    with pytest.raises(WrongUse, match="needs FIFO channels"):
        Exploration(scenario_from_json(_keyed()), PROTOCOLS["strobe"], "holes")


def _at_one_source(form: Any) -> Any:
    text = json.dumps(form).replace("b.s", "a.s").replace('"source": "b"', '"source": "a"')
    moved = json.loads(text)
    relations = moved["sources"].pop("b")["relations"]
    moved["sources"]["a"]["relations"].update(relations)
    return moved


def test_fifo_protocols_are_explored_message_by_message() -> None:
    keyed = _keyed()
    for name in ("strobe", "t-strobe", "g-strobe", "c-strobe"):
        schedules, different, wrong = _explored(PROTOCOLS[name], keyed)
        assert (schedules, wrong) == (different, 0)
    # By hand: the first question is answered at version 1, 2 or 3. After 1 come two schedules of
    # the two remaining updates; after 2 the next question is answered at 2 or 3; after 3 all
    # updates are queued.
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
