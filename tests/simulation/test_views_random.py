"""Random SQL under random schedules: views beyond inner joins are right in every state.

DuckDB evaluates the text at every state. `make soak` runs the same for longer (bench/campaigns.py).
"""

import re
from collections import Counter

import pytest

from protocols.errors import WrongUse
from protocols.maintenance.registry import PROTOCOLS
from protocols.operators import memory
from protocols.simulation.campaign import Campaign, Tally
from protocols.simulation.coverage import operators, outline
from protocols.simulation.drawnviews import view_scenario
from protocols.simulation.setting import setting_of
from protocols.views.tree import TreeView
from tests.harness.campaigns import assert_right, hunted

BATCHED, SWEEP, NAIVE = (PROTOCOLS[name] for name in ("batched-sweep", "sweep", "naive"))


def assert_telling(tally: Tally) -> Tally:
    """Fails a campaign that no defect could have failed."""
    assert not tally.vacuous
    assert tally.concurrent > tally.runs, "vacuous: hardly any answer needed compensation"
    assert len(tally.plans) > tally.runs / 8, "vacuous: nearly always the same plan"
    return tally


def test_every_state_of_random_views_is_right() -> None:
    tally = assert_telling(assert_right(Campaign(BATCHED, family="views").over(range(160))))
    joins = {"left join", "full join", "inner join, tested"}
    assert tally.met.keys() >= {*joins, "group", "distinct", "union", "filter", "count", "max"}


def test_one_update_at_a_time_is_right_too() -> None:
    campaign = Campaign(SWEEP, family="views")
    assert_telling(assert_right(campaign.over(range(1000, 1016))))


def test_a_memory_that_forgets_all_the_time_is_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory.Memory.__init__, "__defaults__", (2,))
    assert_right(Campaign(BATCHED, family="views").over(range(2000, 2016)))


def test_the_control_fails_in_many_runs_with_concurrency() -> None:
    campaign = Campaign(NAIVE, family="views")
    wrong = concurrent = 0
    for seed in range(32):
        judged = campaign.run(seed)
        if judged.outcome is not None and judged.outcome.concurrent:
            concurrent += 1
            wrong += judged.trouble is not None
    assert concurrent > 16
    assert wrong * 3 > concurrent


def test_hardly_anything_that_is_drawn_is_refused() -> None:
    refused: Counter[str] = Counter()
    number = 100
    drawn = [view_scenario(seed, BATCHED, refused=refused) for seed in range(number)]
    assert sum(refused.values()) < number / 2, refused.most_common(5)
    views = [setting_of(each.scenario, BATCHED, "bag").view for each in drawn]
    assert all(isinstance(view, TreeView) for view in views)
    assert len({outline(view) for view in views}) > number / 2
    names = {name for view in views for name in operators(view)}
    assert names >= {"left join", "full join", "semi join", "anti join", "distinct", "union"}
    assert names >= {"group", "group of everything", "multiply", "sum", "avg", "min"}


def test_drawn_texts_have_the_newer_constructs_too() -> None:
    texts = [view_scenario(seed, BATCHED).form["view"] for seed in range(120)]
    forms = {
        "an item without a name": r"\)(,| FROM)",
        "a subquery without an alias": r"\) (ON|WHERE|JOIN|LEFT|RIGHT|FULL|GROUP)",
        "joins under an alias": r"JOIN \((?!\(*SELECT).*\) AS t\d+\(c",
        "several grouping sets": r"GROUP BY .*(ROLLUP|CUBE|GROUPING SETS) \(",
        "BOOL_AND, BOOL_OR": r"bool_(and|or)\(",
        "a link in each arm of OR": r"ON \(\(.* = .* AND .* IS NULL\) OR \(",
        "IS NOT DISTINCT FROM": r"ON \S+ IS NOT DISTINCT FROM \S+",
        "VALUES": r"\(VALUES ",
        "NATURAL JOIN": r" NATURAL ",
        "rows": r"\(\S+, \S+\) IN \(\(",
        "a value by key": r"\(SELECT t\d+\.\w+ FROM \S+ AS t\d+ WHERE t\d+\.id = ",
        "* with USING": r"SELECT \* FROM .* USING \(id\)\) AS t\d+\(c",
    }
    for name, form in forms.items():
        assert any(re.search(form, text) for text in texts), name


def test_what_is_drawn_has_everything_that_scenarios_can_have() -> None:
    forms = [view_scenario(seed, BATCHED).form for seed in range(60)]
    relations = [r for f in forms for s in f["sources"].values() for r in s["relations"].values()]
    assert {bool(relation.get("key")) for relation in relations} == {True, False}
    assert any(not relation["rows"] for relation in relations)
    assert any("NaN" in row for relation in relations for row in relation["rows"])
    assert any(None in row for relation in relations for row in relation["rows"])
    updates = [update for form in forms for update in form["updates"]]
    assert any("global" in update for update in updates)
    assert any(len(update["changes"]) > 3 for update in updates)


def test_a_protocol_of_inner_joins_keeps_none_of_them() -> None:
    with pytest.raises(WrongUse, match="inner joins only"):
        hunted(PROTOCOLS["nested-sweep"], 1, family="views")
