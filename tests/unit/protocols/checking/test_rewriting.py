"""A view's text over other tables means the same to DuckDB, also where it leaves names out."""

import duckdb
import pytest

from protocols.checking.rewriting import view_text
from protocols.views.catalog import Relation, catalog_from_json

CATALOG = catalog_from_json(
    {"s": {"relations": {"r": {"columns": {"a": "BIGINT", "b": "BIGINT"}}}}}
)
#: The text of a view → the same with the names that are missing, over the table `other`.
SAME = {
    "SELECT u.sum, u.count FROM (SELECT a, sum(b), count(*) FROM s.r GROUP BY a) u": (
        "SELECT u.s, u.c FROM (SELECT a, sum(b) AS s, count(*) AS c FROM other GROUP BY a) u"
    ),
    "WITH w AS (SELECT -a, b FROM s.r) SELECT column1 FROM w": "SELECT -a FROM other",
    "SELECT t.a, t.x FROM s.r AS t(x, a)": "SELECT b, a FROM other",
    "SELECT t.a, u.b AS c FROM s.r AS t(x, a) JOIN s.r AS u(b, y) ON t.x = u.b": (
        "SELECT t.b, u.a FROM other t JOIN other u ON t.a = u.a"
    ),
}


@pytest.mark.parametrize("sql", SAME)
@pytest.mark.parametrize("tagged", [False, True])
def test_it_has_the_rows_of_the_text_with_names(sql: str, tagged: bool) -> None:
    database = duckdb.connect()
    database.execute("CREATE TABLE other AS SELECT * FROM (VALUES (1, 2), (1, 3), (2, 5)) v(a, b)")
    database.execute("CREATE TABLE counted AS SELECT *, 1 AS _count FROM other")
    text = view_text(sql, CATALOG)
    if tagged and text.is_spj:
        inner = text.tagged(lambda _: "counted", ["_count"], ["7 AS seven"])
        rows = [row[:-1] for row in database.execute(inner).fetchall()]
    else:
        rows = database.execute(text.over(_other)).fetchall()
    assert sorted(rows) == sorted(database.execute(SAME[sql]).fetchall())


def _other(_: Relation) -> str:
    return "other"
