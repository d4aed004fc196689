"""A story over two sources, and views over it that have one construct each.

`r` has a key, `s` is a bag. Their rows have NULLs, equal values and values without a partner, and
the updates bring and take first and last partners.
"""

from typing import Any

Row = list[Any]

SOURCES: dict[str, Any] = {
    "a": {
        "relations": {
            "r": {
                "columns": {
                    "id": "BIGINT",
                    "k": "BIGINT",
                    "x": "VARCHAR",
                    "p": "DECIMAL(8,2)",
                    "f": "DOUBLE",
                    "t": "BOOLEAN",
                    "d": "DATE",
                },
                "key": ["id"],
                "rows": [
                    [1, 1, "ab", "1.50", 0.5, True, "2024-02-29"],
                    [2, 1, "Ab,c", "-2.25", -1.0, False, "2024-03-01"],
                    [3, 2, "", "0.00", 2.0, None, None],
                    [4, None, None, "7.00", None, True, "1999-12-31"],
                    [5, 3, "ä%", None, 1e300, False, "2024-02-29"],
                    [6, 2, "ab", "1.50", 0.0, True, "2024-03-01"],
                ],
            }
        }
    },
    "b": {
        "relations": {
            "s": {
                "columns": {"id": "BIGINT", "k": "BIGINT", "m": "BIGINT", "y": "VARCHAR"},
                "rows": [
                    [1, 1, 10, "ab"],
                    [1, 1, 10, "ab"],
                    [2, 2, None, None],
                    [7, None, 5, "ä%"],
                    [3, 4, -3, ""],
                ],
            }
        }
    },
}


def _changed(relation: str, *changes: tuple[int, Row]) -> dict[str, Any]:
    forms = [{"relation": relation, "row": row, "count": count} for count, row in changes]
    return {"source": "a" if relation == "r" else "b", "changes": forms}


R7: Row = [7, 4, "ab", "3.00", -0.25, False, "2024-12-31"]
S2: Row = [2, 3, 7, "x"]
UPDATES: list[dict[str, Any]] = [
    _changed("r", (1, R7)),
    _changed("s", (-1, [1, 1, 10, "ab"]), (1, S2)),
    _changed("s", (-1, [1, 1, 10, "ab"])),
    _changed(
        "r", (-1, [3, 2, "", "0.00", 2.0, None, None]), (1, [3, 1, "x", "4.50", 2.5, True, None])
    ),
    _changed("s", (1, [4, 2, 5, "ab"]), (1, [7, None, None, "x"])),
    _changed("r", (-1, [4, None, None, "7.00", None, True, "1999-12-31"])),
    _changed("s", (-1, S2), (-1, [3, 4, -3, ""])),
    _changed("r", (-1, R7), (1, [8, None, "Ab,c", "-2.25", 0.5, None, "2024-02-29"])),
    _changed("s", (1, [8, 1, 0, ""])),
    _changed("r", (-1, [1, 1, "ab", "1.50", 0.5, True, "2024-02-29"])),
]

NAMES = {
    "items without a name": "SELECT k, count(*), sum(p), sum(id), -k FROM a.r GROUP BY k",
    "names that PostgreSQL gives": "SELECT u.sum + u.count AS x, u.case FROM (SELECT k, sum(p),"
    " count(*), CASE WHEN k > 1 THEN 1 ELSE 2 END FROM a.r GROUP BY k) u JOIN b.s ON s.k = u.k",
    "the same name twice, unused": "SELECT u.x, count(*) AS n FROM (SELECT r.k, s.k, r.x"
    " FROM a.r LEFT JOIN b.s ON r.k = s.k) u GROUP BY u.x",
    "* with USING": "SELECT u.k1, u.k2, u.y FROM (SELECT * FROM a.r LEFT JOIN b.s USING (id))"
    " u(id, k1, x, p, f, t, d, k2, m, y)",
    "* with USING in a full join": "SELECT id, count(u.k1) AS n FROM (SELECT * FROM a.r FULL JOIN"
    " b.s USING (id)) u(id, k1) GROUP BY id",
    "joins under an alias": "SELECT j.x, j.m FROM (a.r JOIN b.s ON r.k = s.k) AS j WHERE j.m > 1",
    "a left join to joins under an alias": "SELECT r.id, j.i, j.y FROM a.r LEFT JOIN (a.r AS q"
    " JOIN b.s ON q.k = s.k) AS j(i, k, x, p, f, t, d, i2, k2, m, y) ON r.id = j.i2",
    "a subquery without an alias": "SELECT x, n FROM (SELECT k AS g, count(*) AS n FROM b.s"
    " GROUP BY k) JOIN a.r ON g = r.k",
    "some columns renamed": "SELECT u.a, u.b, u.m FROM b.s AS u(a, b) WHERE u.b IS NOT NULL",
    "columns named in WITH": "WITH w(g, n) AS (SELECT k, count(*) FROM b.s GROUP BY k)"
    " SELECT id, n FROM a.r LEFT JOIN w ON g = k",
    "a comma before a full join": "SELECT q.id, r.x, s.m FROM a.r AS q, a.r FULL JOIN b.s"
    " ON r.k = s.k WHERE q.id = s.id",
}
