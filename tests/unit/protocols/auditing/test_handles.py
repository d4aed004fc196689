"""What a stretch of a view is, for every kind of view."""

import pytest

from protocols.auditing.handles import covers_of
from protocols.views.catalog import catalog_from_json
from protocols.views.sql import parse_view

CATALOG = catalog_from_json(
    {
        "a": {
            "relations": {
                "c": {"columns": {"id": "BIGINT", "name": "VARCHAR"}, "key": ["id"]},
                "o": {"columns": {"no": "BIGINT", "c": "BIGINT", "x": "BIGINT"}, "key": ["no"]},
                "bag": {"columns": {"c": "BIGINT", "y": "BIGINT"}},
            }
        }
    }
)
CASES = {
    "SELECT o.no, c.id FROM a.o o JOIN a.c c ON o.c = c.id": "no* or id*",
    "SELECT c.id, c.name FROM a.o o JOIN a.c c ON o.c = c.id": "id* or id/name*",
    "SELECT o.x, c.id FROM a.o o JOIN a.c c ON o.c = c.id": "id*",
    "SELECT o.x, c.name FROM a.o o JOIN a.c c ON o.c = c.id": "x or name",
    "SELECT b.y, c.name FROM a.bag b JOIN a.c c ON b.c = c.id": "y or name",
    "SELECT c.id, o.no FROM a.c c LEFT JOIN a.o o ON o.c = c.id": "id*",
    "SELECT c.id, o.no FROM a.c c RIGHT JOIN a.o o ON o.c = c.id": "no*",
    "SELECT c.id, o.no FROM a.c c FULL JOIN a.o o ON o.c = c.id": "id* and no*",
    "SELECT id, c.name, o.x FROM a.c c FULL JOIN (SELECT c AS id, x FROM a.o) o USING (id)": (
        "name and x"
    ),
    "SELECT c.id FROM a.c c WHERE EXISTS (SELECT 1 FROM a.o o WHERE o.c = c.id)": "id*",
    "SELECT c.id FROM a.c c WHERE c.id NOT IN (SELECT o.c FROM a.o o)": "id*",
    "SELECT c, count(*) AS n FROM a.o GROUP BY c": "c",
    "SELECT c.id, count(*) AS n FROM a.o o JOIN a.c c ON o.c = c.id GROUP BY c.id": "id*",
    "SELECT DISTINCT name FROM a.c": "name",
    "SELECT id FROM a.c UNION ALL SELECT no FROM a.o": "id*",
    "SELECT id, name FROM a.c UNION SELECT y, 'none' FROM a.bag": "id",
    "SELECT id FROM a.c INTERSECT SELECT c FROM a.o": "id",
    "SELECT id FROM a.c EXCEPT ALL SELECT c FROM a.o": "id",
    "SELECT c.id * 2 AS twice, c.id AS id FROM a.c c": "id*",
    "SELECT no, c, rank() OVER (PARTITION BY c ORDER BY x) AS r FROM a.o": "c",
    "SELECT no, rank() OVER (PARTITION BY c ORDER BY x) AS r FROM a.o": "the whole view",
    "SELECT DISTINCT ON (c) c, no FROM a.o ORDER BY c, no": "c",
    "SELECT count(*) AS n FROM a.c": "the whole view",
    "SELECT upper(name) AS u FROM a.c": "the whole view",
    "SELECT id, count(*) AS n FROM a.c GROUP BY ROLLUP (id)": "the whole view",
}


def in_words(sql: str) -> str:
    """The handles of the best covers; `*` marks keys."""
    covers = covers_of(parse_view("v", sql, CATALOG))
    if not covers:
        return "the whole view"
    best = [cover for cover in covers if _rank(cover) == _rank(covers[0])]
    return " or ".join(
        " and ".join("/".join(handle.columns) + "*" * handle.keyed for handle in cover)
        for cover in best
    )


def _rank(cover: object) -> tuple[int, int]:
    assert isinstance(cover, tuple)
    return sum(not handle.keyed for handle in cover), len(cover)


@pytest.mark.parametrize(("sql", "expected"), CASES.items())
def test_a_stretch_is_taken_by_these_columns(sql: str, expected: str) -> None:
    assert in_words(sql) == expected
