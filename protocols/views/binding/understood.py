"""The supported parts of each construct, as data; every other part is refused by its name.

A part of the text that nothing reads would be dropped silently, so the whole text is checked before
it is read. `views/scalars.py` checks the parts of values.
"""

from sqlglot import exp

from protocols.views.binding.statement import Text

_AGGREGATES = (exp.Count, exp.Sum, exp.Avg, exp.Min, exp.Max, exp.LogicalAnd, exp.LogicalOr)
_SET_OPERATIONS = (exp.Union, exp.Intersect, exp.Except)
#: Construct → the parts of it that are read.
_PARTS: dict[type[exp.Expr], tuple[str, ...]] = {
    exp.Select: (
        "with_",
        "distinct",
        "expressions",
        "from_",
        "joins",
        "where",
        "group",
        "having",
        "qualify",
    ),
    **dict.fromkeys(_SET_OPERATIONS, ("with_", "this", "expression", "distinct")),
    exp.Subquery: ("with_", "this", "alias", "joins"),
    exp.With: ("expressions",),
    exp.CTE: ("this", "alias", "materialized"),
    exp.From: ("this",),
    exp.Values: ("expressions", "alias"),
    exp.Table: ("this", "db", "catalog", "alias", "joins"),
    exp.TableAlias: ("this", "columns"),
    exp.Join: ("this", "side", "kind", "method", "on", "using"),
    exp.Group: ("expressions",),
    exp.Distinct: ("expressions", "on"),
    exp.Qualify: ("this",),
    exp.Window: ("this", "partition_by", "order", "spec", "over", "alias"),
    exp.WindowSpec: ("kind", "start", "start_side", "end", "end_side"),
    exp.Order: ("expressions",),
    exp.Ordered: ("this", "desc", "nulls_first"),
    **dict.fromkeys(_AGGREGATES, ("this", "big_int")),
    exp.Filter: ("this", "expression"),
    exp.Star: (),
    exp.Column: ("this", "table", "db", "catalog"),
    exp.Exists: ("this",),
    exp.In: ("this", "expressions", "query"),
}
_ORDER = "a view is a bag of rows without an order; add it to the query that reads the view"
_WHY = {
    "order": f"ORDER BY is not supported: {_ORDER}",
    "limit": f"LIMIT is not supported: {_ORDER}",
    "offset": f"OFFSET is not supported: {_ORDER}",
    "windows": "WINDOW is not supported; write each window out in OVER (…)",
    "exclude": "EXCLUDE is not supported in a frame; leave it out",
    "sample": "TABLESAMPLE is not supported: each sample has other rows; take it when"
    " you read the view",
    "pivots": "PIVOT and UNPIVOT are not supported; write CASE in aggregates, or UNION ALL",
    "recursive": "WITH RECURSIVE is not supported: a view has a fixed number of joins; write"
    " one join for each level",
    "by_name": "BY NAME is not supported; list the columns in the same order on both sides",
    "laterals": "LATERAL is not supported; join the subquery with ON",
    "locks": "FOR UPDATE is not supported: a view locks nothing",
    "all": "GROUP BY ALL is not supported; list the columns to group by",
    "field": "IN takes a list in parentheses or a subquery",
    "when": "AT is not supported: a view is about the present",
    **dict.fromkeys(
        ("except_", "replace", "rename", "ilike"),
        "* with EXCLUDE, REPLACE, RENAME or LIKE is not supported; list the columns",
    ),
}
#: Construct → why it cannot be kept wherever it stands.
_NEVER: dict[type[exp.Expr], str] = {
    exp.Lateral: "LATERAL is not supported; join the subquery with ON",
    exp.Placeholder: "a view has no parameters; write the value itself",
    exp.Parameter: "a view has no parameters; write the value itself",
}


def refuse_others(text: Text, query: exp.Query) -> None:
    """Refuses every part of the text that nothing reads."""
    for node in query.dfs():
        if type(node) in _NEVER:
            text.refuse(node, _NEVER[type(node)])
        # Constructs that are not in the table pass here: `scalars.py` checks them.
        kept = _PARTS.get(type(node), tuple(node.args))
        for part, value in node.args.items():
            if value and part not in kept and not _orders_distinct_on(part, node):
                text.refuse(_place(value, node), _reason(part, node))


def _orders_distinct_on(part: str, node: exp.Expr) -> bool:
    """ORDER BY beside DISTINCT ON says which row is taken."""
    distinct = node.args.get("distinct")
    return part == "order" and isinstance(distinct, exp.Distinct) and bool(distinct.args.get("on"))


def _place(value: object, node: exp.Expr) -> exp.Expr:
    first = value[0] if isinstance(value, list) else value
    return first if isinstance(first, exp.Expr) else node


def _reason(part: str, node: exp.Expr) -> str:
    if isinstance(node, _AGGREGATES):
        return f"{node.key.upper()} takes one value"
    return _WHY.get(part) or f"{part.strip('_').upper()} is not supported here"
