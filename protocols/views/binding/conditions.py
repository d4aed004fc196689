"""Takes the conditions of the text apart."""

from collections.abc import Iterator
from dataclasses import dataclass

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
    else:
        yield node


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
