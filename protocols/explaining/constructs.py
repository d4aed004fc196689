"""The constructs of SQL with an example each: supported or refused, and at what cost.

Each example is read and followed like any view, so the table always agrees with the code.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from protocols.errors import ViewRefused
from protocols.explaining.costs import Costs, RelationCosts, costs_of
from protocols.views.catalog import catalog_from_json
from protocols.views.dialects import Dialect
from protocols.views.sql import parse_view

#: The relations of the examples.
CATALOG = catalog_from_json(
    {
        "crm": {
            "relations": {
                "customers": {
                    "columns": {"id": "BIGINT", "name": "VARCHAR", "boss": "BIGINT"},
                    "key": ["id"],
                }
            }
        },
        "sales": {
            "relations": {
                "orders": {
                    "columns": {
                        "id": "BIGINT",
                        "customer": "BIGINT",
                        "amount": "DECIMAL(12,2)",
                        "weight": "DOUBLE",
                        "placed": "DATE",
                    },
                    "key": ["id"],
                }
            }
        },
    }
)

_QUOTIENTS = "quotients of exact numbers, `ROUND` of `DOUBLE`: with a `dialect`"
#: Constructs of views that speak a dialect.
DIALECTS: dict[str, Dialect] = {_QUOTIENTS: "duckdb"}
#: Construct → a view with it. Joins are customers c and orders o, at two sources.
EXAMPLES: dict[str, str] = {
    "`JOIN … ON`, `JOIN … USING`, comma joins": """
        SELECT c.name, o.id FROM crm.customers c, sales.orders o WHERE o.customer = c.id""",
    "unnamed items (named as in PostgreSQL, or `column2`), `*` with `USING`, aliased joins,"
    " subqueries without an alias": """
        SELECT COUNT(*), MAX(j.amount), COUNT(*) + 1
        FROM (crm.customers c JOIN (SELECT * FROM sales.orders) ON customer = c.id) AS j
        GROUP BY j.name""",
    "a relation joined with itself": """
        SELECT c.id, b.name FROM crm.customers c JOIN crm.customers b ON c.boss = b.id""",
    "`AND`, `OR`, `NOT`, `IN (…)`, `BETWEEN`, `LIKE`, `IS NULL`": """
        SELECT c.id FROM crm.customers c JOIN sales.orders o ON o.customer = c.id
        WHERE c.name LIKE 'A%' AND (o.amount BETWEEN 1 AND 9 OR c.boss IS NULL)""",
    "`CASE`, `COALESCE`, `NULLIF`, `CAST`": """
        SELECT o.id, CASE WHEN o.amount > 9 THEN c.name ELSE COALESCE(c.name, '') END AS x,
               NULLIF(CAST(o.weight AS BIGINT), 0) AS whole
        FROM crm.customers c JOIN sales.orders o ON o.customer = c.id""",
    "numbers: `+`, `-`, `*`, `/`, `%`, `ABS`, `FLOOR`, `CEIL`, `ROUND`, `GREATEST`, `LEAST`": """
        SELECT id, ABS(-amount) + FLOOR(amount) - CEIL(amount) * 2 AS a, ROUND(amount, 1) AS r,
               weight / 2 AS half, id % 7 AS rest,
               GREATEST(id, customer) AS most, LEAST(id, customer) AS least
        FROM sales.orders""",
    _QUOTIENTS: """
        SELECT customer, SUM(amount) / COUNT(*) AS mean, ROUND(AVG(weight), 2) AS w
        FROM sales.orders GROUP BY customer""",
    "strings: `||`, `CONCAT`, `UPPER`, `LOWER`, `LENGTH`, `SUBSTRING`, `LEFT`, `RIGHT`, `TRIM`,"
    " `REPLACE`, `STARTS_WITH`, `STRPOS`": """
        SELECT id, UPPER(name) || LOWER(name) AS a, CONCAT(name, '!') AS b, LENGTH(name) AS n,
               SUBSTRING(name, 2, 3) AS c, LEFT(name, 2) AS d, RIGHT(name, 2) AS e,
               TRIM(name) AS f, REPLACE(name, 'a', 'o') AS g, STRPOS(name, 'a') AS at
        FROM crm.customers WHERE STARTS_WITH(name, 'A')""",
    "dates: difference in days, `+ INTERVAL`, `EXTRACT`, `DATE_TRUNC`": """
        SELECT id, placed - DATE '2020-01-01' AS days, placed + INTERVAL '1' MONTH AS later,
               EXTRACT(year FROM placed) AS y, DATE_TRUNC('month', CAST(placed AS TIMESTAMP)) AS m
        FROM sales.orders""",
    "`LEFT JOIN`, `RIGHT JOIN`": """
        SELECT c.id, o.amount FROM crm.customers c LEFT JOIN sales.orders o ON o.customer = c.id""",
    "`LEFT JOIN` with conditions other than equalities": """
        SELECT c.id, o.amount FROM crm.customers c
        LEFT JOIN sales.orders o ON o.customer = c.id AND o.id > c.boss""",
    "`FULL JOIN`": """
        SELECT c.id, o.amount FROM crm.customers c FULL JOIN sales.orders o ON o.customer = c.id""",
    "`SELECT DISTINCT`": """
        SELECT DISTINCT customer FROM sales.orders""",
    "`GROUP BY` with `COUNT`, `SUM`, `AVG`; `HAVING`": """
        SELECT customer, COUNT(*) AS n, SUM(amount) AS s, AVG(amount) AS a
        FROM sales.orders GROUP BY customer HAVING COUNT(*) > 2""",
    "`SUM` and `AVG` of `DOUBLE`: exact, rounded once, the same in any order": """
        SELECT customer, SUM(weight) AS s, AVG(weight) AS a FROM sales.orders GROUP BY customer""",
    "`MIN`, `MAX`": """
        SELECT customer, MIN(amount) AS least FROM sales.orders GROUP BY customer""",
    "`COUNT(DISTINCT …)`": """
        SELECT customer, COUNT(DISTINCT placed) AS days FROM sales.orders GROUP BY customer""",
    "`BOOL_AND`, `BOOL_OR`; `FILTER (WHERE …)`": """
        SELECT customer, BOOL_AND(amount > 0) AS due, COUNT(*) FILTER (WHERE weight > 9) AS heavy
        FROM sales.orders GROUP BY customer""",
    "`ROLLUP`, `CUBE`, `GROUPING SETS`, `GROUPING (…)`": """
        SELECT customer, COUNT(*) AS n, GROUPING(customer) AS g
        FROM sales.orders GROUP BY ROLLUP (customer)""",
    "`ROW_NUMBER`, `RANK`, `DENSE_RANK`, `LAG`, `LEAD`, `FIRST_VALUE`, `LAST_VALUE` over a"
    " partition; `QUALIFY`": """
        SELECT customer, id, amount - LAG(amount) OVER (PARTITION BY customer ORDER BY id) AS more
        FROM sales.orders QUALIFY ROW_NUMBER() OVER (PARTITION BY customer ORDER BY id DESC) < 4""",
    "aggregates and running aggregates over a partition": """
        SELECT id, SUM(amount) OVER (PARTITION BY customer ORDER BY placed) AS so_far,
               COUNT(*) OVER (PARTITION BY customer) AS n
        FROM sales.orders""",
    "`DISTINCT ON` with `ORDER BY`": """
        SELECT DISTINCT ON (customer) customer, id, amount FROM sales.orders
        ORDER BY customer, id DESC""",
    "aggregates without `GROUP BY`": """
        SELECT COUNT(*) AS n, SUM(amount) AS s FROM sales.orders""",
    "groups over an outer join": """
        SELECT c.id, SUM(o.amount) AS s FROM crm.customers c
        LEFT JOIN sales.orders o ON o.customer = c.id GROUP BY c.id""",
    "aggregates joined with one another; CTEs, subqueries in `FROM`": """
        WITH s AS (SELECT customer, SUM(amount) AS s FROM sales.orders GROUP BY customer)
        SELECT c.id, s.s FROM crm.customers c FULL JOIN s ON s.customer = c.id""",
    "`NATURAL JOIN`, `SEMI JOIN`; an equality in every arm of `OR`": """
        SELECT c.name, o.id FROM crm.customers c SEMI JOIN crm.customers b ON b.boss = c.id
        JOIN sales.orders o ON (o.customer = c.id AND o.amount > 9)
                            OR (o.customer = c.id AND c.boss IS NULL)""",
    "a join by `IS NOT DISTINCT FROM`": """
        SELECT c.id, o.amount FROM crm.customers c
        LEFT JOIN sales.orders o ON o.customer IS NOT DISTINCT FROM c.boss""",
    "`VALUES`, `SELECT` of constants": """
        SELECT c.id, v.class FROM crm.customers c
        JOIN (VALUES ('Ann', 'A'), ('Bob', 'B')) AS v(name, class) ON v.name = c.name""",
    "`(a, b) IN (…)`, `(a, b) IN (SELECT …)`": """
        SELECT c.id FROM crm.customers c WHERE (c.name, c.boss) IN (('Ada', 2), ('Bo', 1))
        AND (c.id, c.boss) IN (SELECT customer, id FROM sales.orders)""",
    "`EXISTS`, `IN (SELECT …)`": """
        SELECT c.id FROM crm.customers c
        WHERE EXISTS (SELECT 1 FROM sales.orders o WHERE o.customer = c.id)""",
    "`NOT EXISTS`": """
        SELECT c.id FROM crm.customers c
        WHERE NOT EXISTS (SELECT 1 FROM sales.orders o WHERE o.customer = c.id)""",
    "uncorrelated `EXISTS`": """
        SELECT c.id FROM crm.customers c
        WHERE EXISTS (SELECT 1 FROM sales.orders o WHERE o.amount > 9)""",
    "a scalar subquery that looks up a value by key": """
        SELECT o.id, (SELECT c.name FROM crm.customers c WHERE c.id = o.customer) AS name
        FROM sales.orders o""",
    "`NOT IN (SELECT …)`": """
        SELECT c.id FROM crm.customers c WHERE c.id NOT IN (SELECT customer FROM sales.orders)""",
    "`> ALL`, `> ANY` of a correlated subquery": """
        SELECT c.id FROM crm.customers c
        WHERE c.boss > ALL (SELECT o.id FROM sales.orders o WHERE o.customer = c.id)""",
    "comparison with an aggregate of a correlated subquery": """
        SELECT c.id FROM crm.customers c
        WHERE 2 < (SELECT COUNT(*) FROM sales.orders o WHERE o.customer = c.id)""",
    "comparison with an aggregate of all rows": """
        SELECT o.id FROM sales.orders o WHERE o.amount = (SELECT MAX(amount) FROM sales.orders)""",
    "`UNION ALL`": """
        SELECT id FROM crm.customers UNION ALL SELECT customer FROM sales.orders""",
    "`UNION`": """
        SELECT id FROM crm.customers UNION SELECT customer FROM sales.orders""",
    "`INTERSECT [ALL]`, `EXCEPT [ALL]`": """
        SELECT id FROM crm.customers EXCEPT ALL SELECT customer FROM sales.orders""",
    "joins without an equality of columns": """
        SELECT c.id FROM crm.customers c JOIN sales.orders o ON o.id < c.id""",
    "subqueries correlated by `<` alone": """
        SELECT c.id FROM crm.customers c
        WHERE EXISTS (SELECT 1 FROM sales.orders o WHERE o.customer < c.id)""",
    "window functions over all rows": """
        SELECT id, ROW_NUMBER() OVER (ORDER BY id) AS n FROM sales.orders""",
    "`ORDER BY`": """
        SELECT id FROM sales.orders ORDER BY id""",
    "`LIMIT`": """
        SELECT id FROM sales.orders LIMIT 3""",
    "`WITH RECURSIVE`": """
        WITH RECURSIVE r AS (SELECT id FROM crm.customers UNION ALL SELECT id FROM r)
        SELECT id FROM r""",
    "values that differ each time (`RANDOM()`, `NOW()`)": """
        SELECT id, RANDOM() AS x FROM sales.orders""",
}


@dataclass(frozen=True)
class Construct:
    """One line of the table."""

    name: str
    #: The example.
    sql: str
    #: The reason why it is refused; None if it is supported.
    refused: str | None
    costs: Costs | None

    @property
    def verdict(self) -> str:
        return "supported" if self.refused is None else f"refused: {self.refused}"

    @property
    def questions(self) -> str:
        """Per relation: the first time → when the touched rows are remembered."""
        return "; ".join(_per_update(each) for each in self.costs.relations) if self.costs else "-"


def constructs() -> Iterator[Construct]:
    """Reads and follows all examples."""
    for name, sql in EXAMPLES.items():
        try:
            costs = costs_of(parse_view("example", sql, CATALOG, DIALECTS.get(name)))
        except ViewRefused as error:
            yield Construct(name, sql, error.reason, None)
        else:
            yield Construct(name, sql, None, costs)


def _per_update(costs: RelationCosts) -> str:
    coming, going = costs.kinds["insertion"], costs.kinds["deletion"]
    words = _arrow(coming.numbers)
    if going.numbers != coming.numbers:
        words += f" ({_arrow(going.numbers)} for a deletion)"
    if coming.whole or going.whole:
        words += ", reading whole relations"
    elif coming.whole_at_first:
        words += ", reading whole relations unless remembered"
    return f"{costs.relation.name}: {words}"


def _arrow(numbers: tuple[int, int]) -> str:
    first, remembered = numbers
    return f"{first}" if first == remembered else f"{first} → {remembered}"
