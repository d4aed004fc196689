"""Views over a linked workload, to compare with its inner join."""

from protocols.views.catalog import Catalog, Relation

#: Name → description.
LINKED_VIEWS = {
    "outer": "the same joins, all of them left joins",
    "full": "the same joins, all of them full joins",
    "groups": "COUNT, SUM and MAX per partner over the same joins",
    "balance": "two sums, each over one relation, in a full join",
}


def linked_view(name: str, inner: str, catalog: Catalog) -> str:
    """The SQL of one of these views, derived from the inner join."""
    match name:
        case "outer":
            return inner.replace("\nJOIN", "\nLEFT JOIN")
        case "full":
            return inner.replace("\nJOIN", "\nFULL JOIN")
        case "groups":
            return _groups(inner, *catalog.relations[:2])
    return _balance(*catalog.relations[:2])


def _groups(inner: str, first: Relation, second: Relation) -> str:
    link = _link(first, second)
    values = f"count(*) AS n, sum({second.name}.amount) AS total, max({first.name}.amount) AS most"
    joins = inner[inner.index("FROM") :].strip()
    return f"SELECT {first.name}.{link} AS partner, {values}\n{joins}\nGROUP BY {first.name}.{link}"


def _balance(first: Relation, second: Relation) -> str:
    link = _link(first, second)
    return f"""
WITH credits AS (SELECT {link} AS account, sum(amount) AS amount FROM {first} GROUP BY {link}),
     debits AS (SELECT number AS account, sum(amount) AS amount FROM {second} GROUP BY number)
SELECT account, coalesce(credits.amount, 0) - coalesce(debits.amount, 0) AS balance
FROM credits FULL JOIN debits USING (account)
"""


def _link(of: Relation, to: Relation) -> str:
    """The column of one relation that points to another."""
    one = {name: name.removesuffix("_id") for name in of.column_names if name.endswith("_id")}
    return next(name for name, what in one.items() if to.name.startswith(what))
