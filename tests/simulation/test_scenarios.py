"""Refused scenarios, and the messages."""

import copy
from typing import Any

import pytest

from protocols.algebra.bag import Bag
from protocols.errors import WrongUse
from protocols.simulation.scenario import scenario_from_json
from tests.cases.random_scenarios import random_scenario

FORM: dict[str, Any] = {
    "name": "two",
    "view": "SELECT r.x, s.y FROM a.r JOIN b.s ON r.id = s.id",
    "sources": {
        "a": {
            "relations": {
                "r": {
                    "columns": {"id": "BIGINT", "x": "VARCHAR"},
                    "key": ["id"],
                    "rows": [[1, "p"]],
                }
            }
        },
        "b": {
            "relations": {
                "s": {"columns": {"id": "BIGINT", "y": "DATE"}, "rows": [[1, None], [1, None]]}
            }
        },
    },
    "updates": [],
}


def _with(*updates: Any) -> dict[str, Any]:
    return {**copy.deepcopy(FORM), "updates": list(updates)}


def _change(relation: str, row: Any, count: Any = 1) -> dict[str, Any]:
    return {"relation": relation, "row": row, "count": count}


def _at(source: str, *changes: Any, **more: Any) -> dict[str, Any]:
    return {"source": source, "changes": list(changes), **more}


def test_a_scenario_is_read_with_its_types_and_net_effects() -> None:
    back_and_forth = _at("a", _change("r", [2, "q"]), _change("r", [2, "q"], -1))
    rekeyed = _at("a", _change("r", [1, "z"]), _change("r", [1, "p"], -1), at=2.5)
    twice = _at("b", _change("s", [1, "2024-02-29"], 2), **{"global": "g1"})
    scenario = scenario_from_json(_with(back_and_forth, rekeyed, twice))
    r, s = scenario.catalog.relations
    assert scenario.initial[s] == Bag(("id", "y"), {(1, None): 2})
    assert not scenario.updates[0].changes
    assert scenario.updates[1].changes[r].counts == {(1, "z"): 1, (1, "p"): -1}
    assert scenario.updates[1].at == 2.5
    assert [str(row[1]) for row in scenario.updates[2].changes[s].counts] == ["2024-02-29"]
    assert scenario.updates[2].global_id == "g1"


@pytest.mark.parametrize(
    ("update", "words"),
    [
        (_at("a", _change("r", [1, "q"])), r"a\.r would hold the key \[1\] 2 times"),
        (_at("a", _change("r", [None, "q"])), "a key must not contain NULL"),
        (_at("a", _change("r", [1, "q"], -1)), r"the row \[1, 'q'\] is deleted, but"),
        (_at("b", _change("s", [1, None], -3)), "but the relation does not contain it"),
        (_at("b", _change("r", [1, "q"])), "source b has no relation 'r'"),
        (_at("c", _change("r", [1, "q"])), "one of: a, b"),
        (_at("a", _change("r", [2])), "a.r has 2 columns"),
        (_at("a", _change("r", None)), "a.r has 2 columns"),
        (_at("a", _change("r", ["2", "q"])), "'2' is not a BIGINT"),
        (_at("b", _change("s", [2, "29.2."])), "is not a DATE"),
        (_at("a", _change("r", [2, "q"], 0)), "whole number other than 0"),
        (_at("a", _change("r", [2, "q"], True)), "whole number other than 0"),
        (_at("a", _change("r", [2, "q"]), at="noon"), '"at" must be a time'),
        (_at("a", _change("r", [2, "q"]), at=0.5), "no earlier than 1"),
        (_at("a", "nothing"), "no relation"),
        ("nothing", "one of: a, b"),
        ({"source": "a"}, "one of: a, b"),
        ({"source": [], "changes": []}, "one of: a, b"),
        (_at("a", **{"global": 7}), "the name of a global transaction"),
    ],
)
def test_an_impossible_update_is_refused_with_its_index(update: Any, words: str) -> None:
    fine = _at("a", _change("r", [3, "fine"]), at=1)
    with pytest.raises(WrongUse, match=words) as refused:
        scenario_from_json(_with(fine, update))
    assert str(refused.value).startswith("updates[1]: ")


def test_a_modification_of_a_column_that_never_changes_is_refused() -> None:
    change = [_change("r", [2, "q"], -1), _change("r", [2, "z"])]
    update = {**_at("a", change[0]), "changes": change}
    scenario_from_json({**_declared(updates=["x"]), "updates": [update]})
    message = r"updates\[0\]: a.r: \[2, 'q'\] becomes \[2, 'z'\], which changes 'x'; .* are: none"
    with pytest.raises(WrongUse, match=message):
        scenario_from_json({**_declared(updates=[]), "updates": [update]})
    another_row = {**update, "changes": [change[0], _change("r", [3, "z"])]}
    scenario_from_json({**_declared(updates=[]), "updates": [another_row]})


def test_initial_rows_that_break_their_key_are_refused() -> None:
    form = copy.deepcopy(FORM)
    form["sources"]["a"]["relations"]["r"]["rows"] = [[1, "p"], [1, "q"]]
    with pytest.raises(WrongUse, match=r"initial rows: a\.r would hold the key"):
        scenario_from_json(form)


@pytest.mark.parametrize("beside", ["SELECT r.x FROM a.r", [5], {}])
def test_further_views_are_a_list_of_texts(beside: Any) -> None:
    sql = "SELECT r.x FROM a.r"
    assert scenario_from_json({**FORM, "beside": [sql]}).beside == (sql,)
    with pytest.raises(WrongUse, match="a list of further views"):
        scenario_from_json({**FORM, "beside": beside})


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ((), "the scenario: unknown field 'note'; known fields: name, view"),
        (("sources", "a"), "source a: unknown field 'note'; known fields: relations"),
        (("sources", "a", "relations", "r"), "relation a.r: unknown field 'note'"),
        (("updates", 0), r"updates\[0\]: the update: unknown field 'note'"),
        (("updates", 0, "changes", 0), r"updates\[0\]: the change: unknown field 'note'"),
    ],
)
def test_a_field_that_nobody_reads_is_refused_wherever_it_stands(
    place: tuple[Any, ...], message: str
) -> None:
    form = _with(_at("a", _change("r", [2, "q"])))
    scenario_from_json(form)
    inner: Any = form
    for step in place:
        inner = inner[step]
    inner["note"] = "x"
    with pytest.raises(WrongUse, match=message):
        scenario_from_json(form)


def _declared(**declared: Any) -> dict[str, Any]:
    """The scenario with further declarations of its relation r, and one more row."""
    form = copy.deepcopy(FORM)
    relation = form["sources"]["a"]["relations"]["r"]
    relation.update(declared, rows=[[1, "p"], [2, "q"]])
    form["sources"]["a"]["relations"]["t"] = {"columns": {"x": "VARCHAR"}, "rows": [["p"], ["q"]]}
    form["sources"]["a"]["relations"]["t"]["key"] = ["x"]
    return form


@pytest.mark.parametrize(
    ("declared", "update", "message"),
    [
        (
            {"keys": [["x"]]},
            _change("r", [3, "p"]),
            r"a.r would hold the key \['p'\] 2 times \(x\), in \[1, 'p'\] and \[3, 'p'\]",
        ),
        ({"keys": [["x"]]}, _change("r", [3, None]), "a key must not contain NULL"),
        (
            {"foreign_keys": [{"columns": ["x"], "references": "t"}]},
            _change("r", [3, "z"]),
            r"foreign key a.r\(x\) -> a.t\(x\): a.r would contain \[3, 'z'\], but a.t would",
        ),
        (
            {"foreign_keys": [{"columns": ["x"], "references": "t"}]},
            _change("t", ["q"], -1),
            r"a.r would contain \[2, 'q'\], but a.t would contain no row with \['q'\]",
        ),
        (
            {"foreign_keys": [{"columns": ["x"], "references": "t", "mandatory": True}]},
            _change("r", [3, None]),
            r"the foreign key \(x\) -> t is mandatory, but NULL in \[3, None\]",
        ),
    ],
)
def test_an_update_that_breaks_what_is_declared_is_refused_with_its_row(
    declared: dict[str, Any], update: Any, message: str
) -> None:
    form = _declared(**declared)
    scenario_from_json(form)
    with pytest.raises(WrongUse, match=message) as refused:
        scenario_from_json({**form, "updates": [_at("a", update)]})
    assert str(refused.value).startswith("updates[0]: ")
    scenario_from_json({**_declared(), "updates": [_at("a", update)]})


def test_initial_rows_that_break_what_is_declared_are_refused() -> None:
    broken = {"columns": ["x"], "references": "t"}
    form = _declared(foreign_keys=[broken])
    form["sources"]["a"]["relations"]["t"]["rows"] = [["q"]]
    with pytest.raises(
        WrongUse, match=r"a.r would contain \[1, 'p'\], but a.t would contain no row"
    ):
        scenario_from_json(form)
    form = _declared(keys=[["x"]])
    form["sources"]["a"]["relations"]["r"]["rows"] = [[1, "p"], [2, "p"]]
    with pytest.raises(WrongUse, match=r"initial rows: a.r would hold the key \['p'\] 2 times"):
        scenario_from_json(form)


def test_a_foreign_key_across_sources_may_be_broken_for_a_while() -> None:
    form = _declared(foreign_keys=[{"columns": ["id"], "references": "b.s"}])
    form["sources"]["b"]["relations"]["s"].update(key=["id"], rows=[[1, None], [2, None]])
    update = _at("a", _change("r", [3, "new"]))
    assert scenario_from_json({**form, "updates": [update]}).updates


@pytest.mark.parametrize("form", [[], {}, {"view": "x"}, {**FORM, "updates": {}}])
def test_what_is_no_scenario_is_refused(form: Any) -> None:
    with pytest.raises(WrongUse, match="a scenario needs"):
        scenario_from_json(form)


@pytest.mark.parametrize(
    ("sources", "words"),
    [
        ({"a": 5}, '"relations" has to map'),
        ({"a": {"relations": {"r": 5}}}, "has to be an object"),
        ({"a": {"relations": {"r": {"columns": {"x": "BIGINT"}, "rows": 5}}}}, "has to be a list"),
        (
            {"a": {"relations": {"r": {"columns": {"x": "BIGINT"}, "key": "x"}}}},
            "key must be a list",
        ),
        ({"a": {"relations": {"r": {"columns": {"x": "MONEY"}}}}}, "unknown type 'MONEY'"),
        ({"a": {"relations": {"r": {"columns": {}}}}}, "must map column names to types"),
        ({"a": {"relations": {"r": {"columns": {"_x": "BIGINT"}}}}}, "leading _ are reserved"),
    ],
)
def test_sources_that_are_not_described_as_agreed_are_refused(sources: Any, words: str) -> None:
    with pytest.raises(WrongUse, match=words):
        scenario_from_json({"view": "SELECT x FROM a.r", "sources": sources, "updates": []})


def test_random_scenarios_are_possible_ones_and_cover_bags_and_keys() -> None:
    scenarios = [random_scenario(seed).scenario for seed in range(50)]
    keyed = {bool(relation.key) for scenario in scenarios for relation in scenario.catalog}
    assert keyed == {True, False}
    assert any(len(update.changes) > 1 for s in scenarios for update in s.updates)
    assert any(None in row for s in scenarios for rows in s.initial.values() for row in rows.counts)
