"""View texts over a small catalogue that together use every supported construct."""

from protocols.views.catalog import catalog_from_json

CATALOG = catalog_from_json(
    {
        "shop": {
            "relations": {
                "orders": {
                    "columns": {
                        "id": "BIGINT",
                        "customer": "BIGINT",
                        "day": "DATE",
                        "price": "DECIMAL(8,2)",
                        "paid": "BOOLEAN",
                        "seen": "TIMESTAMP",
                    },
                    "key": ["id"],
                },
                "lines": {
                    "columns": {
                        "id": "BIGINT",
                        "no": "BIGINT",
                        "item": "VARCHAR",
                        "weight": "DOUBLE",
                    },
                    "key": ["id", "no"],
                },
            }
        },
        "crm": {
            "relations": {
                "customers": {
                    "columns": {"customer": "BIGINT", "name": "VARCHAR", "boss": "BIGINT"},
                    "key": ["customer"],
                }
            }
        },
    }
)

GOOD = (
    # inner joins
    "SELECT o.id, name FROM shop.orders o JOIN crm.customers c ON o.customer = c.customer",
    "SELECT * FROM shop.lines WHERE no > 1 AND item <> 'x' OR weight IS NULL",
    "SELECT customer, id, name FROM shop.orders JOIN crm.customers USING (customer)",
    "SELECT a.name, b.name AS boss FROM crm.customers a, crm.customers b WHERE a.boss = b.customer",
    "SELECT o.*, l.item FROM shop.orders o, shop.lines l WHERE o.id = l.id AND o.id < l.no + 7",
    "SELECT id FROM shop.orders WHERE id BETWEEN 1 AND 3 AND NOT customer IN (2, 9) AND NOT paid",
    "SELECT id FROM shop.orders WHERE day = DATE '2024-02-29' AND paid IS NOT TRUE",
    "SELECT id FROM shop.orders WHERE customer IS DISTINCT FROM 3 AND price >= 1.5",
    # names
    "SELECT id, id + 1, -price, upper(item), true FROM shop.orders JOIN shop.lines USING (id)",
    "SELECT customer, count(*), sum(price), sum(id) FROM shop.orders GROUP BY customer",
    "SELECT * FROM shop.lines JOIN shop.orders USING (id)",
    "SELECT j.name, j.price FROM (shop.orders o JOIN crm.customers c ON o.customer = c.customer) j",
    "SELECT price FROM (SELECT id, price, id FROM shop.orders)",
    "WITH t(a, b) AS (SELECT id, price FROM shop.orders) SELECT a, b, u.c FROM t, crm.customers"
    " AS u(c) WHERE a = c",
    # values
    "SELECT id * 2 + 1 AS odd, -price AS less, price * 2 AS twice, id % 3 AS rest FROM shop.orders",
    "SELECT CASE WHEN paid THEN price ELSE 0 END AS due, COALESCE(customer, -1) AS c"
    " FROM shop.orders",
    "SELECT CASE id WHEN 1 THEN 'one' WHEN 2 THEN 'two' END AS word, paid AND id > 3 AS both"
    " FROM shop.orders",
    "SELECT NULLIF(no, 0) AS n, weight / 2 AS half, CAST(no AS DECIMAL(20,2)) AS d FROM shop.lines",
    "SELECT item || '!' AS loud, upper(item) AS up, item LIKE 'a%' AS likes FROM shop.lines",
    "SELECT abs(no) AS a, floor(weight) AS f, ceil(weight) AS c FROM shop.lines",
    "SELECT extract(year FROM day) AS y, date_trunc('month', seen) AS m, day + 1 AS next,"
    " seen + INTERVAL 2 HOUR AS later FROM shop.orders WHERE day >= DATE '2024-01-01'",
    "SELECT substring(item, 1, 2) AS a, length(item) AS b, trim(item) AS c, concat(item, no) AS d,"
    " greatest(no, id) AS e FROM shop.lines",
    "SELECT 1 AS one, 1.50 AS price, 'x' AS x, true AS t, 10000000000 AS big, NULL::DATE AS never"
    " FROM shop.lines",
    # whole numbers in the text, which are INTEGER also in expressions of them
    "SELECT t.x * 1.5 AS a, t.d + t.x AS b FROM (SELECT 1 AS x, price AS d FROM shop.orders) t",
    "SELECT max(1) + 1.5 AS a, sum(2) AS b, (SELECT min(3) FROM shop.lines) + 0.5 AS c"
    " FROM shop.orders",
    "SELECT t.x + 1.5 AS a FROM (SELECT 1 AS x FROM shop.orders UNION ALL SELECT no AS x FROM"
    " shop.lines) t",
    "SELECT t.x + 1.5 AS a FROM (SELECT 1 AS x FROM shop.orders INTERSECT SELECT 2 AS x FROM"
    " shop.lines) t",
    "SELECT x + 1.5 AS a FROM (SELECT id, 1 AS x FROM shop.orders) a FULL JOIN (SELECT id, no AS x"
    " FROM shop.lines) b USING (id, x)",
    "SELECT DISTINCT CAST(id AS INTEGER) + 1.5 AS a FROM shop.orders",
    # outer joins
    "SELECT o.id, name FROM shop.orders o LEFT JOIN crm.customers c ON o.customer = c.customer"
    " AND c.boss > 3",
    "SELECT o.id, name FROM shop.orders o RIGHT JOIN crm.customers c ON o.customer = c.customer"
    " WHERE o.paid OR o.id IS NULL",
    "SELECT customer, id, name FROM shop.orders FULL OUTER JOIN crm.customers USING (customer)",
    "SELECT c.name, o.id, l.item FROM crm.customers c FULL JOIN (shop.orders o LEFT JOIN"
    " shop.lines l ON o.id = l.id) ON o.customer = c.customer",
    # groups
    "SELECT customer, count(*) AS n, sum(price) AS total, avg(id) AS mean FROM shop.orders"
    " GROUP BY customer",
    "SELECT customer AS c, max(day) AS last FROM shop.orders GROUP BY 1 HAVING count(paid) > 2",
    "SELECT count(DISTINCT item) AS items, min(weight) AS light FROM shop.lines",
    "SELECT id + 1 AS k, sum(no) FILTER (WHERE item = 'x') AS s FROM shop.lines GROUP BY id + 1",
    "SELECT DISTINCT name, boss FROM crm.customers",
    "SELECT c.name, sum(o.price) AS total FROM crm.customers c LEFT JOIN shop.orders o"
    " ON o.customer = c.customer GROUP BY c.name HAVING sum(o.price) > 10",
    "SELECT customer, paid, count(*) AS n, GROUPING(paid) AS g FROM shop.orders"
    " GROUP BY customer, ROLLUP (paid)",
    "SELECT id, no, max(weight) AS n FROM shop.lines GROUP BY CUBE (id, no)",
    "SELECT bool_and(paid) AS a, bool_or(price > 3) AS b FROM shop.orders",
    "SELECT count(DISTINCT item) AS n, sum(no) AS s, count(*) AS c FROM shop.lines GROUP BY id",
    # links
    "SELECT o.id, name FROM shop.orders o JOIN crm.customers c ON id IS NOT DISTINCT FROM boss",
    "SELECT id, v.b FROM shop.orders JOIN (VALUES (1, 'x'), (2, NULL)) AS v(a, b) ON id = v.a",
    "SELECT id, no FROM shop.lines WHERE (id, no) IN ((1, 2), (3, 4)) AND 1 = 1",
    "SELECT l.item FROM shop.lines l NATURAL JOIN shop.orders SEMI JOIN crm.customers USING"
    " (customer)",
    "SELECT l.no, (SELECT price FROM shop.orders o WHERE o.id = l.id) AS p FROM shop.lines l"
    " WHERE EXISTS (SELECT 1 FROM crm.customers)",
    # subqueries in conditions
    "SELECT id FROM shop.orders o WHERE EXISTS (SELECT 1 FROM shop.lines l WHERE l.id = o.id"
    " AND l.no > o.customer)",
    "SELECT id FROM shop.orders o WHERE NOT EXISTS (SELECT * FROM shop.lines l WHERE l.id = o.id)",
    "SELECT id FROM shop.orders WHERE customer IN (SELECT customer FROM crm.customers)",
    "SELECT id FROM shop.orders WHERE customer NOT IN (SELECT boss FROM crm.customers) OR paid",
    "SELECT id, (SELECT count(*) FROM shop.lines l WHERE l.id = o.id) AS n FROM shop.orders o",
    "SELECT id FROM shop.orders o WHERE price > (SELECT max(l.no) FROM shop.lines l"
    " WHERE l.id = o.id)",
    "SELECT id FROM shop.orders o WHERE id > ALL (SELECT no FROM shop.lines l WHERE l.id = o.id)",
    "SELECT id FROM shop.orders o WHERE EXISTS (SELECT 1 FROM shop.lines l WHERE l.id = o.id AND"
    " l.no IN (SELECT boss FROM crm.customers c WHERE c.customer = l.id))",
    # set operations
    "SELECT id FROM shop.orders UNION SELECT id FROM shop.lines",
    "SELECT id, customer FROM shop.orders UNION ALL SELECT id, no FROM shop.lines WHERE no = 1",
    "SELECT id FROM shop.orders INTERSECT SELECT id FROM shop.lines",
    "SELECT id FROM shop.orders EXCEPT ALL SELECT customer FROM crm.customers",
    # queries in FROM and WITH
    "SELECT t.id, c.name FROM (SELECT id, customer FROM shop.orders WHERE paid) t JOIN"
    " crm.customers c ON c.customer = t.customer",
    "WITH big AS (SELECT id, customer FROM shop.orders WHERE price > 100), names AS (SELECT"
    " customer, name FROM crm.customers) SELECT big.id, names.name FROM big JOIN names"
    " ON big.customer = names.customer",
    "WITH credits AS (SELECT customer, sum(price) AS s FROM shop.orders WHERE paid GROUP BY"
    " customer), debits AS (SELECT customer, sum(price) AS s FROM shop.orders WHERE NOT paid"
    " GROUP BY customer) SELECT COALESCE(credits.customer, debits.customer) AS customer,"
    " COALESCE(credits.s, 0) - COALESCE(debits.s, 0) AS balance FROM credits FULL JOIN debits"
    " ON credits.customer = debits.customer",
    "SELECT t.a, count(*) AS n FROM (SELECT id FROM shop.orders UNION ALL SELECT id FROM"
    " shop.lines) t(a) GROUP BY t.a",
)
