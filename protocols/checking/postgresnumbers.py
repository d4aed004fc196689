"""The numbers of PostgreSQL in the view's SQL, for a view in its dialect, as DuckDB has them.

a / b          a // b for whole numbers, numeric_quotient(…) for others that are exact
AVG(x)         numeric_quotient(SUM(x), COUNT(x)) of exact numbers
SUM(x)         a BIGINT if x is an INTEGER
ROUND(x)       round_even(x, 0) of a DOUBLE
EXTRACT(…)     a DECIMAL
1e3            a DECIMAL
    LENGTH, STRPOS, a difference of dates: an INTEGER
"""

from decimal import Decimal

from sqlglot import exp

from protocols.checking.argumenttypes import Arguments
from protocols.checking.doublesums import value_of, with_clauses

_COUNTS = (exp.Length, exp.StrPosition)
_CHANGED = (exp.Div, exp.Avg, exp.Sum, exp.Round, exp.Extract, exp.Literal, *_COUNTS, exp.Sub)


def with_postgres_numbers(query: exp.Expr, taken: Arguments) -> bool:
    """Replaces them in a query; whether it calls a function of Python then."""
    called = False
    # Parts of others come first: a part has its type in PostgreSQL when the whole is looked at.
    for node in reversed(list(query.find_all(*_CHANGED, bfs=False))):
        match node:
            case exp.Literal() if not node.is_string and "e" in node.name.lower():
                digits = format(Decimal(node.name), "f")
                node.replace(_cast(exp.Literal.number(digits), _decimal_for(digits)))
            case exp.Extract():
                node.replace(_cast(node.copy(), "DECIMAL(19,0)"))
            case exp.Length() | exp.StrPosition():
                node.replace(_cast(node.copy(), "INTEGER"))
            case exp.Sub() if taken.are("only_date", query, [node.left, node.right]):
                node.replace(_cast(exp.Paren(this=node.copy()), "INTEGER"))
            case exp.Round() if not taken.are("only_exact", query, [node.this]):
                arguments = [node.this, exp.Literal.number(0)]
                node.replace(exp.Anonymous(this="round_even", expressions=arguments))
            case exp.Sum() if taken.are("only_integer", query, [value_of(node)]):
                whole = with_clauses(node)
                whole.replace(_cast(whole.copy(), "BIGINT"))
            case exp.Avg() if taken.are("only_exact", query, [value_of(node)]):
                _replace_average(node)
                called = True
            case exp.Div():
                called = _replace_quotient(node, query, taken) or called
    return called


def _replace_quotient(node: exp.Div, query: exp.Expr, taken: Arguments) -> bool:
    sides = [node.left, node.right]
    if taken.are("only_whole", query, sides):
        left, right = (exp.Paren(this=side) for side in sides)
        node.replace(exp.Paren(this=exp.IntDiv(this=left, expression=right)))
    elif taken.are("only_exact", query, sides):
        node.replace(_quotient(node.left, node.right))
        return True
    return False


def _replace_average(node: exp.Avg) -> None:
    whole = with_clauses(node)
    node.meta["average"] = True
    total, number = (_instead(whole.copy(), function) for function in (exp.Sum, exp.Count))
    whole.replace(_quotient(total, number))


def _instead(whole: exp.Expr, function: type[exp.Expr]) -> exp.Expr:
    """The same with another function in the place of the marked one."""
    call = next(part for part in whole.walk() if part.meta.get("average"))
    aggregate = function(this=call.this)
    if call is whole:
        return aggregate
    call.replace(aggregate)
    return whole


def _quotient(dividend: exp.Expr, divisor: exp.Expr) -> exp.Expr:
    texts = [_cast(side.copy(), "VARCHAR") for side in (dividend, divisor)]
    found = exp.Anonymous(this="numeric_quotient", expressions=texts)
    return _cast(found, "DECIMAL(38,20)")


def _cast(value: exp.Expr, type_: str) -> exp.Expr:
    return exp.cast(value, type_, dialect="duckdb")


def _decimal_for(digits: str) -> str:
    whole, _, fraction = digits.lstrip("-").partition(".")
    return f"DECIMAL({max(len(whole + fraction), 1)},{len(fraction)})"
