"""Takes the conditions of the text apart.

What stands in every arm of an OR holds whenever the OR does, so it is a part of the condition by
itself; an equality may then be a link:

    (a.x = b.x AND a.y = 1) OR (b.y = 2 AND a.x = b.x)    a.x = b.x,  a.y = 1 OR b.y = 2

Comparisons of rows, (x, y) IN ((1, 2), (3, 4)), are comparisons of their values.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

from sqlglot import exp

from protocols.views.scalars import COMPARISONS


@dataclass(frozen=True)
class SubqueryQuestion:
    """A question to a subquery: does it have rows, or how does a value compare with its values?"""

    #: None asks whether there are rows (EXISTS).
    value: exp.Expr | None
    #: `value op item`, for some row or for every one. IN is `=` for some.
    op: str
    every: bool
    query: exp.Expr


def conjuncts(node: exp.Expr) -> Iterator[exp.Expr]:
    """The parts of a condition that must all hold, still as text, for some contain subqueries.

    (Conditions that are already read: `algebra.expressions.conjuncts`.)
    """
    inner = node.unnest() if isinstance(node, exp.Paren) else node
    if isinstance(inner, exp.And):
        for part in inner.flatten():
            yield from conjuncts(part)
    elif isinstance(inner, exp.Or):
        yield from _without_common(inner)
    else:
        yield _of_values(inner) or node


def _without_common(node: exp.Or) -> Iterator[exp.Expr]:
    """The conditions that all arms share, and the rest of the OR."""
    first, *others = ([*conjuncts(arm)] for arm in node.flatten())
    common = {_meaning(part): part for part in first}
    for arm in others:
        there = set(map(_meaning, arm)) if common else set[str]()
        common = {meaning: part for meaning, part in common.items() if meaning in there}
    yield from common.values()
    arms = [first, *others]
    rest = [[p for p in arm if _meaning(p) not in common] for arm in arms] if common else arms
    # An arm that is nothing but the common part makes the others superfluous.
    if all(rest):
        yield _joined(exp.Or, [_joined(exp.And, parts) for parts in rest])


def _meaning(node: exp.Expr) -> str:
    """A text that equal conditions share, however they are spelled."""
    node = node.unnest() if isinstance(node, exp.Paren) else node
    if isinstance(node, exp.EQ):
        return " = ".join(sorted(map(_meaning, (node.left, node.right))))
    plain = node.copy()
    for name in plain.find_all(exp.Identifier):
        name.set("this", name.this.lower())
    return plain.sql("duckdb", comments=False)


def _joined(connector: type[exp.Connector], parts: Sequence[exp.Expr]) -> exp.Expr:
    """A condition of these parts; a single part stays the node that it is in the text."""
    if len(parts) == 1:
        return parts[0]
    members = (exp.Paren(this=p) if isinstance(p, exp.Connector) else p for p in parts)
    return reduce(lambda one, other: connector(this=one, expression=other), members)


# -- rows ------------------------------------------------------------------------------------------


def row_of(node: exp.Expr) -> list[exp.Expr] | None:
    """The values of (x, y) or ROW(x, y); None for anything else."""
    if isinstance(node, exp.Tuple):
        return node.expressions
    if isinstance(node, exp.Anonymous) and str(node.this).upper() == "ROW":
        return node.expressions
    return None


def _of_values(node: exp.Expr) -> exp.Expr | None:
    """A comparison with rows of constants as one of their values; None for other conditions.

    A row with a NULL makes it unknown in PostgreSQL, and false in DuckDB. Where only truth counts,
    they agree, unless a constant is NULL.
    """
    if isinstance(node, exp.In) and node.expressions:
        rows = [row_of(each) for each in node.expressions]
    elif isinstance(node, exp.EQ):
        rows = [row_of(node.expression)]
    else:
        return None
    values = row_of(node.this)
    if values is None:
        return None
    arms = []
    for row in rows:
        if row is None or len(row) != len(values) or not all(map(_is_constant, row)):
            return None
        pairs = zip(values, row, strict=True)
        equal = [exp.EQ(this=ours.copy(), expression=theirs) for ours, theirs in pairs]
        arms.append(_joined(exp.And, equal))
    return _joined(exp.Or, arms)


def _is_constant(node: exp.Expr) -> bool:
    """Whether it is a value without columns, and not NULL."""
    return node.find(exp.Column, exp.Null, exp.Query) is None


def asked(node: exp.Expr) -> SubqueryQuestion | None:
    """The question that a condition asks a subquery; None if it does anything else."""
    match node:
        case exp.Exists():
            return SubqueryQuestion(None, "", False, node.this)
        case exp.In() if node.args.get("query") is not None:
            return SubqueryQuestion(node.this, "=", False, node.args["query"])
        case exp.Binary(expression=exp.Any() | exp.All() as some) if type(node) in COMPARISONS:
            return SubqueryQuestion(
                node.this, COMPARISONS[type(node)], isinstance(some, exp.All), some.this
            )
    return None


def without_not(node: exp.Expr) -> tuple[exp.Expr, bool]:
    """A condition without its parentheses and NOTs, and whether the NOTs negate it."""
    negated = False
    while isinstance(node, exp.Not | exp.Paren):
        negated ^= isinstance(node, exp.Not)
        node = node.this
    return node, negated


def bare(query: exp.Expr) -> exp.Expr:
    """A subquery without its parentheses."""
    while isinstance(query, exp.Subquery | exp.Paren):
        query = query.this
    return query
