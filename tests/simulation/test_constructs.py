"""Constructs of SQL, each in a view by itself: kept in every state as DuckDB computes it.

And defects in how they are read or kept: the construct's own view notices each of them.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from protocols.algebra import functions_dialects
from protocols.explaining.explanation import explain
from protocols.explaining.page import page
from protocols.maintenance.registry import PROTOCOLS
from protocols.operators import aggregates, exactsums, frames, windows
from protocols.operators.joins import JoinOperator
from protocols.operators.partners import Partners
from protocols.simulation import campaign, setting
from protocols.simulation.campaign import Judged, judged_run
from protocols.simulation.scenario import scenario_from_json
from protocols.simulation.schedule import Schedule
from protocols.views.binding import conditions, distinctvalues, groupingsets, setoperations
from protocols.views.binding.grouping import Grouping
from protocols.views.binding.sources import From
from protocols.views.binding.subqueries import Subqueries
from protocols.views.binding.windows import Windows
from protocols.views.catalog import catalog_from_json
from protocols.views.dialects import dialect_named
from protocols.views.normal import filters
from tests.cases.constructs import DIALECTS, GROUPS, LINKS, NAMES, SOURCES, UPDATES, WINDOWS
from tests.harness.campaigns import planted

VIEWS = {
    **NAMES,
    **LINKS,
    **GROUPS,
    **WINDOWS,
    **{name: sql for name, (_, sql) in DIALECTS.items()},
}


@pytest.fixture(autouse=True)
def _nothing_known_from_before() -> Iterator[None]:
    """Clears the caches: views parsed with and without a defect must not mix."""
    for cache in (campaign._contents, setting.setting_of, setting.parsed):
        cache.cache_clear()
    yield
    for cache in (campaign._contents, setting.setting_of, setting.parsed):
        cache.cache_clear()


def _judged(name: str, seed: int, algebra: str = "frame") -> Judged:
    form = {"name": name, "view": VIEWS[name], "sources": SOURCES, "updates": UPDATES}
    form |= {"dialect": DIALECTS[name][0]} if name in DIALECTS else {}
    schedule = Schedule(seed=seed, algebra=algebra)
    entry = PROTOCOLS["batched-sweep"]
    return judged_run(scenario_from_json(form), entry, schedule, double_check=True)


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize(("seed", "algebra"), [(0, "frame"), (1, "bag")])
def test_it_is_kept_as_duckdb_says(name: str, seed: int, algebra: str) -> None:
    judged = _judged(name, seed, algebra)
    assert judged.trouble is None, judged.trouble
    assert judged.outcome is not None
    changed = [s for s in judged.outcome.states if s.change and not s.change.is_empty()]
    assert len(changed) > 1


@pytest.mark.parametrize("name", VIEWS)
def test_it_is_explained(name: str) -> None:
    dialect = dialect_named(DIALECTS[name][0]) if name in DIALECTS else None
    told = page(explain("view", VIEWS[name], catalog_from_json(SOURCES), dialect=dialect))
    assert "\n\nQuestions\n" in told


#: The view that notices → the owner and name of a function, and its defect.
DEFECTS: dict[str, tuple[Any, str, str, str]] = {
    "* with USING in a right join": (
        From,
        "_merged",
        'theirs if side == "RIGHT" else ours',
        "ours",
    ),
    "* with USING in a full join": (From, "_merged", 'side == "FULL"', "False"),
    "a comma before a full join": (From, "whole", "_is_comma(join)", "False"),
    "a link in all arms of OR": (conditions, "_without_common", "if all(rest):", "if False:"),
    "an arm of OR that is the link": (
        conditions,
        "_without_common",
        "if all(rest)",
        "if rest := list(filter(None, rest))",
    ),
    "rows in a list": (conditions, "_of_values", "_joined(exp.Or, arms)", "arms[0]"),
    "rows in a subquery": (Subqueries, "_semi_in", "in pairs]", "in pairs][:1]"),
    "IS NOT DISTINCT FROM": (JoinOperator, "_joined", "self._nulls_equal", "False"),
    "IS NOT DISTINCT FROM in a left join": (Partners, "_rows", "self._nulls_equal", "False"),
    "IS NOT DISTINCT FROM in NOT EXISTS": (JoinOperator, "_keys", "self._nulls_equal", "False"),
    "IS NOT DISTINCT FROM in a full join": (
        JoinOperator,
        "_joined_and_padded",
        "nulls_equal=self._nulls_equal,",
        "",
    ),
    "EXISTS without a link": (
        Subqueries,
        "_exists_at_all",
        '">", _ZERO',
        '">", Literal(1, BIGINT)',
    ),
    "BOOL_AND, BOOL_OR": (Grouping, "_decided", "truth if by else Not(truth)", "truth"),
    "BOOL_AND of a subquery": (
        Grouping,
        "_decided",
        "Literal(None, BOOLEAN)",
        "Literal(True, BOOLEAN)",
    ),
    "COUNT(DISTINCT)": (distinctvalues, "grouped", "(*keys, value)", "keys"),
    "COUNT(DISTINCT) beside others": (
        distinctvalues,
        "grouped",
        'each.function == "count"',
        'each.function == "none"',
    ),
    "COUNT(DISTINCT) of all, beside others": (
        distinctvalues,
        "_with_counts",
        "either(whole, Literal(0, BIGINT), BIGINT)",
        "Literal(0, BIGINT)",
    ),
    "SUM of DOUBLE": (exactsums, "_multiple", "over * (_SMALLEST // under)", "int(value) << 1074"),
    "AVG of DOUBLE over all rows": (aggregates, "_result", '== "sum" else', '!= "sum" else'),
    "SUM of DOUBLE beside COUNT(DISTINCT)": (distinctvalues, "_is_rounded", "== DOUBLE", "is None"),
    "RANK, DENSE_RANK": (
        frames,
        "_begins",
        "column.ne_missing(column.shift())",
        "column.is_null()",
    ),
    "running aggregates": (
        windows.WindowOperator,
        "_replaced",
        "at[state] > BEGINNING",
        "ends[state]",
    ),
    "a running sum over a bag": (
        windows.WindowOperator,
        "_shown",
        "np.maximum(counts, 0)",
        "np.minimum(counts, 1)",
    ),
    "DISTINCT ON": (Windows, "first_of_each", "self._columns(keys", "self._columns(keys[:0]"),
    "the first two of each": (filters, "pushed", "_apart(tests, node.partition)", "(tests, [])"),
    "exact quotients of PostgreSQL": (
        functions_dialects,
        "_leading",
        "number.adjusted() // _GROUPED",
        "number.adjusted() // _GROUPED + 1",
    ),
    "AVG of PostgreSQL": (
        Grouping,
        "_exact_average",
        '"count", column.name, BIGINT, distinct',
        '"count", column.name, BIGINT',
    ),
    "ROLLUP": (groupingsets, "_sets", "parts[:length]", "parts[: length or 1]"),
    "CUBE and GROUPING": (Grouping, "_lacking", "2 * number", "number"),
    "GROUPING SETS": (Grouping, "group", "if self._set is None or node in self._set", ""),
    "GROUPING SETS with DISTINCT": (setoperations, "all_of", "if distinct", "if False"),
    "a value by key": (Subqueries, "_looked_up", "if not on:", "if True:"),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_of_it_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, function, right, wrong = DEFECTS[name]
    changed: Callable[..., Any] = planted(getattr(owner, function), right, wrong)
    monkeypatch.setattr(owner, function, changed)
    assert any(_judged(name, seed).trouble is not None for seed in range(4))
