"""The reasons why a node of the text is no value that can be kept, each with a way out."""

from sqlglot import exp

_CHANGING = {"RAND", "RANDOM", "NOW", "UUID", "TODAY", "CLOCK_TIMESTAMP", "GEN_RANDOM_UUID"}


def reason_against(node: exp.Expr) -> str:
    """The reason for a node that nothing reads."""
    text = node.sql("duckdb")
    name = str(node.this if isinstance(node, exp.Anonymous) else node.key).upper()
    if name in _CHANGING or name.startswith("CURRENT"):
        return f"{text} returns a different value each time; compute it when you read the view"
    match node:
        case exp.If():
            return "PostgreSQL has no IF; write CASE WHEN … THEN … ELSE … END"
        case exp.Window():
            return (
                f"the window function {text} can stand in SELECT and QUALIFY of a query in FROM or"
                " of the view; compute it in a subquery in FROM first"
            )
        case exp.AggFunc():
            return f"the aggregate {text} cannot stand here; aggregate in a subquery in FROM first"
        case exp.Query() | exp.Subquery() | exp.SubqueryPredicate():
            return f"the subquery {text} cannot stand here; join it in FROM"
        case exp.Tuple():
            return (
                f"{text} is a row, which can only be compared as a condition of WHERE by itself:"
                " (a, b) IN ((1, 2)), (a, b) IN (SELECT …); else compare the values one by one"
            )
    return (
        f"{text} is not supported; keep what it is made of, and compute it when you read the view"
    )
