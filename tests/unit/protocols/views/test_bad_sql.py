"""Texts that are not a view: each is refused with its place, a reason and a way out.

In the text ‸ marks the place that the message must name, right before the word.
"""

import pytest

from protocols.algebra.expressions import And, Or
from protocols.errors import ViewRefused
from protocols.views.sql import parse_view
from protocols.views.view import View
from tests.cases.good_views import CATALOG, GOOD

_MARK = "‸"
NO_SQL = [
    ("‸", "there is no SELECT in it"),
    ("‸ \n\t\n", "there is no SELECT in it"),
    ("‸-- a view to come", "there is no SELECT in it"),
    ("‸/* a view\nto come */ ;", "there is no SELECT in it"),
    ("SELECT id FROM shop.orders;\n‸SELECT 1", "here a second statement begins"),
    ("-- first\n‸DELETE FROM shop.orders", "this is DELETE"),
    ("‸CREATE VIEW v AS SELECT id FROM shop.orders", "this is CREATE"),
    ("‸INSERT INTO shop.orders (id) VALUES (1)", "this is INSERT"),
    ("‸DROP TABLE shop.orders", "this is DROP"),
    ("‸EXPLAIN SELECT id FROM shop.orders", "this is EXPLAIN"),
    ("‸DESCRIBE shop.orders", "this is DESCRIBE"),
    ("‸PIVOT shop.orders ON paid USING sum(id)", "this is PIVOT"),
    ("‸VALUES (1), (2)", "this is VALUES"),
    ("‸GRANT SELECT ON shop.orders TO public", "not SQL: syntax error at or near"),
    ("SELECT id FORM ‸shop.orders", 'not SQL: syntax error at or near "shop"'),
    ("SELECT id FROM shop.orders\n‸WHERE", 'not SQL: syntax error at or near "WHERE"'),
    ("SELECT id FROM shop.orders GROUP ‸BY", 'not SQL: syntax error at or near "BY"'),
    ("SELECT ‸, id FROM shop.orders", 'not SQL: syntax error at or near ","'),
    ("SELECT id\nFROM shop.orders\nWHERE id = ‸AND paid", 'not SQL: .* near "AND"'),
    ("SELECT item FROM shop.lines\nWHERE item = ‸'ä", "not SQL: unterminated string literal"),
    ('SELECT ‸"item FROM shop.lines', "not SQL: unterminated quoted identifier"),
    ("SELECT item ‸/* FROM shop.lines", r"not SQL: unterminated /\* comment"),
    ("‸ünïcödé gärbäge ☃", "not SQL"),
    ("SELECT 'äöü☃' AS x, ☃ FROM ☃ ‸)", "not SQL"),
    ("SELECT id‸\0 FROM shop.orders", "not text"),
    ("‸\0\0\x7fELF\x02\x01\x01\0", "not text"),
]
NAMES = [
    ("SELECT ‸nix FROM shop.orders", "no relation in FROM has a column 'nix'"),
    ("SELECT id,\n  ‸o.nix FROM shop.orders o", "o has no column 'nix'; it has: id, customer"),
    ("SELECT ‸x.id FROM shop.orders o", "'x' is not in FROM; there are: o"),
    ("SELECT id FROM ‸shop.order", r"no relation shop\.order; there are: shop\.orders"),
    ("SELECT id FROM ‸orders", r"write relations as source\.relation"),
    ("SELECT id FROM ‸main.shop.orders", r"write relations as source\.relation"),
    ("SELECT ‸shop.orders.id FROM shop.orders", r"write columns as alias\.column"),
    (
        "SELECT ‸customer FROM shop.orders o JOIN crm.customers c ON o.customer = c.customer",
        r"ambiguous: write o\.customer or c\.customer",
    ),
    ("SELECT id FROM shop.orders, ‸shop.orders", "'orders' occurs twice in FROM"),
    ("SELECT id AS a, ‸no AS A FROM shop.lines", "two columns are called 'A'"),
    ("SELECT ‸id AS _position FROM shop.orders", "names with a leading _ are reserved"),
    ("SELECT a FROM ‸crm.customers c(a, b, c, d)", "c has 3 columns, not 4"),
    ("SELECT ‸t.id FROM (SELECT id, no AS id FROM shop.lines) t", "name of its own with AS"),
    ("SELECT ‸t.* FROM (SELECT id, no AS id FROM shop.lines) t", "two columns are called 'id'"),
    ("SELECT ‸l.id FROM (shop.lines l JOIN crm.customers c ON l.no = c.boss) j", "there are: j"),
    ("SELECT ‸x.id FROM (SELECT id FROM shop.lines)", "only tables without an alias"),
    (
        "SELECT ‸* FROM shop.orders JOIN crm.customers USING (customer)",
        "begins with the columns of USING in PostgreSQL",
    ),
    (
        "SELECT ‸j.* FROM (shop.orders JOIN crm.customers USING (customer)) j",
        "begins with the columns of USING in PostgreSQL",
    ),
    (
        "SELECT ‸customer FROM shop.orders JOIN crm.customers a USING (customer)"
        " JOIN crm.customers b ON a.boss = b.customer",
        r"ambiguous: write orders\.customer or a\.customer or b\.customer",
    ),
    ("WITH t AS (SELECT a FROM ‸u), u AS (SELECT id AS a FROM shop.orders) SELECT a FROM t", "u"),
    ("WITH t AS (SELECT id FROM ‸t) SELECT id FROM t", r"write relations as source\.relation"),
    ("WITH ‸t(a, b) AS (SELECT id FROM shop.orders) SELECT a FROM t", "t has 1 column, not 2"),
    ("‸WITH t AS (SELECT 1), t AS (SELECT 2) SELECT a FROM t", "Duplicate CTE name"),
]
CLAUSES = [
    ("SELECT id FROM shop.orders ORDER BY ‸id", "ORDER BY is not .* query that reads the view"),
    ("SELECT id FROM shop.orders LIMIT ‸3", "LIMIT is not .* query that reads the view"),
    ("SELECT id FROM shop.orders OFFSET ‸3", "OFFSET is not .* query that reads the view"),
    ("SELECT id FROM shop.orders UNION SELECT no FROM shop.lines ORDER BY ‸1", "ORDER BY is not"),
    ("SELECT DISTINCT ON (‸customer) id FROM shop.orders", "DISTINCT ON depends on which"),
    ("SELECT id FROM shop.orders QUALIFY ‸rank() OVER (ORDER BY id) = 1", "without PARTITION BY"),
    ("SELECT id, ‸row_number() OVER (ORDER BY day) AS n FROM shop.orders", "without PARTITION"),
    ("SELECT ‸sum(id) OVER () AS n FROM shop.orders", "without PARTITION BY"),
    ("SELECT id FROM shop.orders TABLESAMPLE ‸10%", "TABLESAMPLE is not"),
    ("SELECT id FROM shop.orders USING SAMPLE ‸10%", "TABLESAMPLE is not"),
    ("SELECT * FROM shop.lines PIVOT (‸sum(no) FOR id IN (1, 2))", "PIVOT and UNPIVOT are not"),
    ("SELECT * EXCLUDE (‸id) FROM shop.orders", "list the columns"),
    ("WITH RECURSIVE ‸t AS (SELECT id FROM shop.orders) SELECT id FROM t", "RECURSIVE is not"),
    ("SELECT id FROM shop.orders AT (VERSION => ‸3)", "AT is not supported"),
]
JOINS = [
    ("SELECT no FROM shop.lines NATURAL JOIN ‸crm.customers", "no column of one side is called"),
    (
        "SELECT * FROM shop.orders a NATURAL JOIN (‸crm.customers b JOIN crm.customers c ON"
        " b.boss = c.boss)",
        r"USING \(customer\): each side must have it exactly once",
    ),
    (
        "SELECT id FROM shop.orders o ASOF JOIN ‸crm.customers c ON o.customer >= c.customer",
        "ASOF JOIN is not supported; INNER, LEFT, RIGHT, FULL, CROSS, NATURAL, SEMI and ANTI are",
    ),
    ("SELECT id FROM shop.orders POSITIONAL JOIN ‸crm.customers", "POSITIONAL JOIN is not"),
    (
        "SELECT o.id FROM shop.orders o, LATERAL\n"
        " (SELECT ‸no FROM shop.lines l WHERE l.id = o.id) t",
        "LATERAL is not supported; join the subquery with ON",
    ),
    (
        "SELECT o.id FROM shop.orders o,\n (SELECT no FROM shop.lines l WHERE l.id = ‸o.id) t",
        "'o' is not in FROM; there are: l",
    ),
    ("SELECT id FROM shop.lines JOIN crm.customers USING (‸id)", "exactly once; write ON"),
    ("SELECT a.id FROM shop.lines a JOIN shop.lines b USING (id, ‸nix)", "exactly once"),
    (
        "SELECT name FROM crm.customers JOIN (SELECT item AS customer FROM shop.lines) t"
        " USING (‸customer)",
        "BIGINT and VARCHAR",
    ),
    ("SELECT o.id FROM shop.orders o JOIN crm.customers ‸c", 'not SQL: .* near "c"'),
    ("SELECT o.id FROM shop.orders o LEFT JOIN crm.customers ‸c", 'not SQL: .* near "c"'),
    (
        "SELECT o.id FROM shop.orders o CROSS JOIN ‸crm.customers c",
        "joins 'c' to the relations .* add one",
    ),
    ("SELECT o.id FROM shop.orders o, ‸crm.customers c", "joins 'c' to the relations .* add one"),
    (
        "SELECT o.id FROM shop.orders o FULL JOIN ‸crm.customers c ON o.id < c.customer",
        "joins 'c' to the relations .* add one",
    ),
    ("SELECT id FROM ‸generate_series(1, 3) t(id)", "only relations and subqueries"),
    ("SELECT id FROM ‸read_csv('x.csv')", "only relations and subqueries"),
    ("SELECT id FROM ‸'x.csv'", r"write relations as source\.relation"),
    ("SELECT ‸id FROM (VALUES (1), (2)) t(id)", "names no relation, so it would never change"),
    ("SELECT ‸id FROM (SELECT 1) t(id)", "names no relation, so it would never change"),
    ("SELECT id FROM shop.orders, (VALUES (‸1, 2)) t", r"names for its columns: .* AS v\(a, b\)"),
    (
        "SELECT t.x FROM shop.orders o, (VALUES (‸o.id)) t(x)",
        "VALUES can only list constants; select columns FROM a relation",
    ),
    ("SELECT t.x FROM shop.orders, (VALUES (‸9223372036854775807 + 1)) t(x)", "has no value"),
    (
        "SELECT o.id FROM shop.lines l, shop.orders o JOIN crm.customers c ON c.boss = ‸l.no",
        "l stands before a comma, where ON does not reach; write CROSS JOIN",
    ),
]
GROUPS = [
    ("SELECT ‸id, count(*) AS n FROM shop.orders GROUP BY paid", "neither in GROUP BY nor in an"),
    ("SELECT ‸id, count(*) AS n FROM shop.orders", "neither in GROUP BY nor in an"),
    ("SELECT id FROM shop.orders HAVING ‸paid", "neither in GROUP BY nor in an"),
    (
        "SELECT o.id + 1 AS x FROM shop.orders o GROUP BY o.id + 1"
        " HAVING count(*) > ALL (SELECT l.no FROM shop.lines l WHERE l.no = ‸o.id + 1)",
        "neither in GROUP BY nor in an",
    ),
    ("SELECT ‸* FROM shop.orders GROUP BY id", "list the columns"),
    ("SELECT id FROM shop.orders WHERE ‸count(*) > 1 GROUP BY id", "test it in HAVING"),
    ("SELECT sum(‸max(id)) AS n FROM shop.orders", "aggregate in a subquery in FROM first"),
    ("SELECT id FROM shop.lines GROUP BY ‸sum(no)", "an aggregate cannot be grouped by"),
    ("SELECT id, ‸sum(no) AS s FROM shop.lines GROUP BY 2", "an aggregate cannot be grouped by"),
    ("SELECT id, no FROM shop.lines GROUP BY ‸3", "SELECT has no item 3, it has 2"),
    ("SELECT id FROM shop.lines GROUP BY ‸0", "SELECT has no item 0, it has 1"),
    ("SELECT id FROM shop.lines ‸GROUP BY ALL", "list the columns to group by"),
    ("SELECT ‸string_agg(item, ',') AS s FROM shop.lines", "aggregate them when you read the view"),
    ("SELECT ‸median(no) AS s FROM shop.lines", r"keep each value with its COUNT\(\*\)"),
    ("SELECT ‸array_agg(no) AS s FROM shop.lines", "aggregate them when you read the view"),
    ("SELECT ‸stddev(no) AS s FROM shop.lines", r"keep COUNT\(x\), SUM\(x\) and SUM\(x \* x\)"),
    ("SELECT ‸arg_max(item, no) AS s FROM shop.lines", "join the rows that have it"),
    ("SELECT ‸first(item) AS s FROM shop.lines", "join the rows that have it"),
    ("SELECT ‸count_if(paid) AS s FROM shop.orders", r"write COUNT\(\*\) FILTER \(WHERE …\)"),
    ("SELECT ‸bit_and(no) AS s FROM shop.lines", "MAX, BOOL_AND and BOOL_OR are kept"),
    ("SELECT ‸bool_and(no) AS s FROM shop.lines", "BIGINT is no condition; compare it"),
    ("SELECT ‸sum(paid) AS s FROM shop.orders", "BOOLEAN cannot be added up, only numbers"),
    ("SELECT ‸sum(day) AS s FROM shop.orders", "DATE cannot be added up, only numbers"),
    ("SELECT ‸sum(*) AS s FROM shop.orders", r"only COUNT\(\*\) needs no value"),
    ("SELECT ‸count(DISTINCT *) AS s FROM shop.orders", r"only COUNT\(\*\) needs no value"),
    ("SELECT max(id, ‸3) AS s FROM shop.orders", "MAX takes one value"),
    ("SELECT ‸count(DISTINCT id, no) AS s FROM shop.lines", "a SELECT DISTINCT in FROM"),
    ("SELECT grouping(‸no) AS g FROM shop.lines GROUP BY ROLLUP (id)", "no in GROUPING is not in"),
    (
        "SELECT id FROM shop.lines GROUP BY CUBE (‸id, no, item, weight, id + 1, id + 2, id + 3)",
        "these are 128 grouping sets, and 64 are kept; list",
    ),
    (
        "SELECT id FROM shop.orders WHERE id IN (SELECT id FROM shop.lines GROUP BY ROLLUP (‸id))",
        "move it to WITH, and select from there",
    ),
    ("SELECT ‸no, count(*) FROM shop.lines GROUP BY ROLLUP (id)", "neither in GROUP BY nor in an"),
]
VALUES = [
    ("SELECT id, ‸random() AS r FROM shop.orders", "returns a different value each time"),
    ("SELECT id, ‸now() AS r FROM shop.orders", "returns a different value each time"),
    ("SELECT id,\n ‸CURRENT_DATE AS r FROM shop.orders", "returns a different value each time"),
    ("SELECT id FROM shop.orders WHERE id = ‸$1", "write the value itself"),
    ("SELECT id FROM shop.orders WHERE id = ‸?", "write the value itself"),
    ("SELECT id FROM shop.orders WHERE id = ‸'five'", "'five' is not a BIGINT"),
    ("SELECT id FROM shop.orders WHERE ‸day = paid", "DATE and BOOLEAN; cast one of them"),
    ("SELECT id FROM shop.orders WHERE ‸id", "id is a BIGINT, not a condition"),
    ("SELECT ‸paid + 1 AS x FROM shop.orders", "takes numbers, not BOOLEAN"),
    ("SELECT CASE WHEN ‸paid THEN id ELSE day END AS x FROM shop.orders", "BIGINT and DATE; cast"),
    ("SELECT CAST(‸id AS GEOMETRY) AS x FROM shop.orders", "unknown type 'GEOMETRY'; there are"),
    ("SELECT ‸NULL AS x FROM shop.orders", r"write CAST\(NULL AS …\)"),
    ("SELECT if(‸paid, 1, 2) AS x FROM shop.orders", "write CASE WHEN"),
    ("SELECT id FROM shop.orders WHERE id IN ‸customer", "a list in parentheses or a subquery"),
    ("SELECT id AS ‸select FROM shop.orders", "only DuckDB has the syntax near 'select'"),
    ("SELECT ‸foo(id) AS x FROM shop.orders", r"foo\(id\) is not supported"),
    ("SELECT [‸id] AS x FROM shop.orders", r"\[id\] is not supported"),
    ("SELECT ‸id FROM shop.orders UNION SELECT id, no FROM shop.lines", "1 columns, the right"),
    ("SELECT ‸id FROM shop.orders UNION SELECT item FROM shop.lines", "'item' is VARCHAR on the"),
    ("SELECT ‸id FROM shop.orders UNION BY NAME SELECT id FROM shop.lines", "list the columns in"),
]
SUBQUERIES = [
    (
        "SELECT id FROM shop.orders o WHERE EXISTS (SELECT 1 FROM shop.lines l WHERE l.id = o.id"
        "\nAND EXISTS (SELECT 1 FROM crm.customers c WHERE c.customer = ‸o.customer))",
        "columns from further out are not supported",
    ),
    (
        "SELECT id FROM shop.orders o WHERE id = (SELECT max(no) FROM shop.lines l"
        " WHERE ‸l.id < o.id)",
        "by equalities only",
    ),
    (
        "SELECT id FROM shop.orders o WHERE paid OR id IN (SELECT no FROM shop.lines l"
        " WHERE ‸l.id <> o.id)",
        "by equalities only",
    ),
    ("SELECT id FROM shop.orders WHERE id IN (SELECT ‸id, no FROM shop.lines)", "one column"),
    ("SELECT id FROM shop.orders WHERE ‸id IN (SELECT item FROM shop.lines)", "cast one of them"),
    ("SELECT id FROM shop.orders WHERE id = (SELECT ‸no FROM shop.lines)", "several rows, unless"),
    (
        "SELECT (SELECT max(‸no), min(no) FROM shop.lines) AS x FROM shop.orders",
        "select one aggregate",
    ),
    (
        "SELECT (SELECT max(no) + ‸o.id FROM shop.lines) AS x FROM shop.orders o",
        "only stand in conditions of WHERE",
    ),
    ("SELECT id FROM shop.orders WHERE EXISTS (SELECT ‸nix FROM shop.lines)", "column 'nix'"),
    (
        "SELECT id FROM shop.orders WHERE EXISTS (SELECT id FROM shop.lines LIMIT ‸1)",
        "LIMIT is not",
    ),
    (
        "SELECT id FROM shop.orders WHERE id IN (SELECT ‸id FROM shop.lines UNION SELECT 1)",
        "join it in FROM",
    ),
    ("SELECT id FROM shop.orders WHERE id > ANY ([‸1, 2])", "list values with IN"),
    (
        "SELECT id FROM shop.lines WHERE NOT (‸id, no) IN (SELECT id, customer FROM shop.orders)",
        "without NOT; write EXISTS",
    ),
    ("SELECT id FROM shop.lines WHERE (id, no) IN (SELECT ‸id FROM shop.orders)", "2 columns"),
    (
        "SELECT id FROM shop.lines WHERE (id, no) IN (SELECT id, customer FROM shop.orders"
        " WHERE ‸item = 'x')",
        "rows are compared with cannot name columns of the query around it; write EXISTS",
    ),
]


def _placed(marked: str) -> tuple[str, int, int]:
    """The text without its mark, and the line and column of that."""
    assert marked.count(_MARK) == 1
    before = marked.partition(_MARK)[0].split("\n")
    return marked.replace(_MARK, ""), len(before), len(before[-1]) + 1


@pytest.mark.parametrize(
    ("marked", "reason"),
    [*NO_SQL, *NAMES, *CLAUSES, *JOINS, *GROUPS, *VALUES, *SUBQUERIES],
)
def test_bad_sql_is_refused_at_its_place_with_a_reason(marked: str, reason: str) -> None:
    sql, line, column = _placed(marked)
    with pytest.raises(ViewRefused, match=reason) as refused:
        parse_view("v", sql, CATALOG)
    assert (refused.value.line, refused.value.column) == (line, column), refused.value


# -- too large texts -----------------------------------------------------------------------------

_DEEP = 10_000
TOO_DEEP = {
    "parentheses": f"SELECT {'(' * _DEEP}id{')' * _DEEP} AS x FROM shop.orders",
    "a condition": f"SELECT id FROM shop.orders WHERE {'(' * _DEEP}paid{')' * _DEEP}",
    "NOT": f"SELECT id FROM shop.orders WHERE {'NOT ' * _DEEP}paid",
    "a sum": f"SELECT {'+'.join(['id'] * _DEEP)} AS x FROM shop.orders",
    "CASE": f"SELECT {'CASE WHEN paid THEN ' * 500}1{' END' * 500} AS x FROM shop.orders",
    "queries": f"SELECT id FROM {'(SELECT id FROM ' * 500}shop.orders{') t' * 500}",
    "a union": " UNION ALL ".join(["SELECT id FROM shop.orders"] * 2_000),
    "joins": "SELECT o.id FROM shop.orders o"
    + "".join(f" LEFT JOIN shop.lines l{n} ON l{n}.id = o.id" for n in range(1_000)),
}


@pytest.mark.parametrize("sql", TOO_DEEP.values(), ids=TOO_DEEP)
def test_what_is_nested_too_deeply_is_refused_as_any_bad_view(sql: str) -> None:
    with pytest.raises(ViewRefused, match="nested too deeply; write it in steps"):
        parse_view("v", sql, CATALOG)


def test_the_deepest_parenthesis_is_named() -> None:
    sql = f"SELECT id FROM shop.orders WHERE\n{'(' * _DEEP}paid{')' * _DEEP}"
    with pytest.raises(ViewRefused, match="nested too deeply") as refused:
        parse_view("v", sql, CATALOG)
    assert (refused.value.line, refused.value.column) == (2, _DEEP)


def test_a_long_list_of_conditions_is_not_deep() -> None:
    either = " OR ".join(f"id = {n}" for n in range(2_000))
    both = " AND ".join(f"id <> {n}" for n in range(2_000))
    for conditions in (either, both):
        view = parse_view("v", f"SELECT id FROM shop.orders WHERE {conditions}", CATALOG)
        assert isinstance(view, View)
        condition = view.atoms[0].condition
        assert isinstance(condition, And | Or)
        assert len(condition.parts) == 2_000


@pytest.mark.parametrize("sql", GOOD)
def test_what_is_good_is_not_refused(sql: str) -> None:
    assert parse_view("v", sql, CATALOG).schema
