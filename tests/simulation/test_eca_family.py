"""Does any schedule break the ECA family, and would we notice?

One source, its updates and answers in one channel. The judges are DuckDB over the relations at the
vector of every state and the checker at the level that the protocol claims. Besides the campaigns:
the two anomalies that ECA was invented for, step by step, the size of its queries, and planted
defects that must be found.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from protocols.algebra.bag import Bag, BagLog, bag
from protocols.checking.checker import check
from protocols.checking.levels import COMPLETE
from protocols.checking.tracereading import read_trace
from protocols.errors import ProtocolBug, WrongUse
from protocols.exchange.mailbox import Mailbox
from protocols.exchange.protocol import Install, Maintaining, Work, here
from protocols.exchange.questions import Joint, Snapshot
from protocols.maintenance.eca import Eca
from protocols.maintenance.eca_key import EcaKey
from protocols.maintenance.eca_local import EcaLocal
from protocols.maintenance.lca import Lca
from protocols.maintenance.registry import PROTOCOLS
from protocols.simulation.scenario import Scenario, scenario_from_json
from protocols.simulation.simulator import Outcome, Schedule, simulate
from protocols.simulation.source import MemorySource
from protocols.views.view import View
from tests.cases.one_source_scenarios import one_source_scenario
from tests.cases.random_scenarios import SHAPES
from tests.harness.campaigns import planted
from tests.harness.innerjoins import parsed
from tests.harness.oracle import Oracle, Rows
from tests.harness.places import ROOT

FAMILY = ("eca", "eca-key", "eca-local", "lca")
EXAMPLES = ROOT / "examples" / "scenarios"
#: A planted defect may not survive this many runs.
SOON = 150
#: The oracle judges every run; the checker, the slowest part by far, judges one in this many.
CHECKED = 8


# -- campaigns ---------------------------------------------------------------------------------


@dataclass
class Found:
    """The findings of a campaign, and whether it could have found anything."""

    runs: int = 0
    wrong: list[str] = field(default_factory=list)
    #: Answers to maintenance queries that differed from the effect of the update.
    concurrent: int = 0
    queries: int = 0
    installs: int = 0
    shapes: Counter[str] = field(default_factory=Counter)


def campaign(
    name: str,
    seeds: Iterable[int],
    algebra: str = "bag",
    until_wrong: bool = False,
    keys_shown: bool | None = None,
) -> Found:
    """Runs the seeds, by default with all keys shown if the protocol needs them."""
    found = Found()
    for seed in seeds:
        keys = PROTOCOLS[name].needs_keys if keys_shown is None else keys_shown
        shaped = one_source_scenario(seed, all_keys=keys)
        more = {"late_start": seed % 3 == 0, "crashes": int(seed % 4 == 3)}
        outcome = _run(name, shaped.scenario, seed, algebra, **more)
        found.runs += 1
        found.shapes[shaped.shape] += 1
        found.concurrent += sum(n for position, n in outcome.concurrent.items() if position)
        found.queries += sum(n for position, n in outcome.queries.items() if position)
        found.installs += len(outcome.states) - 1
        trouble = _trouble(name, shaped.scenario, outcome) or (
            _contradiction(name, outcome) if seed % CHECKED == 0 else None
        )
        if trouble:
            found.wrong.append(f"seed {seed}, {shaped.form['view']}: {trouble}")
            if until_wrong:
                break
    return found


def _run(name: str, scenario: Scenario, seed: int, algebra: str = "bag", **more: Any) -> Outcome:
    return simulate(scenario, PROTOCOLS[name], Schedule(seed, algebra, **more))


def _trouble(name: str, scenario: Scenario, outcome: Outcome) -> str | None:
    """The fault in the states of a run: their order, their rows, or a missing state."""
    held: Counter[tuple[Any, ...]] = Counter()
    oracle, position = Oracle(scenario), -1
    for state in outcome.states:
        held.update({} if state.change is None else dict(state.change.counts))
        if state.position <= position:
            return f"position {state.position} after {position}"
        position = state.position
        if _rows(held) != oracle.at(state.vector):
            return f"wrong at position {position}"
    if sum(outcome.states[-1].vector.values()) != len(scenario.updates):
        return "the last updates were never installed"
    if PROTOCOLS[name].level is COMPLETE and position != len(outcome.states) - 1:
        return "states are missing"
    return None


def _contradiction(name: str, outcome: Outcome) -> str | None:
    """The contradiction that the checker finds between the trace and the claimed level."""
    verdict = check(read_trace(outcome.lines), PROTOCOLS[name].level)
    return None if verdict.verdict == "valid" else str(verdict.contradiction)


def _rows(held: Rows) -> dict[Any, int]:
    return {row: count for row, count in held.items() if count}


@pytest.mark.parametrize(("algebra", "runs"), [("bag", 40), ("frame", 12)])
@pytest.mark.parametrize("name", FAMILY)
def test_every_run_is_as_consistent_as_claimed(name: str, algebra: str, runs: int) -> None:
    found = campaign(name, range(runs), algebra)
    assert not found.wrong, f"{len(found.wrong)} of {found.runs}, e.g. {found.wrong[0]}"
    assert found.concurrent > found.runs / 2, "vacuous: hardly an answer contained an error"
    if runs > 30:
        assert found.shapes.keys() == set(SHAPES), f"vacuous: only {found.shapes}"


@pytest.mark.parametrize("name", FAMILY)
def test_updates_of_sources_that_the_view_does_not_use_disturb_nothing(name: str) -> None:
    for seed in range(8):
        form = one_source_scenario(seed, all_keys=True).form
        form["sources"]["t"] = {"relations": {"elsewhere": {"columns": {"x": "BIGINT"}}}}
        elsewhere = {"relation": "elsewhere", "row": [1], "count": 1}
        for place in (7, 4, 0):
            form["updates"].insert(place, {"source": "t", "changes": [elsewhere]})
        scenario = scenario_from_json(form)
        assert not _trouble(name, scenario, _run(name, scenario, seed)), seed


def test_who_asks_less_and_who_shows_more_is_as_the_paper_says() -> None:
    """On the same scenarios: keys save queries, and LCA pays for its states with queries."""
    found = {name: campaign(name, range(16), keys_shown=True) for name in FAMILY}
    assert not [wrong for each in found.values() for wrong in each.wrong]
    queries = {name: each.queries for name, each in found.items()}
    assert queries["eca-key"] < queries["eca-local"] < queries["eca"] < queries["lca"], queries
    assert found["lca"].installs > 2 * found["eca"].installs


# -- step by step ------------------------------------------------------------------------------


class Stage:
    """One source and one protocol, with the schedule in the hands of the test."""

    def __init__(
        self,
        scenario: Scenario,
        protocol: Callable[[View, Mailbox[Bag]], Maintaining[Bag]],
    ) -> None:
        self.view = parsed(scenario.view, scenario.catalog)
        self.source = MemorySource("s", scenario.initial, scenario.updates)
        self.mailbox: Mailbox[Bag] = Mailbox({r: BagLog() for r in self.view.relations}, {"s": 0})
        self._protocol = protocol(self.view, self.mailbox)
        #: Unanswered questions in the order of asking, each with its work.
        self.asked: list[tuple[Joint[Bag], Work[Bag]]] = []
        self.installed: list[Install[Bag]] = []

    def update(self) -> None:
        """The source commits its next update, which arrives at once."""
        changes = self.source.commit().changes
        version = self.source.version
        self.mailbox.receive("s", version, {r: (version, rows) for r, rows in changes.items()})
        self.mailbox.deliver(("s", version))
        while (begun := self._protocol.begin()) is not None:
            self._go_on(here(begun), None)

    def answer(self) -> Bag:
        """The source answers the oldest question in its present state; that arrives at once."""
        question, work = self.asked.pop(0)
        rows = self.source.joined(list(question.terms), self.view, self.source.version)
        self._go_on(work, [Snapshot(rows, self.source.version)])
        return rows

    def _go_on(self, work: Work[Bag], answers: list[Snapshot[Bag]] | None) -> None:
        try:
            (question,) = next(work) if answers is None else work.send(answers)
        except StopIteration as done:
            self.installed += done.value
        else:
            assert isinstance(question, Joint)
            self.asked.append((question, work))


def _example(name: str) -> Scenario:
    return scenario_from_json(json.loads((EXAMPLES / f"{name}.json").read_text()))


def _terms(question: Joint[Bag]) -> list[dict[int, dict[Any, int]]]:
    return [{atom: dict(rows.counts) for atom, rows in t.items()} for t in question.terms]


def test_the_insert_anomaly_is_compensated() -> None:
    """Both inserts precede the evaluation of the first query: (4) would be counted twice."""
    stage = Stage(_example("eca-insert-anomaly"), Eca)
    stage.update()
    stage.update()
    first, second = (_terms(question) for question, _ in stage.asked)
    assert first == [{1: {(2,): 1}}]
    # The compensating term, (4,2) join (2,3), replaces all relations and is not asked.
    assert second == [{0: {(4, 2): 1}}]
    assert stage.answer().counts == {(1,): 1, (4,): 1}
    assert not stage.installed, "the second query is unanswered"
    assert stage.answer().counts == {(4,): 1}
    assert stage.installed == [Install(2, bag(("W",), [((1,), 1), ((4,), 1)]))]


def test_the_delete_anomaly_is_compensated() -> None:
    """Both rows are deleted before the first query is evaluated: no answer would remove (1,3)."""
    stage = Stage(_example("eca-delete-anomaly"), Eca)
    stage.update()
    stage.update()
    assert not stage.answer().counts
    assert not stage.installed
    assert not stage.answer().counts
    assert stage.installed == [Install(2, bag(("W", "Y"), [((1, 3), -1)]))]


@pytest.mark.parametrize("name", ["eca-insert-anomaly", "eca-delete-anomaly"])
def test_under_some_schedules_an_anomaly_breaks_the_naive_protocol_and_under_none_eca(
    name: str,
) -> None:
    scenario = _example(name)
    naive = [seed for seed in range(30) if _ends_wrong("naive", scenario, seed)]
    assert 3 < len(naive) < 30, naive
    assert not [seed for seed in range(30) if _ends_wrong("eca", scenario, seed)]


def _ends_wrong(name: str, scenario: Scenario, seed: int) -> bool:
    outcome, held = _run(name, scenario, seed), Counter[Any]()
    for state in outcome.states:
        held.update({} if state.change is None else dict(state.change.counts))
    return _rows(held) != Oracle(scenario).at(outcome.states[-1].vector)


def test_lca_installs_the_anomaly_one_update_at_a_time() -> None:
    """Update 1 owns its query and the term for update 2; the latter is evaluated locally."""
    stage = Stage(_example("eca-insert-anomaly"), Lca)
    stage.update()
    stage.update()
    stage.answer()
    assert stage.installed == [Install(1, bag(("W",), [((1,), 1)]))]
    stage.answer()
    assert stage.installed[1:] == [Install(2, bag(("W",), [((4,), 1)]))]


def test_eca_key_does_not_let_an_answer_bring_back_what_was_deleted_meanwhile() -> None:
    """As listed in the paper it would: the deletion finds no row in W, then the answer comes."""
    columns = {"columns": {"id": "BIGINT", "x": "BIGINT"}, "key": ["id"]}
    inserted = {"relation": "r1", "row": [1, 2], "count": 1}
    form = {
        "view": "SELECT r1.id AS id1, r2.id AS id2 FROM s.r1, s.r2 WHERE r1.x = r2.x",
        "sources": {"s": {"relations": {"r1": columns, "r2": {**columns, "rows": [[9, 2]]}}}},
        "updates": [
            {"source": "s", "changes": [inserted]},
            {"source": "s", "changes": [{**inserted, "count": -1}]},
        ],
    }
    empty = Bag(("id1", "id2"))
    stage = Stage(
        scenario_from_json(form), lambda view, mailbox: EcaKey(view, mailbox, lambda: empty)
    )
    stage.update()
    stage.update()
    assert len(stage.asked) == 1, "deletions are not asked about"
    assert stage.answer().counts == {(1, 9): 1}, "the inserted row is a constant of the query"
    assert stage.installed == [Install(2, None)]


# -- the size of queries -----------------------------------------------------------------------


def _round_robin(relations: int, updates: int) -> Scenario:
    """A chain of relations that get a row one after the other."""
    names = [f"r{i}" for i in range(relations)]
    columns = {"x": "BIGINT", "y": "BIGINT"}
    links = [f"{a}.y = {b}.x" for a, b in pairwise(names)]
    return scenario_from_json(
        {
            "name": "round robin",
            "view": f"SELECT r0.x FROM {', '.join(f's.{n}' for n in names)} "
            f"WHERE {' AND '.join(links)}",
            "sources": {"s": {"relations": {name: {"columns": columns} for name in names}}},
            "updates": [
                {
                    "source": "s",
                    "changes": [{"relation": names[k % relations], "row": [k, k], "count": 1}],
                }
                for k in range(updates)
            ],
        }
    )


@pytest.mark.parametrize(
    ("relations", "sizes"),
    [(3, {6: 5, 12: 9, 24: 17, 48: 33}), (4, {6: 10, 12: 37, 24: 127}), (5, {6: 15, 12: 84})],
)
def test_the_query_of_the_kth_unanswered_update_grows_with_k_to_the_power_of_n_minus_2(
    relations: int, sizes: dict[int, int]
) -> None:
    """Updates that cycle through the relations, and no answers: algorithms.md, section 1."""
    stage = Stage(_round_robin(relations, max(sizes)), Eca)
    for _ in range(max(sizes)):
        stage.update()
    assert {k: len(stage.asked[k - 1][0].terms) for k in sizes} == sizes


def test_lca_asks_the_terms_of_eca_apart_one_query_per_waiting_update() -> None:
    scenario = _round_robin(3, 9)
    together, apart = Stage(scenario, Eca), Stage(scenario, Lca)
    for k in range(9):
        before = len(apart.asked)
        together.update()
        apart.update()
        owned = [question for question, _ in apart.asked[before:]]
        assert sum(len(question.terms) for question in owned) == len(together.asked[k][0].terms)
        others = sum(j % 3 != k % 3 for j in range(k))
        assert len(owned) == 1 + others, "itself, and all that can read its relation"


def test_what_no_query_needs_asks_none() -> None:
    """Rows that the view's condition excludes, and columns that it does not use."""
    form = _round_robin(2, 0)
    row = {"relation": "r0", "row": [7, 0], "count": 1}
    scenario = scenario_from_json(
        {
            "view": "SELECT r1.x FROM s.r0, s.r1 WHERE r0.y = r1.x AND r0.y > 0",
            "sources": {
                "s": {
                    "relations": {
                        r.name: {**r.to_json(), "rows": [[1, 1]]} for r in form.catalog.relations
                    }
                }
            },
            "updates": [
                {"source": "s", "changes": [row]},
                {
                    "source": "s",
                    "changes": [
                        {"relation": "r0", "row": [1, 1], "count": -1},
                        {"relation": "r0", "row": [2, 1], "count": 1},
                    ],
                },
            ],
        }
    )
    for protocol in (Eca, Lca):
        stage = Stage(scenario, protocol)
        stage.update()
        stage.update()
        assert not stage.asked
        assert stage.installed == [Install(1, None), Install(2, None)]


# -- planted defects ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "owner", "method", "right", "wrong"),
    [
        pytest.param(
            "eca", Eca, "_query", ", *corrections]", "]", id="ECA without compensating terms"
        ),
        pytest.param(
            "eca",
            Eca,
            "_query",
            "[*unanswered, *terms]",
            "unanswered",
            id="a transaction whose changes do not compensate each other",
        ),
        pytest.param(
            "eca",
            Eca,
            "_when_quiet",
            "self._unanswered or ",
            "",
            id="ECA that installs although queries are unanswered",
        ),
        pytest.param(
            "eca-key",
            EcaKey,
            "_delete",
            "pending.append((atom, rows))",
            "pass",
            id="ECA-Key as listed",
        ),
        pytest.param(
            "eca-local",
            EcaLocal,
            "_can_do",
            "self._unanswered or self._installed < self._seen",
            "False",
            id="ECA-Local at home although queries are unanswered",
        ),
        pytest.param(
            "lca",
            Lca,
            "_in_order",
            "not self._owners[0].unanswered",
            "(self._owners[0].collected or not self._owners[0].unanswered)",
            id="LCA that does not wait for its own compensations",
        ),
    ],
)
def test_a_planted_defect_is_found_soon(
    name: str, owner: type, method: str, right: str, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, method, planted(getattr(owner, method), right, wrong))
    # With all keys shown ECA-Local computes more locally.
    keys_shown = True if name == "eca-local" else None
    found = campaign(name, range(SOON), until_wrong=True, keys_shown=keys_shown)
    assert found.wrong, f"not found in {found.runs} runs"
    print(f"caught in run {found.runs}: {found.wrong[0]}")


def test_lca_that_installs_out_of_order_is_stopped_by_the_driver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    by_answers = "sorted(self._owners, key=lambda o: bool(o.unanswered))"
    unordered = planted(
        Lca._in_order,
        "while self._owners",
        f"self._owners = type(self._owners)({by_answers})\n    while self._owners",
    )
    monkeypatch.setattr(Lca, "_in_order", unordered)
    with pytest.raises(ProtocolBug, match="cannot show"):
        campaign("lca", range(SOON), until_wrong=True)


# -- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FAMILY)
def test_a_view_over_two_sources_is_refused_with_the_reason(name: str) -> None:
    columns = {"columns": {"x": "BIGINT"}, "key": ["x"]}
    form = {
        "view": "SELECT r.x, t.x AS tx FROM a.r, b.t WHERE r.x = t.x",
        "sources": {"a": {"relations": {"r": columns}}, "b": {"relations": {"t": columns}}},
        "updates": [],
    }
    with pytest.raises(WrongUse, match="needs all relations at one source, not at a, b"):
        _run(name, scenario_from_json(form), 0)


@pytest.mark.parametrize("name", FAMILY)
def test_a_global_transaction_is_refused(name: str) -> None:
    form = one_source_scenario(0, all_keys=True).form
    form["updates"][0]["global"] = "g"
    with pytest.raises(WrongUse, match="atomically only within one source, but 'g'"):
        _run(name, scenario_from_json(form), 0)


def test_eca_key_refuses_a_view_that_hides_a_key() -> None:
    with pytest.raises(WrongUse, match="the key of every relation in the view, but"):
        _run("eca-key", _example("eca-insert-anomaly"), 0)


@pytest.mark.parametrize("seed", range(3))
def test_the_rule_of_eca_local_tells_deletions_from_everything_else(seed: int) -> None:
    """`_only_deletes` looks at cancellation, not at signs; here it is compared with the signs."""
    form = one_source_scenario(0, all_keys=True).form
    scenario, rng, told = scenario_from_json(form), Random(seed), Counter[bool]()
    view = parsed(scenario.view, scenario.catalog)
    mailbox: Mailbox[Bag] = Mailbox({r: BagLog() for r in view.relations}, {"s": 0})
    protocol = EcaLocal(view, mailbox, lambda: Bag(tuple(view.schema)))
    names = view.atoms[0].qualified_columns
    for _ in range(200):
        counts: dict[Any, int] = {}
        for key in range(rng.randint(1, 3)):
            for sign in rng.choice([(-1,), (-1,), (-1,), (1,), (-1, 1)]):
                row = tuple(key if n.endswith(".id") else rng.choice((None, sign)) for n in names)
                counts[row] = counts.get(row, 0) + sign
        change = bag(names, counts.items())
        only = all(count < 0 for count in change.counts.values())
        if not change.is_empty():
            assert protocol._only_deletes(view.atoms[0], change) == only, change
            told[only] += 1
    assert min(told[True], told[False]) > 20
