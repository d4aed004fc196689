"""Whether a row is in the view now, by the view's set operators (Section 8).

For a rule of one branch it may be known whether that branch has the row. The others are asked, each
for this one row: a row that left a branch of UNION stays if another branch has it; one that came to
a branch of INTERSECT comes if all others have it.
"""

from collections.abc import Sequence

from sqlglot import exp

from protocols.rules.names import quoted
from protocols.rules.substitution import ROW, item_values, over, restricted
from protocols.rules.view import Branch, Column, Formula, RuledView


def is_in_view(view: RuledView, branch: int, has_it: bool | None) -> str | bool:
    """The condition on ROW, where it is known (or None) whether one branch has it."""
    return _holds(view, view.formula, branch, has_it)


def is_positive(formula: Formula, branch: int, positive: bool = True) -> bool | None:
    """Whether more rows of a branch make more rows of the view; None if it is not below here."""
    if isinstance(formula, int):
        return positive if formula == branch else None
    left = is_positive(formula.left, branch, positive)
    right = is_positive(formula.right, branch, positive ^ (formula.kind is exp.Except))
    return right if left is None else left


def same_row(view: RuledView, one: str, other: str) -> str:
    """The condition that two rows with the view's columns are the same."""
    pairs = [
        (f"{one}.{quoted(each.name)}", f"{other}.{quoted(each.name)}", each.never_null)
        for each in view.columns
    ]
    return _all_equal(pairs, hashed=isinstance(view.formula, int))


def _all_equal(pairs: Sequence[tuple[str, str, bool]], *, hashed: bool) -> str:
    """The condition that pairs of values are equal, given whether one of each is never NULL.

    If all can be NULL, a join by them would compare every two rows. So they are compared as arrays
    as well, which are equal if their NULLs are, and which can be hashed and indexed.
    """
    alone = hashed and not any(never_null for *_, never_null in pairs)
    return " AND ".join(equal(*pair, as_arrays=alone) for pair in pairs)


def equal(one: str, other: str, never_null: bool, *, as_arrays: bool) -> str:
    """The condition that two values are the same, NULL being equal to NULL."""
    if never_null:
        return f"{one} = {other}"
    # Unlike IS NOT DISTINCT FROM this can use an index.
    plain = f"({one} = {other} OR ({one} IS NULL AND {other} IS NULL))"
    return f"ARRAY[{one}] = ARRAY[{other}] AND {plain}" if as_arrays else plain


def _holds(view: RuledView, formula: Formula, branch: int, has_it: bool | None) -> str | bool:
    if isinstance(formula, int):
        if formula == branch and has_it is not None:
            return has_it
        return _has(view.branches[formula], view.columns, isinstance(view.formula, int))
    left, right = (_holds(view, f, branch, has_it) for f in (formula.left, formula.right))
    if formula.kind is exp.Union:
        return _either(left, right)
    return _both(left, _not(right) if formula.kind is exp.Except else right)


def _has(branch: Branch, columns: Sequence[Column], alone: bool) -> str:
    """Whether a branch has the row."""
    select = over(branch, columns, {})
    select.set("expressions", [exp.Literal.number(1)])
    select.set("distinct", None)
    pairs = [
        (f"({value.sql('postgres')})", f"{ROW}.{quoted(column.name)}", never or column.never_null)
        for value, column, never in zip(
            item_values(branch), columns, branch.never_null, strict=True
        )
    ]
    same = _all_equal(pairs, hashed=alone)
    restricted(select, exp.maybe_parse(same, dialect="postgres"))
    return f"EXISTS (\n{select.sql('postgres', pretty=True)})"


def _not(one: str | bool) -> str | bool:
    return (not one) if isinstance(one, bool) else f"NOT {one}"


def _both(one: str | bool, other: str | bool) -> str | bool:
    if isinstance(one, bool):
        return other if one else False
    if isinstance(other, bool):
        return one if other else False
    return f"({one} AND {other})"


def _either(one: str | bool, other: str | bool) -> str | bool:
    if isinstance(one, bool):
        return True if one else other
    if isinstance(other, bool):
        return True if other else one
    return f"({one} OR {other})"


def negated(one: str | bool) -> str | bool:
    """The condition that a row is not in the view."""
    return _not(one)
