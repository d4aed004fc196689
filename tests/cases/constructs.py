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
    _changed("s", (-1, [7, None, 5, "ä%"]), (-1, [7, None, None, "x"])),
    _changed("s", (1, [9, None, 1, "ab"])),
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
    "* with USING in a right join": "SELECT id, u.k1, u.y FROM (SELECT * FROM a.r RIGHT JOIN b.s"
    " USING (id)) u(id, k1, x, p, f, t, d, k2, m, y)",
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

GROUPS = {
    "BOOL_AND, BOOL_OR": "SELECT k, bool_and(t), bool_or(t) FROM a.r GROUP BY k",
    "BOOL_AND of all rows": "SELECT bool_and(p > 0) AS a, bool_or(p > 5) FILTER (WHERE t) AS b FROM"
    " a.r",
    "BOOL_OR in HAVING": "SELECT k FROM a.r GROUP BY k HAVING bool_or(p > 1) AND NOT bool_and(t)",
    "BOOL_AND of a subquery": "SELECT id, (SELECT bool_and(s.m > 5) FROM b.s WHERE s.k = r.k) AS c"
    " FROM a.r",
    "COUNT(DISTINCT)": "SELECT k, count(DISTINCT x) AS n FROM a.r GROUP BY k",
    "COUNT(DISTINCT) of all rows": "SELECT count(DISTINCT y) AS n, count(DISTINCT k) AS k FROM b.s",
    "COUNT(DISTINCT) beside others": "SELECT k, count(DISTINCT y) AS n, count(*) AS c, sum(m) AS s,"
    " count(m) AS v, max(m) AS g FROM b.s GROUP BY k",
    "COUNT(DISTINCT) of all, beside others": "SELECT count(DISTINCT y) AS n, count(*) AS c,"
    " min(m) AS s FROM b.s",
    "SUM(DISTINCT), AVG(DISTINCT)": "SELECT k, sum(DISTINCT p) AS s, avg(DISTINCT p) AS a FROM a.r"
    " GROUP BY k HAVING count(DISTINCT p) > 0",
    "COUNT(DISTINCT) beside AVG": "SELECT k, count(DISTINCT x) AS n, avg(p) AS a FROM a.r GROUP BY"
    " k",
    "COUNT(DISTINCT) with FILTER": "SELECT x, count(DISTINCT k) FILTER (WHERE t) AS n, count(*) AS"
    " c FROM a.r GROUP BY x",
    "COUNT(DISTINCT) in a subquery": "SELECT m, (SELECT count(DISTINCT x) + count(*) FROM a.r WHERE"
    " r.k = s.k) AS n FROM b.s",
    "SUM of DOUBLE": "SELECT k, sum(f) AS s, count(*) AS n FROM a.r GROUP BY k",
    "AVG of DOUBLE over all rows": "SELECT avg(f) AS a, sum(f * 0.1) FILTER (WHERE t) AS s FROM"
    " a.r",
    "SUM(DISTINCT) of DOUBLE": "SELECT t, sum(DISTINCT f) AS s, count(DISTINCT x) AS n, avg(f) AS a"
    " FROM a.r GROUP BY t",
    "SUM of DOUBLE beside COUNT(DISTINCT)": "SELECT t, sum(f * 0.3 + 0.8) AS s,"
    " count(DISTINCT x) AS n FROM a.r GROUP BY t",
    "SUM of DOUBLE in a subquery": "SELECT m, (SELECT sum(f) FROM a.r WHERE r.k = s.k) AS n FROM"
    " b.s",
    "ROLLUP": "SELECT k, x, count(*) AS n, sum(p) AS s FROM a.r GROUP BY ROLLUP (k, x)",
    "CUBE and GROUPING": "SELECT k, t, GROUPING(k, t) AS g, max(p) AS m FROM a.r GROUP BY"
    " CUBE (k, t) HAVING count(*) > 1 OR GROUPING(t) = 1",
    "GROUPING SETS": "SELECT r.k, r.x, s.y, count(*) AS n FROM a.r JOIN b.s ON r.k = s.k"
    " GROUP BY r.k, GROUPING SETS ((r.x), (s.y), ())",
    "GROUPING SETS with DISTINCT": "SELECT DISTINCT count(*) AS n FROM b.s GROUP BY GROUPING SETS"
    " ((k), (y), ROLLUP (m))",
    "ROLLUP of a computed value": "SELECT k + 1 AS g, bool_or(t) AS b FROM a.r GROUP BY ROLLUP (1)",
    "a join with ROLLUP": "SELECT r.id, w.n FROM a.r JOIN (SELECT k, count(*) AS n FROM b.s"
    " GROUP BY ROLLUP (k)) w ON w.k IS NOT DISTINCT FROM r.k",
}
WINDOWS = {
    "ROW_NUMBER": "SELECT id, k, row_number() OVER (PARTITION BY k ORDER BY x, id) AS n FROM a.r",
    "RANK, DENSE_RANK": "SELECT id, rank() OVER (PARTITION BY t ORDER BY p DESC NULLS LAST) AS r,"
    " dense_rank() OVER (PARTITION BY t ORDER BY p DESC NULLS LAST) AS d FROM a.r",
    "LAG, LEAD": "SELECT id, lag(x) OVER (PARTITION BY k ORDER BY id) AS a,"
    " lead(p, 2, CAST(-1 AS DECIMAL(8,2))) OVER (PARTITION BY k ORDER BY id DESC) AS b FROM a.r",
    "FIRST_VALUE, LAST_VALUE": "SELECT id, first_value(x) OVER (PARTITION BY k ORDER BY f, id) AS"
    " a, last_value(x) OVER (PARTITION BY k ORDER BY f, id) AS b FROM a.r",
    "aggregates of a partition": "SELECT k, m, sum(m) OVER (PARTITION BY k) AS s, count(*) OVER"
    " (PARTITION BY k) AS c, avg(m) OVER (PARTITION BY k) AS a, max(y) OVER (PARTITION BY k) AS x,"
    " count(m) FILTER (WHERE m > 5) OVER (PARTITION BY k) AS f FROM b.s",
    "running aggregates": "SELECT id, sum(p) OVER (PARTITION BY k ORDER BY id) AS s, min(p) OVER"
    " (PARTITION BY k ORDER BY x) AS l, max(f) OVER (PARTITION BY k ORDER BY id ROWS BETWEEN 1"
    " PRECEDING AND CURRENT ROW) AS m, avg(f) OVER (PARTITION BY k ORDER BY id ROWS BETWEEN 1"
    " PRECEDING AND 1 FOLLOWING) AS a FROM a.r",
    "a running sum over a bag": "SELECT k, m, sum(m) OVER (PARTITION BY k ORDER BY y) AS s FROM"
    " b.s",
    "QUALIFY": "SELECT id, x, row_number() OVER (PARTITION BY k ORDER BY p NULLS FIRST, id) AS n"
    " FROM a.r QUALIFY n <= 1 OR count(*) OVER (PARTITION BY k) = 2",
    "the first two of each": "SELECT w.k, w.id, s.m FROM (SELECT k, id, row_number() OVER"
    " (PARTITION BY k ORDER BY id) AS n FROM a.r) w LEFT JOIN b.s ON s.k = w.k WHERE w.n < 3",
    "DISTINCT ON": "SELECT DISTINCT ON (k) k, id, x FROM a.r ORDER BY k, p NULLS FIRST, id",
    "a window over a join": "SELECT r.id, s.m, rank() OVER (PARTITION BY r.x ORDER BY s.m) AS n"
    " FROM a.r LEFT JOIN b.s ON r.k = s.k",
    "a window over groups": "SELECT t, k, sum(p) AS s, rank() OVER (PARTITION BY t ORDER BY sum(p),"
    " count(*)) AS n, sum(sum(p)) OVER (PARTITION BY t) AS w FROM a.r GROUP BY t, k",
    "a window over a computed part": "SELECT id, count(*) OVER (PARTITION BY id % 2, x) AS n FROM"
    " a.r WHERE id > 1",
}
#: Name → dialect, view.
DIALECTS = {
    "quotients and ROUND of DuckDB": (
        "duckdb",
        "SELECT id, k / 2 AS a, p / 3 AS b, round(f, 1) AS c, 1e3 * f AS e, round(f) AS g FROM a.r"
        " WHERE id / 2 > 0.5 OR f IN (k, 2)",
    ),
    "quotients of aggregates of DuckDB": (
        "duckdb",
        "SELECT k, sum(p) / count(*) AS a, sum(CASE WHEN t THEN 1 ELSE 0 END) / count(*) AS s"
        " FROM a.r GROUP BY k",
    ),
    "a join by a quotient of DuckDB": (
        "duckdb",
        "SELECT s.m FROM b.s JOIN a.r ON r.k = s.k WHERE r.f BETWEEN s.m AND 10 OR s.m / r.id > 1",
    ),
    "quotients of whole numbers of PostgreSQL": (
        "postgres",
        "SELECT id, -k / 2 AS a, length(x) / 2 AS l, round(f) AS c, f IN (k, 2) AS i FROM a.r"
        " WHERE id / 2 > 0.5",
    ),
    "exact quotients of PostgreSQL": (
        "postgres",
        "SELECT id, p / 3 AS b, 1e3 * p AS d, extract(year FROM d) / 7 AS e FROM a.r"
        " WHERE p / id > 0.3",
    ),
    "quotients of aggregates of PostgreSQL": (
        "postgres",
        "SELECT k, sum(p) / count(*) AS a, sum(CASE WHEN t THEN 1 ELSE 0 END) / count(*) AS s,"
        " sum(length(x)) / 2 AS i FROM a.r GROUP BY k",
    ),
    "AVG of PostgreSQL": (
        "postgres",
        "SELECT x, avg(f) AS f, avg(p) AS p, avg(DISTINCT p) AS h, avg(p) FILTER (WHERE t) AS j"
        " FROM a.r GROUP BY x",
    ),
    "dates of PostgreSQL": (
        "postgres",
        "SELECT sum(r.d - DATE '2024-01-01') / 7 AS w, avg(k) AS a FROM a.r",
    ),
    "a window of PostgreSQL": (
        "postgres",
        "SELECT id, avg(p) OVER (PARTITION BY k) AS a, sum(length(x)) FILTER (WHERE t) OVER"
        " (PARTITION BY k ORDER BY id) / 2 AS l FROM a.r",
    ),
    "a subquery of PostgreSQL": (
        "postgres",
        "SELECT m, (SELECT avg(p) FROM a.r WHERE r.k = s.k) AS n FROM b.s WHERE m * 2 / 3 = 6"
        " OR m IS NULL",
    ),
}
LINKS = {
    "a link in all arms of OR": "SELECT r.id, s.m FROM a.r, b.s WHERE (r.k = s.k AND r.x = 'ab') OR"
    " (S.k = r.K AND s.m > 5) OR (s.y = 'x' AND (r.k = s.k))",
    "an arm of OR that is the link": "SELECT r.id, s.m FROM a.r LEFT JOIN b.s"
    " ON (r.k = s.k AND r.x = 'ab') OR r.k = s.k",
    "a link in all arms of a subquery": "SELECT id FROM a.r WHERE EXISTS (SELECT 1 FROM b.s WHERE"
    " (s.k = r.k AND s.m > 5) OR (s.k = r.k AND r.t))",
    "IS NOT DISTINCT FROM": "SELECT r.id, s.m FROM a.r JOIN b.s ON r.k IS NOT DISTINCT FROM s.k",
    "IS NOT DISTINCT FROM in a left join": "SELECT r.id, s.m, s.y FROM a.r LEFT JOIN b.s"
    " ON s.k IS NOT DISTINCT FROM r.k",
    "IS NOT DISTINCT FROM of two columns": "SELECT r.id, s.m, s.y FROM a.r LEFT JOIN b.s"
    " ON s.k IS NOT DISTINCT FROM r.k AND s.y IS NOT DISTINCT FROM r.x",
    "IS NOT DISTINCT FROM in a full join": "SELECT r.id, s.m FROM a.r FULL JOIN b.s"
    " ON s.y IS NOT DISTINCT FROM r.x",
    "IS NOT DISTINCT FROM in NOT EXISTS": "SELECT id FROM a.r WHERE NOT EXISTS (SELECT 1 FROM b.s"
    " WHERE s.k IS NOT DISTINCT FROM r.k)",
    "IS NOT DISTINCT FROM and a test": "SELECT r.id, s.m FROM a.r LEFT JOIN b.s"
    " ON s.k IS NOT DISTINCT FROM r.k AND s.m > r.id",
    "rows in a list": "SELECT id FROM a.r WHERE (k, x) IN ((1, 'ab'), (2, ''), (3, 'x'))"
    " OR (t AND (k, id) = (1, 1))",
    "rows in a subquery": "SELECT id FROM a.r WHERE (k, x) IN (SELECT k, y FROM b.s)",
    "NATURAL JOIN": "SELECT id, x, m FROM a.r NATURAL JOIN b.s",
    "NATURAL LEFT JOIN": "SELECT id, count(m) AS n FROM a.r NATURAL LEFT JOIN b.s GROUP BY id",
    "SEMI JOIN": "SELECT r.id, x FROM a.r SEMI JOIN b.s ON r.k = s.k AND s.m > r.id",
    "ANTI JOIN": "SELECT id, x FROM a.r ANTI JOIN b.s USING (k)",
    "WHERE 1 = 1": "SELECT id, 1 < 2 AS yes FROM a.r LEFT JOIN b.s USING (id) WHERE 1 = 1"
    " AND ('a' = 'b' OR s.m IS NULL)",
    "joined VALUES": "SELECT r.id, v.w FROM a.r JOIN (VALUES (1, 'one'), (2, NULL), (1, 'uno'))"
    " AS v(n, w) ON r.k = v.n",
    "VALUES on the left": "SELECT v.n, count(s.m) AS c FROM (VALUES (1), (4), (9), (NULL)) AS v(n)"
    " LEFT JOIN b.s ON s.k = v.n GROUP BY v.n",
    "VALUES without a link": "SELECT r.id, v.n FROM a.r, (VALUES (1), (2)) AS v(n) WHERE r.k > v.n",
    "a subquery over VALUES": "SELECT v.n, (SELECT sum(m) FROM b.s WHERE s.k = v.n) AS t"
    " FROM (VALUES (1), (4)) AS v(n)",
    "UNION with constants": "SELECT k FROM a.r UNION SELECT 1 UNION SELECT 7",
    "joined constants": "SELECT r.id, c.a FROM a.r JOIN (SELECT 1 AS n, 'one' AS a) c ON r.k = c.n",
    "EXISTS without a link": "SELECT id FROM a.r WHERE EXISTS (SELECT 1 FROM b.s WHERE m = 7)",
    "NOT EXISTS without a link": "SELECT id FROM a.r WHERE NOT EXISTS (SELECT 1 FROM b.s WHERE"
    " y = 'x') OR k = 1",
    "EXISTS without a link, as a value": "SELECT m, EXISTS (SELECT 1 FROM a.r WHERE k = 4)"
    " FROM b.s",
    "a value by key": "SELECT s.m, (SELECT x FROM a.r WHERE r.id = s.id) FROM b.s",
    "a value by key, tested": "SELECT s.m FROM b.s WHERE 1 < COALESCE((SELECT k + 1 FROM a.r WHERE"
    " r.id = s.id AND r.t), 7)",
    "a value of one row": "SELECT m, (SELECT p FROM a.r WHERE id = 3) AS p FROM b.s",
}
