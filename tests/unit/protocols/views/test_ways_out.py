"""Every refusal says how the view can be written instead, and such a view is kept.

Messages name what the text says, not how a library spells it.
"""

import pytest

from protocols.errors import ViewRefused
from protocols.views.sql import parse_view
from tests.cases.good_views import CATALOG

#: (a view that is refused, the way out as the message words it, the view with it).
WAYS = [
    # names
    (
        "SELECT id FROM orders",
        "write relations as source.relation",
        "SELECT id FROM shop.orders",
    ),
    (
        "SELECT shop.orders.id FROM shop.orders",
        "write columns as alias.column",
        "SELECT orders.id FROM shop.orders",
    ),
    (
        "SELECT customer FROM shop.orders o JOIN crm.customers c ON o.customer = c.customer",
        "write o.customer or c.customer",
        "SELECT o.customer FROM shop.orders o JOIN crm.customers c ON o.customer = c.customer",
    ),
    (
        "SELECT t.id FROM (SELECT id, no AS id FROM shop.lines) t",
        "give each of these columns a name of its own with AS",
        "SELECT t.id FROM (SELECT id, no AS other FROM shop.lines) t",
    ),
    (
        "SELECT l.id, o.id FROM shop.lines l JOIN shop.orders o ON l.id = o.id",
        "give one another name with AS",
        "SELECT l.id, o.id AS o FROM shop.lines l JOIN shop.orders o ON l.id = o.id",
    ),
    (
        "SELECT id FROM shop.orders, shop.orders",
        "give one an alias",
        "SELECT b.no FROM shop.lines, shop.lines b WHERE lines.id = b.id",
    ),
    (
        "SELECT * FROM shop.orders JOIN crm.customers USING (customer)",
        "list the columns",
        "SELECT customer, id, name FROM shop.orders JOIN crm.customers USING (customer)",
    ),
    (
        "SELECT no FROM shop.lines l, shop.orders o JOIN crm.customers c ON c.boss = l.no"
        " WHERE l.id = o.id",
        "write CROSS JOIN instead of the comma",
        "SELECT no FROM shop.lines l CROSS JOIN shop.orders o JOIN crm.customers c ON c.boss = l.no"
        " WHERE l.id = o.id",
    ),
    # clauses
    (
        "SELECT id FROM shop.orders ORDER BY id",
        "the query that reads",
        "SELECT id FROM shop.orders",
    ),
    (
        "SELECT * EXCLUDE (id) FROM shop.lines",
        "list the columns",
        "SELECT no, item, weight FROM shop.lines",
    ),
    (
        "SELECT id FROM shop.orders UNION BY NAME SELECT id FROM shop.lines",
        "list the columns in the same order",
        "SELECT id FROM shop.orders UNION SELECT id FROM shop.lines",
    ),
    (
        "SELECT o.id FROM shop.orders o, LATERAL (SELECT no FROM shop.lines l WHERE l.id = o.id) t",
        "join the subquery with ON",
        "SELECT o.id FROM shop.orders o JOIN (SELECT id, no FROM shop.lines) t ON t.id = o.id",
    ),
    # windows
    (
        "SELECT id, row_number() OVER (PARTITION BY customer ORDER BY day) AS n FROM shop.orders",
        "add a key of each relation to ORDER BY",
        "SELECT id, row_number() OVER (PARTITION BY customer ORDER BY day, id) AS n"
        " FROM shop.orders",
    ),
    (
        "SELECT id, rank() OVER (ORDER BY day) AS n FROM shop.orders",
        "add PARTITION BY",
        "SELECT id, rank() OVER (PARTITION BY customer ORDER BY day) AS n FROM shop.orders",
    ),
    (
        "SELECT id, rank() OVER (PARTITION BY customer ORDER BY day DESC) AS n FROM shop.orders",
        "write DESC NULLS LAST or DESC NULLS FIRST",
        "SELECT id, rank() OVER (PARTITION BY customer ORDER BY day DESC NULLS LAST) AS n"
        " FROM shop.orders",
    ),
    (
        "SELECT id, rank() OVER w AS n FROM shop.orders WINDOW w AS (PARTITION BY day)",
        "write each window out in OVER",
        "SELECT id, rank() OVER (PARTITION BY day) AS n FROM shop.orders",
    ),
    (
        "SELECT id FROM shop.orders WHERE rank() OVER (PARTITION BY day ORDER BY id) = 1",
        "compute it in a subquery in FROM first",
        "SELECT id FROM (SELECT id, rank() OVER (PARTITION BY day ORDER BY id) AS n"
        " FROM shop.orders) WHERE n = 1",
    ),
    # joins
    (
        "SELECT o.id FROM shop.orders o, crm.customers c",
        "add one",
        "SELECT o.id FROM shop.orders o, crm.customers c WHERE o.customer = c.customer",
    ),
    (
        "SELECT no FROM shop.lines NATURAL JOIN crm.customers",
        "write JOIN … ON",
        "SELECT no FROM shop.lines JOIN crm.customers ON no = customer",
    ),
    (
        "SELECT id FROM shop.lines JOIN crm.customers USING (id)",
        "write ON",
        "SELECT id FROM shop.lines JOIN crm.customers ON id = customer",
    ),
    (
        "SELECT o.id FROM shop.orders o JOIN crm.customers c ON o.customer = c.customer AND"
        " EXISTS (SELECT 1 FROM shop.lines l WHERE l.id = o.id)",
        "move it to WHERE",
        "SELECT o.id FROM shop.orders o JOIN crm.customers c ON o.customer = c.customer WHERE"
        " EXISTS (SELECT 1 FROM shop.lines l WHERE l.id = o.id)",
    ),
    (
        "SELECT o.id FROM shop.orders o, (VALUES (1), (2)) v",
        "(VALUES …) AS v(a)",
        "SELECT o.id FROM shop.orders o, (VALUES (1), (2)) AS v(a)",
    ),
    # groups
    (
        "SELECT * FROM shop.lines GROUP BY id",
        "list the columns",
        "SELECT id FROM shop.lines GROUP BY id",
    ),
    (
        "SELECT id FROM shop.lines WHERE count(*) > 1 GROUP BY id",
        "test it in HAVING",
        "SELECT id FROM shop.lines GROUP BY id HAVING count(*) > 1",
    ),
    (
        "SELECT sum(max(no)) AS s FROM shop.lines GROUP BY id",
        "aggregate in a subquery in FROM first",
        "SELECT sum(m) FROM (SELECT max(no) AS m FROM shop.lines GROUP BY id)",
    ),
    (
        "SELECT id, count(*) FROM shop.lines GROUP BY ALL",
        "list the columns to group by",
        "SELECT id, count(*) FROM shop.lines GROUP BY id",
    ),
    (
        "SELECT count(DISTINCT id, no) FROM shop.lines",
        "count the rows of a SELECT DISTINCT in FROM",
        "SELECT count(*) FROM (SELECT DISTINCT id, no FROM shop.lines)",
    ),
    (
        "SELECT stddev(no) FROM shop.lines GROUP BY id",
        "keep COUNT(x), SUM(x) and SUM(x * x)",
        "SELECT count(no), sum(no), sum(no * no) FROM shop.lines GROUP BY id",
    ),
    (
        "SELECT id, arg_max(item, no) FROM shop.lines GROUP BY id",
        "keep MIN or MAX, and join the rows that have it",
        "SELECT l.id, l.item FROM shop.lines l JOIN (SELECT id, max(no) AS no FROM shop.lines"
        " GROUP BY id) m USING (id, no)",
    ),
    (
        "SELECT string_agg(item, ',') FROM shop.lines GROUP BY id",
        "keep the rows, and aggregate them when you read",
        "SELECT id, item FROM shop.lines",
    ),
    (
        "SELECT id, median(no) FROM shop.lines GROUP BY id",
        "keep each value with its COUNT(*)",
        "SELECT id, no, COUNT(*) FROM shop.lines GROUP BY id, no",
    ),
    (
        "SELECT count_if(paid) FROM shop.orders",
        "write COUNT(*) FILTER (WHERE …)",
        "SELECT COUNT(*) FILTER (WHERE paid) FROM shop.orders",
    ),
    (
        "SELECT id FROM shop.orders WHERE id IN (SELECT id FROM shop.lines GROUP BY ROLLUP (id))",
        "move it to WITH, and select from there",
        "WITH w AS (SELECT id FROM shop.lines GROUP BY ROLLUP (id)) SELECT id FROM shop.orders"
        " WHERE id IN (SELECT id FROM w)",
    ),
    # values
    (
        "SELECT id, now() AS t FROM shop.orders",
        "compute it when you read the view",
        "SELECT id FROM shop.orders",
    ),
    (
        "SELECT soundex(item) AS s FROM shop.lines",
        "keep what it is made of",
        "SELECT item FROM shop.lines",
    ),
    (
        "SELECT id FROM shop.orders WHERE id = 'five'",
        "write one, or cast the column",
        "SELECT id FROM shop.orders WHERE CAST(id AS VARCHAR) = 'five'",
    ),
    (
        "SELECT id FROM shop.orders WHERE price > '1.555'",
        "write one, or cast the column",
        "SELECT id FROM shop.orders WHERE price > 1.555",
    ),
    (
        "SELECT price / 2 AS half FROM shop.orders",
        "cast one side to DOUBLE",
        "SELECT CAST(price AS DOUBLE) / 2 AS half FROM shop.orders",
    ),
    (
        "SELECT weight % 2 AS r FROM shop.lines",
        "cast to BIGINT",
        "SELECT CAST(weight AS BIGINT) % 2 AS r FROM shop.lines",
    ),
    (
        "SELECT round(weight, 2) AS r FROM shop.lines",
        "write CAST(x * 100 AS BIGINT)",
        "SELECT CAST(weight * 100 AS BIGINT) AS r FROM shop.lines",
    ),
    (
        "SELECT CAST(weight AS DECIMAL(8,2)) AS r FROM shop.lines",
        "write CAST(x * 100 AS BIGINT)",
        "SELECT CAST(weight * 100 AS BIGINT) AS r FROM shop.lines",
    ),
    (
        "SELECT if(paid, 1, 2) AS x FROM shop.orders",
        "write CASE WHEN … THEN … ELSE … END",
        "SELECT CASE WHEN paid THEN 1 ELSE 2 END AS x FROM shop.orders",
    ),
    (
        "SELECT NULL AS x FROM shop.orders",
        "CAST(NULL AS …)",
        "SELECT CAST(NULL AS DATE) AS x FROM shop.orders",
    ),
    (
        "SELECT date_trunc('month', day) AS m FROM shop.orders",
        "cast to TIMESTAMP first",
        "SELECT date_trunc('month', CAST(day AS TIMESTAMP)) AS m FROM shop.orders",
    ),
    (
        "SELECT seen - seen AS x FROM shop.orders",
        "keep both values",
        "SELECT seen FROM shop.orders",
    ),
    (
        "SELECT id FROM shop.orders WHERE id = customer / 2",
        "cast one side to DOUBLE",
        "SELECT id FROM shop.orders WHERE id = CAST(customer AS DOUBLE) / 2",
    ),
    (
        "SELECT id FROM shop.lines WHERE (id, no) NOT IN ((1, 2))",
        "else compare the values one by one",
        "SELECT id FROM shop.lines WHERE NOT (id = 1 AND no = 2)",
    ),
    # subqueries
    (
        "SELECT id FROM shop.lines l WHERE NOT (id, no) IN (SELECT id, customer FROM shop.orders)",
        "write EXISTS",
        "SELECT id FROM shop.lines l WHERE NOT EXISTS (SELECT 1 FROM shop.orders o"
        " WHERE o.id = l.id AND o.customer = l.no)",
    ),
    (
        "SELECT id FROM shop.orders WHERE id = (SELECT no FROM shop.lines)",
        "select MAX(…)",
        "SELECT id FROM shop.orders WHERE id = (SELECT MAX(no) FROM shop.lines)",
    ),
    (
        "SELECT id FROM shop.orders WHERE id IN (SELECT item FROM shop.lines)",
        "cast one of them",
        "SELECT id FROM shop.orders WHERE CAST(id AS VARCHAR) IN (SELECT item FROM shop.lines)",
    ),
    (
        "SELECT id FROM shop.orders WHERE id IN (SELECT id FROM shop.lines UNION SELECT 1)",
        "join it in FROM",
        "SELECT o.id FROM shop.orders o JOIN (SELECT id FROM shop.lines UNION SELECT 1) u"
        " ON u.id = o.id",
    ),
    (
        "SELECT id FROM shop.orders WHERE id > ANY ([1, 2])",
        "list values with IN",
        "SELECT id FROM shop.orders WHERE id IN (1, 2)",
    ),
]


@pytest.mark.parametrize(("refused", "way_out", "kept"), WAYS)
def test_the_way_out_of_a_refusal_is_accepted(refused: str, way_out: str, kept: str) -> None:
    with pytest.raises(ViewRefused) as error:
        parse_view("v", refused, CATALOG)
    assert way_out in error.value.reason
    assert parse_view("v", kept, CATALOG).schema


WRITTEN = [
    ("SELECT string_agg(item, ',') AS s FROM shop.lines", "string_agg(item, ','):"),
    ("SELECT Max_By(item,  no) AS s FROM shop.lines", "Max_By(item, no):"),
    ("SELECT Sum( item ) FROM shop.lines", "Sum( item ):"),
    ("SELECT id FROM shop.lines WHERE item SIMILAR TO 'a'", "item SIMILAR TO 'a' is not"),
    ("SELECT foo(id, 'x') AS s FROM shop.lines", "foo(id, 'x') is not supported"),
    ("SELECT id FROM shop.lines WHERE (id,no) = (no,id)", "(id,no) is a row"),
    ("SELECT id FROM shop.lines WHERE id::BIGINT", "id::BIGINT is a BIGINT, not a condition"),
]


@pytest.mark.parametrize(("sql", "words"), WRITTEN)
def test_a_message_names_what_was_written(sql: str, words: str) -> None:
    with pytest.raises(ViewRefused) as error:
        parse_view("v", sql, CATALOG)
    assert error.value.reason.startswith(words), error.value.reason
