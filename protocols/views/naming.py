"""The names of the items of SELECT, those without AS too.

An item without a name is called as in PostgreSQL, which looks for one inside it:

    o.price, (price), CAST(price AS BIGINT)      price
    SUM(price), SUM(price) FILTER (WHERE paid)   sum
    CASE … ELSE price END                        price, or else case
    CAST('1' AS BIGINT)                          int8
    (SELECT MAX(price) FROM …)                   max

PostgreSQL calls all others `?column?`; here they are column1, column2 and so on, by their place. If
a name that was found or made is taken, a number follows it: sum, sum_2. A name in the text always
stays as it is.

The checker names items of subqueries by the same rule, because DuckDB has other names for them.
"""

import re
from collections.abc import Sequence

from sqlglot import exp

#: How much a name says (PostgreSQL's "strength"): a type or CASE gives way to a column's name.
_NOTHING, _LITTLE, _ENOUGH = 0, 1, 2
#: Calls that sqlglot notes no place for.
_CALLS: dict[type[exp.Expr], str] = {
    exp.Coalesce: "coalesce",
    exp.Nullif: "nullif",
    exp.Greatest: "greatest",
    exp.Least: "least",
    exp.Exists: "exists",
    exp.Extract: "extract",
    exp.Substring: "substring",
    exp.Trim: "btrim",
    exp.StrPosition: "position",
    exp.Ceil: "ceil",
    exp.Floor: "floor",
    exp.Round: "round",
    exp.GroupConcat: "string_agg",
}
_TRIMS = {"LEADING": "ltrim", "TRAILING": "rtrim"}
_TYPES = {
    exp.DType.BIGINT: "int8",
    exp.DType.INT: "int4",
    exp.DType.DOUBLE: "float8",
    exp.DType.DECIMAL: "numeric",
    exp.DType.TEXT: "varchar",
    exp.DType.BOOLEAN: "bool",
    exp.DType.TIMESTAMPNTZ: "timestamp",
}


def item_names(items: Sequence[exp.Expr], sql: str) -> list[str]:
    """The name of each item in a SELECT of this text; that of a * says nothing."""
    written = [item.alias or _column_name(item) for item in items]
    taken = {name.lower() for name in written if name}
    names = []
    for place, (item, name) in enumerate(zip(items, written, strict=True), start=1):
        if not name:
            _, found = _found(item, sql)
            name = _free(found or f"column{place}", taken)
            taken.add(name)
        names.append(name)
    return names


def _column_name(item: exp.Expr) -> str:
    inner = item.unnest() if isinstance(item, exp.Paren) else item
    return inner.name if isinstance(inner, exp.Column | exp.Star) else ""


def _free(wanted: str, taken: set[str]) -> str:
    name, number = wanted, 2
    while name in taken:
        name, number = f"{wanted}_{number}", number + 1
    return name


def _found(node: exp.Expr, sql: str) -> tuple[int, str]:
    """The name that PostgreSQL finds in an expression, and how much it says."""
    match node:
        case exp.Column():
            return _ENOUGH, node.name
        case exp.Paren() | exp.Filter() | exp.IgnoreNulls():
            return _found(node.this, sql)
        case exp.Cast():
            type_ = _TYPES.get(node.to.this) or str(node.to.this.value).lower()
            return _or_else(_found(node.this, sql), type_)
        case exp.Case():
            default = node.args.get("default")
            return _or_else((_NOTHING, "") if default is None else _found(default, sql), "case")
        case exp.Subquery(this=exp.Select(expressions=[item])):
            name = item.alias or _found(item, sql)[1]
        case _:
            name = _called(node, sql)
    return (_ENOUGH, name) if name else (_NOTHING, "")


def _or_else(inner: tuple[int, str], name: str) -> tuple[int, str]:
    return inner if inner[0] == _ENOUGH else (_LITTLE, name)


def _called(node: exp.Expr, sql: str) -> str:
    """The name of a function as it is written; sqlglot may have another one for it."""
    if "start" in node.meta and not isinstance(node, exp.Literal):
        word = re.compile(r'"?(\w+)').match(sql, node.meta["start"])
        return word[1].lower() if word else ""
    if isinstance(node, exp.Trim):
        return _TRIMS.get(str(node.args.get("position") or "").upper(), "btrim")
    if isinstance(node, exp.AggFunc):
        return _CALLS.get(type(node)) or node.sql_name().lower()
    return _CALLS.get(type(node), "")
