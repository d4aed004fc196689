"""GROUPING SETS, ROLLUP and CUBE: the sets of expressions that a GROUP BY groups by.

A SELECT with several sets is read once for each, with NULL for the expressions that a set lacks,
and all of their rows together are its rows:

    GROUP BY a, ROLLUP (b, c)    (a, b, c), (a, b), (a)
"""

from collections.abc import Iterator
from itertools import combinations, product
from typing import TypeAlias

from sqlglot import exp

from protocols.views.binding.statement import Text

GroupingSet: TypeAlias = tuple[exp.Expr, ...]
_SEVERAL = (exp.Rollup, exp.Cube, exp.GroupingSets)
#: Each set is a group of its own.
_MOST = 64


def grouping_sets(text: Text, select: exp.Select) -> list[GroupingSet] | None:
    """The sets of a SELECT; None for a plain GROUP BY, or none."""
    group = select.args.get("group")
    if group is None or not any(isinstance(each, _SEVERAL) for each in group.expressions):
        return None
    items = [list(_sets(each)) for each in group.expressions]
    number = 1
    for sets in items:
        number *= len(sets)
    if number > _MOST:
        what = f"these are {number} grouping sets, and {_MOST} are kept"
        text.refuse(group, f"{what}; list the ones that are needed in GROUPING SETS")
    return [sum(parts, ()) for parts in product(*items)]


def grouped_by(group: exp.Group) -> Iterator[exp.Expr]:
    """All expressions of a GROUP BY, whatever sets they are in, each once."""
    found: dict[exp.Expr, None] = {}
    for item in group.expressions:
        for each in _sets(item):
            found.update(dict.fromkeys(each))
    yield from found


def _sets(item: exp.Expr) -> Iterator[GroupingSet]:
    match item:
        case exp.Rollup(expressions=parts):
            for length in range(len(parts), -1, -1):
                yield sum((_together(part) for part in parts[:length]), ())
        case exp.Cube(expressions=parts):
            for length in range(len(parts), -1, -1):
                for some in combinations(parts, length):
                    yield sum((_together(part) for part in some), ())
        case exp.GroupingSets(expressions=parts):
            for part in parts:
                yield from _sets(part)
        case _:
            yield _together(item)


def _together(item: exp.Expr) -> GroupingSet:
    """The expressions of (a, b), (a) or a."""
    if isinstance(item, exp.Tuple):
        return tuple(item.expressions)
    return (item.unnest() if isinstance(item, exp.Paren) else item,)
