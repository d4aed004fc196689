"""Recognises COALESCE where the reading of SQL has written it out."""

from protocols.algebra import expressions as ex


def coalesced(value: ex.Expression) -> tuple[ex.Expression, ...] | None:
    """The arguments if the value is a COALESCE: the first of them that is not NULL."""
    match value:
        case ex.Case(branches, default, _):
            if all(test == ex.Not(ex.IsNull(then)) for test, then in branches):
                return (*(then for _, then in branches), default)
    return None
