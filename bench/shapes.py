"""Other views over the relations of a burst, to be compared with its inner join."""

from bench.burst import Burst
from sources.workloads.linked import Linked

SHAPES = {
    "outer": "the same joins, all of them left joins",
    "full": "the same joins, all of them full joins",
    "groups": "COUNT, SUM and MAX per partner over the same joins",
    "balance": "two sums, each over one relation, in a full join",
}


def shaped(burst: Burst, shape: str) -> str:
    """The SQL of a view of this shape."""
    sql = burst.view.sql
    match shape:
        case "outer":
            return sql.replace("\nJOIN", "\nLEFT JOIN")
        case "full":
            return sql.replace("\nJOIN", "\nFULL JOIN")
        case "groups":
            return _groups(burst.workload, sql)
    return _balance(burst.workload)


def _groups(workload: Linked, sql: str) -> str:
    first, second, *_ = workload.catalog.relations
    link = _link(workload, 0, 1)
    values = f"count(*) AS n, sum({second.name}.amount) AS total, max({first.name}.amount) AS most"
    joins = sql[sql.index("FROM") :].strip()
    return f"SELECT {first.name}.{link} AS partner, {values}\n{joins}\nGROUP BY {first.name}.{link}"


def _balance(workload: Linked) -> str:
    first, second, *_ = workload.catalog.relations
    link = _link(workload, 0, 1)
    return f"""
WITH credits AS (SELECT {link} AS account, sum(amount) AS amount FROM {first} GROUP BY {link}),
     debits AS (SELECT number AS account, sum(amount) AS amount FROM {second} GROUP BY number)
SELECT account, coalesce(credits.amount, 0) - coalesce(debits.amount, 0) AS balance
FROM credits FULL JOIN debits USING (account)
"""


def _link(workload: Linked, of: int, to: int) -> str:
    """The column of one relation that points to another."""
    columns = workload.catalog.relations[of].column_names
    target = workload.catalog.relations[to].name
    return next(
        c for c in columns if c.endswith("_id") and target.startswith(c.removesuffix("_id"))
    )
