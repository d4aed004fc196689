"""TPC-H's views are kept, and right in every state of a small history that reaches their rows."""

import copy
import re
from random import Random
from typing import Any

import pytest

from bench.tpchviews.__main__ import kept, main
from bench.tpchviews.schema import SOURCES
from bench.tpchviews.views import VIEWS
from protocols.maintenance.registry import PROTOCOLS
from protocols.simulation.campaign import judged_run
from protocols.simulation.scenario import scenario_from_json
from protocols.simulation.schedule import Schedule

#: Histories are drawn until one of them changes the view.
_ATTEMPTS = 100
#: The number of rows of each relation at first, if not 4.
_ROWS = {"nation": 6, "orders": 12, "lineitem": 40, "partsupp": 8, "region": 3}
#: Column → its values; many meet the constants of the views.
_VALUES: dict[str, list[Any]] = {
    "r_name": ["EUROPE", "ASIA", "AMERICA"],
    "n_name": ["FRANCE", "GERMANY", "BRAZIL", "CANADA", "SAUDI ARABIA"],
    "p_name": ["forest green", "blue"],
    "p_brand": ["Brand#12", "Brand#23", "Brand#45"],
    "p_type": ["LARGE TIN", "ECONOMY ANODIZED STEEL", "PROMO TIN", "MEDIUM POLISHED TIN"],
    "p_size": [3, 14, 15],
    "p_container": ["SM BOX", "MED BOX"],
    "s_comment": ["Customer Complaints", "-"],
    "c_mktsegment": ["BUILDING", "MACHINERY"],
    "c_phone": ["13-1", "31-2", "99-3"],
    "o_orderstatus": ["F", "O"],
    "o_orderpriority": ["1-URGENT", "2-HIGH", "5-LOW"],
    "o_comment": ["special requests", "-"],
    "l_returnflag": ["R", "N"],
    "l_linestatus": ["F"],
    "l_shipmode": ["AIR", "MAIL", "SHIP"],
    "l_shipinstruct": ["DELIVER IN PERSON"],
    "l_discount": ["0.05", "0.06", "0.10"],
    "l_quantity": ["2.00", "5.00", "10.00", "200.00"],
}
_DATES = [
    "1993-08-01",
    "1993-10-05",
    "1994-03-01",
    "1994-07-01",
    "1995-03-20",
    "1995-09-10",
    "1996-02-01",
]


def _value(rng: Random, column: str, type_: str, number: int, is_key: bool) -> Any:
    if is_key:
        return number
    if column in _VALUES:
        return rng.choice(_VALUES[column])
    match type_:
        case "BIGINT":
            return rng.randint(1, 4)
        case "DATE":
            return rng.choice(_DATES)
        case "VARCHAR":
            return rng.choice("xy")
    return rng.choice(["-10.00", "20.00", "30.50", "400.00"])


def _row(rng: Random, relation: str, form: dict[str, Any], number: int) -> list[Any]:
    key = form["key"]
    own = {"partsupp": ["ps_partkey", "ps_suppkey"], "lineitem": ["l_linenumber"]}.get(
        relation, key
    )
    row = [_value(rng, c, t, number, c in own) for c, t in form["columns"].items()]
    if relation == "partsupp":
        row[:2] = [number % 4 + 1, number // 4 + 1]
    if relation == "lineitem":
        row[0] = rng.randint(1, 12)
    return row


def _history(seed: int) -> dict[str, Any]:
    """All relations with some rows, and updates that delete some and insert others."""
    rng, sources = Random(seed), copy.deepcopy(SOURCES)
    updates = []
    for source, held in sources.items():
        for name, form in held["relations"].items():
            form.pop("foreign_keys")
            rows = [_row(rng, name, form, n) for n in range(1, _ROWS.get(name, 4) + 3)]
            form["rows"] = rows[:-2]
            changes = [{"relation": name, "row": row, "count": 1} for row in rows[-2:]]
            changes.append({"relation": name, "row": rng.choice(rows[:-2]), "count": -1})
            updates += [{"source": source, "changes": [change]} for change in changes]
    rng.shuffle(updates)
    return {"sources": sources, "updates": updates}


#: The views that divide.
_DIVIDE = (8, 14, 17)


@pytest.mark.parametrize(
    ("number", "dialect"), [*((n, "postgres") for n in VIEWS), *((n, "duckdb") for n in _DIVIDE)]
)
def test_it_is_kept_in_every_state(number: int, dialect: str) -> None:
    for seed in range(_ATTEMPTS):
        form = {"name": f"Q{number}", "view": VIEWS[number][1], "dialect": dialect}
        form |= _history(seed)
        schedule = Schedule(seed=seed, algebra="frame")
        judged = judged_run(scenario_from_json(form), PROTOCOLS["batched-sweep"], schedule)
        assert judged.trouble is None, judged.trouble
        assert judged.outcome is not None
        # The first change is the state at the beginning.
        changed = [s for s in judged.outcome.states if s.change and not s.change.is_empty()]
        if any(state.position > 0 for state in changed):
            return
    raise AssertionError("vacuous: no row of the view ever changed")


def test_the_command_counts_them(capsys: pytest.CaptureFixture[str]) -> None:
    main([])
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "22 of 22 kept"
    assert all(
        re.match(r"Q\d+ +kept .* \d+ → \d+ questions for an update of", e) for e in lines[:-1]
    )


def test_control_a_view_that_is_refused_is_counted_as_such() -> None:
    assert kept("SELECT c_name FROM sales.customer LIMIT 3")[0] is False
