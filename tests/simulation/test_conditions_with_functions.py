"""Conditions with functions as people write them: kept correctly, explained, and without delay.

Each was once computed again for every member before it, and took minutes or did not end.
"""

from typing import Any

import pytest

from protocols.explaining.explanation import explain
from protocols.explaining.page import page
from protocols.maintenance.registry import PROTOCOLS
from protocols.simulation.campaign import judged_run
from protocols.simulation.scenario import scenario_from_json
from protocols.simulation.schedule import Schedule
from protocols.views.catalog import catalog_from_json

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
CODES = "'13', '31', '23', '29', '30', '18', '17'"

VIEWS = {
    "SUBSTRING among codes": f"SELECT id FROM a.r WHERE SUBSTRING(x, 1, 2) IN ({CODES})",
    "TPC-H Q22": f"""
        SELECT code, COUNT(*) AS number, SUM(bal) AS total
        FROM (
            SELECT SUBSTRING(r.x FROM 1 FOR 2) AS code, r.bal FROM a.r
            WHERE SUBSTRING(r.x FROM 1 FOR 2) IN ({CODES})
            AND r.bal > (
                SELECT AVG(d.bal) FROM a.r d
                WHERE d.bal > 0.00 AND SUBSTRING(d.x FROM 1 FOR 2) IN ({CODES})
            )
            AND NOT EXISTS (SELECT 1 FROM b.o WHERE o.r = r.id)
        ) AS those
        GROUP BY code""",
    "twelve LIKEs": "SELECT id, x FROM a.r WHERE "
    + " OR ".join(f"x LIKE '%{month}%'" for month in MONTHS),
    "CASE over twelve months": "SELECT id, CASE "
    + " ".join(
        f"WHEN EXTRACT(MONTH FROM day) = {number} THEN UPPER('{month}')"
        for number, month in enumerate(MONTHS, 1)
    )
    + " END AS month FROM a.r",
    "CASE of the month": "SELECT id, CASE EXTRACT(MONTH FROM day) "
    + " ".join(f"WHEN {number} THEN x || '{month}'" for number, month in enumerate(MONTHS, 1))
    + " END AS month FROM a.r",
    "remainders among nine": "SELECT id FROM a.r WHERE n % 10 IN (1, 2, 3, 4, 5, 6, 7, 8, 9)",
    "sums of constants": "SELECT id FROM a.r WHERE n BETWEEN 1200 + 1 AND 1200 + 11 OR "
    + " OR ".join(f"n = 1200 + {number} * 100" for number in range(1, 13)),
}


def _row(number: int) -> list[Any]:
    if number % 9 == 8:
        return [number, None, None, None, None]
    text = f"{10 + number}-{MONTHS[number % 11]}"
    return [number, text, 1197 + number * 2, f"2024-{number % 12 + 1:02}-28", f"{number - 5}.50"]


SOURCES = {
    "a": {
        "relations": {
            "r": {
                "columns": {
                    "id": "BIGINT",
                    "x": "VARCHAR",
                    "n": "BIGINT",
                    "day": "DATE",
                    "bal": "DECIMAL(12,2)",
                },
                "key": ["id"],
                "rows": [_row(number) for number in range(14)],
            }
        }
    },
    "b": {"relations": {"o": {"columns": {"r": "BIGINT"}, "rows": [[3], [7]]}}},
}


def _change(source: str, relation: str, row: list[Any], count: int) -> dict[str, Any]:
    return {"source": source, "changes": [{"relation": relation, "row": row, "count": count}]}


UPDATES = [
    *(_change("a", "r", _row(number), 1) for number in range(14, 22)),
    *(_change("b", "o", [number], 1) for number in (19, 20)),
    *(_change("a", "r", _row(number), -1) for number in (3, 8, 21)),
    _change("b", "o", [7], -1),
]


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("algebra", ["frame", "bag"])
def test_it_is_kept_as_duckdb_says(name: str, algebra: str) -> None:
    form = {"name": name, "view": VIEWS[name], "sources": SOURCES, "updates": UPDATES}
    schedule = Schedule(seed=7, algebra=algebra)
    judged = judged_run(
        scenario_from_json(form), PROTOCOLS["batched-sweep"], schedule, double_check=True
    )
    assert judged.trouble is None, judged.trouble
    assert judged.outcome is not None
    assert len(judged.outcome.states) > 1
    assert any(not state.change.is_empty() for state in judged.outcome.states if state.change)


@pytest.mark.parametrize("name", VIEWS)
def test_it_is_explained(name: str) -> None:
    told = page(explain("view", VIEWS[name], catalog_from_json(SOURCES)))
    assert told.startswith("View view\n")
    assert "\n\nQuestions\n" in told
