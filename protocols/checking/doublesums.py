"""SUM and AVG of DOUBLE in the view's SQL, so that DuckDB computes them independent of any order.

DuckDB adds DOUBLEs in the order in which it reads them, so the last digits of its sums depend on
that order. A view promises the exact sum, rounded once; an average is this sum divided by the
number of values. So where a DOUBLE is added up, the values go to Python as a list:

    SUM(x) FILTER (WHERE t)      exact_sum(LIST(x) FILTER (WHERE t))
"""

from sqlglot import exp

from protocols.checking.argumenttypes import Arguments

_FUNCTIONS: dict[type[exp.Expr], str] = {exp.Sum: "exact_sum", exp.Avg: "exact_average"}


def with_exact_sums(query: exp.Expr, taken: Arguments) -> bool:
    """Replaces them in a query; whether there are any."""
    values = {id(call): value_of(call) for call in query.find_all(*_FUNCTIONS)}
    if not values or taken.are("only_exact", query, list(values.values())):
        return False
    calls = list(query.find_all(*_FUNCTIONS))
    doubles = [c for c in calls if not taken.are("only_exact", query, [values[id(c)]])]
    for call in doubles:
        _replace(call)
    return True


def value_of(call: exp.Expr) -> exp.Expr:
    """The value that an aggregate takes."""
    inner: exp.Expr = call.this
    return inner.expressions[0] if isinstance(inner, exp.Distinct) else inner


def _replace(call: exp.Expr) -> None:
    name = _FUNCTIONS[type(call)]
    whole = with_clauses(call)
    listed = exp.Anonymous(this="list", expressions=[call.this])
    if whole is call:
        whole.replace(exp.Anonymous(this=name, expressions=[listed]))
    else:
        call.replace(listed)
        whole.replace(exp.Anonymous(this=name, expressions=[whole.copy()]))


def with_clauses(call: exp.Expr) -> exp.Expr:
    """An aggregate with its FILTER and its OVER."""
    while isinstance(call.parent, exp.Filter | exp.Window) and call.parent.this is call:
        call = call.parent
    return call
