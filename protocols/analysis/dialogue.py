"""Changes of a view's text by which rules would follow it more cheaply.

Ceri and Widom's system shows its analysis and lets the user change the view (Section 4.1). These
are the changes that can be written down: DISTINCT, and columns of a key that the view could show.
For `SELECT psgr.ffn FROM psgr, res WHERE psgr.psgr_id = res.psgr_id`:

    SELECT DISTINCT psgr.ffn FROM …
    SELECT psgr.ffn, res.res_id FROM …
"""

from collections.abc import Collection, Iterator

from sqlglot import exp

from protocols.analysis.boundcolumns import BoundColumn, bound_key
from protocols.analysis.references import Selected, TableReference


def suggestions(select: Selected, bound: tuple[BoundColumn, ...]) -> Iterator[str]:
    """The effect of each change, and the SELECT with it."""
    unbound = [
        (reference, node)
        for reference, node in zip(select.references, select.places, strict=True)
        if bound_key(reference, bound) is None
    ]
    if unbound and not select.distinct:
        changed = select.node.copy()
        changed.set("distinct", exp.Distinct())
        yield f"no row occurs twice in: {_text(changed)}"
    columns = {each.column for each in bound}
    for reference, node in unbound:
        if reference.keys:
            missing = lacking_least(reference, columns)
            changed = select.node.copy()
            for name in missing:
                column = name.rpartition(".")[2]
                changed.append("expressions", exp.column(column, table=node.alias_or_name))
            yield f"{reference.name} is safe in: {_text(changed)}"


def lacking_least(reference: TableReference, columns: Collection[str]) -> list[str]:
    """The columns that are not bound of the key that has the fewest such."""
    return min(([c for c in key if c not in columns] for key in reference.keys), key=len)


def _text(select: exp.Expr) -> str:
    return " ".join(select.sql("duckdb").split())
