"""The judge is tested against DuckDB, which evaluates the SQL, and the checker of traces."""

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import duckdb
import pytest

from protocols.checking.checker import check
from protocols.checking.levels import DELIVERY
from protocols.checking.plans import NotEvaluated
from protocols.checking.rewriting import ViewText
from protocols.checking.tracereading import read_trace
from protocols.maintenance.registry import PROTOCOLS, Entry
from protocols.maintenance.sweep import Sweep
from protocols.simulation import bounds, campaign
from protocols.simulation.campaign import Campaign
from protocols.simulation.drawn import scenario_for
from protocols.simulation.drawnviews import view_scenario
from protocols.simulation.judging import Contents, objection
from protocols.simulation.life import Life
from protocols.simulation.schedule import drawn_schedule
from protocols.simulation.setting import setting_of, sources_of
from protocols.simulation.simulator import Outcome, Schedule, simulate
from protocols.simulation.sqlcontents import SqlContents
from protocols.views.catalog import Relation
from protocols.views.tree import TreeView
from protocols.views.view import View
from tests.cases.random_scenarios import random_scenario
from tests.harness.campaigns import first_wrong_position, planted
from tests.harness.innerjoins import inner
from tests.harness.oracle import Oracle

SWEEP = PROTOCOLS["sweep"]


@pytest.mark.parametrize("name", ["sweep", "naive"])
def test_the_judge_objects_exactly_when_duckdb_does(name: str) -> None:
    verdicts: Counter[Any] = Counter()
    for seed in range(120):
        entry = PROTOCOLS[name]
        scenario = scenario_for(seed, entry).scenario
        outcome = simulate(scenario, entry, drawn_schedule(seed, entry, {}))
        view = setting_of(scenario, entry, "bag").view
        wrong = first_wrong_position(outcome, Oracle(scenario)) is not None
        assert (objection(view, entry, outcome) is not None) == wrong, seed
        verdicts[wrong] += 1
    assert name == "sweep" or min(verdicts.values()) > 20, verdicts


def test_a_view_that_the_checker_cannot_evaluate_is_left_to_the_judge(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: object) -> None:
        raise NotEvaluated("DuckDB cannot evaluate the view")

    monkeypatch.setattr(campaign, "check", fails)
    good = Campaign(SWEEP, double_checked=1).over(range(4))
    assert (good.runs, good.troubles) == (4, [])
    wrong = Campaign(PROTOCOLS["naive"]).over(range(40)).of("wrong")
    assert wrong
    assert all("DuckDB cannot evaluate" in trouble.words for _, trouble in wrong)


def test_the_judge_and_duckdb_see_the_same_view_at_every_vector() -> None:
    rows = 0
    for seed in range(100):
        scenario = random_scenario(seed, globals_=True).scenario
        outcome = simulate(scenario, SWEEP, Schedule(seed, "bag"))
        contents = Contents(inner(setting_of(scenario, SWEEP, "bag").view), outcome.sources)
        oracle = Oracle(scenario)
        for state in outcome.states:
            assert contents.at(state.vector) == oracle.at(state.vector), seed
            rows += len(contents.at(state.vector))
    assert rows > 500, "vacuous: the views are empty"


def test_the_judge_and_the_checker_agree_about_every_run_of_the_control() -> None:
    verdicts: Counter[Any] = Counter()
    naive = PROTOCOLS["naive"]
    for seed in range(2000, 2040):
        scenario = random_scenario(seed).scenario
        outcome = simulate(scenario, naive, Schedule(seed, "bag"))
        objected = objection(setting_of(scenario, naive, "bag").view, naive, outcome)
        verdict = check(read_trace(outcome.lines), naive.level).verdict
        assert verdict == ("valid" if objected is None else "invalid"), seed
        verdicts[verdict] += 1
    assert min(verdicts["valid"], verdicts["invalid"]) > 3, verdicts


def _unlike_the_oracle(seeds: range) -> int:
    """The number of drawn views for which judge and DuckDB find different rows.

    The judge and the checker replace the tables of a text in the same way, so they cannot catch
    each other's errors; here DuckDB runs the text as written.
    """
    unlike = 0
    for seed in seeds:
        scenario = view_scenario(seed, SWEEP).scenario
        view, oracle = setting_of(scenario, SWEEP, "bag").view, Oracle(scenario)
        assert isinstance(view, TreeView)
        sources = sources_of(scenario)
        dice = Random(seed)
        for source in sources.values():
            while source.next_update is not None:
                source.commit()
        vectors = [
            {name: dice.randint(0, source.version) for name, source in sources.items()}
            for _ in range(3)
        ]
        try:
            contents = SqlContents(view, sources)
            unlike += any(contents.at(vector) != oracle.at(vector) for vector in vectors)
        except duckdb.Error:
            unlike += 1
    return unlike


def test_other_tables_in_a_text_leave_its_meaning(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _unlike_the_oracle(range(60)) == 0
    right = ViewText.over

    def another(self: ViewText, table: Callable[[Relation], str]) -> str:
        others = dict(zip(self.relations, self.relations[1:] + self.relations[:1], strict=True))
        return right(self, lambda relation: table(others[relation]))

    monkeypatch.setattr(ViewText, "over", another)
    assert _unlike_the_oracle(range(20)) > 3, "control: relations in each other's place"


def _outcome(seed: int = 3) -> tuple[View, Outcome]:
    scenario = random_scenario(seed, shape="chain", globals_=True).scenario
    outcome = simulate(scenario, SWEEP, Schedule(seed, "bag"))
    assert len(outcome.states) > 4
    return inner(setting_of(scenario, SWEEP, "bag").view), outcome


def _with_states(outcome: Outcome, states: tuple[object, ...]) -> Outcome:
    fields = {**vars(outcome), "states": states}
    names = Outcome.__dataclass_fields__
    return Outcome(**{name: value for name, value in fields.items() if name in names})


def test_the_judge_sees_what_is_missing_out_of_order_or_not_the_end() -> None:
    view, right = _outcome()
    states = right.states
    assert objection(view, SWEEP, right) is None
    for others in ((), states[:-1], (*states[:-1], states[-2]), (*states[:2], *states[3:])):
        assert objection(view, SWEEP, _with_states(right, others)) is not None


def test_sweep_saves_questions_and_accounts_for_all_of_them() -> None:
    saved = 0
    for seed in range(40):
        scenario = random_scenario(seed).scenario
        outcome = simulate(scenario, SWEEP, Schedule(seed, "bag"))
        assert bounds.exceeded(setting_of(scenario, SWEEP, "bag").view, SWEEP, outcome) is None
        saved += sum(outcome.skipped.values())
    assert saved, "vacuous: no partial was ever empty"


def test_asking_once_too_often_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every question is asked twice: right in every state, but more expensive than claimed."""
    right = "rows = yield from self._read("
    twice = f"yield from self._read(mailbox, step.atom, keys, cut, position)\n        {right}"
    twice = twice.replace("(mailbox", "(self._mailbox")
    source = planted(Sweep.view_change, right, twice)
    monkeypatch.setattr(Sweep, "view_change", source)
    tally = Campaign(SWEEP).over(range(8))
    assert tally.of("bound")
    assert not tally.of("wrong")


def test_a_run_that_breaks_is_told_from_one_that_is_wrong() -> None:
    def broken(*_: object) -> Sweep[Any]:
        raise RuntimeError("no protocol today")

    tally = Campaign(Entry("sweep", broken, "breaks", DELIVERY)).over(range(3))
    assert len(tally.of("broke")) == 3
    assert "no protocol today" in str(tally.of("broke")[0][1].traceback)


def test_a_run_that_stands_still_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Life, "may_enqueue", lambda *_: {})
    tally = Campaign(SWEEP, given={"crashes": 0}).over(range(3))
    assert len(tally.of("broke")) == 3
    assert "the run is stuck" in tally.of("broke")[0][1].words
