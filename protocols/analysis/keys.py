"""The keys of a view: sets of its columns that tell any two of its rows apart.

A key identifies the row of the view that a change is about. Orphans are found by it, and a reader
can follow the view row by row. Without one rows may repeat, and `missing` names the columns to show
in addition.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from protocols.analysis.dependencies import Facts, facts, lacking_least, mark
from protocols.analysis.wording import listed
from protocols.views.tree import AnyView, Core, Node, TreeView, nodes


@dataclass(frozen=True)
class ViewKeys:
    """The keys of a view; none of their columns can be left out."""

    keys: tuple[tuple[str, ...], ...]
    #: Without a key: the columns `alias.column` that would make one if they were shown too.
    missing: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.keys == ((),):
            return "there is at most one row"
        if self.keys:
            determine = [
                listed(key) + (" determines" if len(key) == 1 else " determine")
                for key in self.keys
            ]
            return "; ".join(f"{each} a row" for each in determine)
        if self.missing:
            shown = listed(self.missing)
            return f"none found, so rows may repeat; with {shown} in the select list they would not"
        return "none found, so rows may repeat; no column of the relations would prevent it"


def keys_of(view: AnyView) -> ViewKeys:
    """Finds every minimal key that is reached by leaving out columns in turn.

    For `SELECT o.id, c.name FROM o LEFT JOIN c ON o.customer = c.id` it is (id).
    """
    root = view.root if isinstance(view, TreeView) else Core(view)
    known, columns = facts(root), tuple(root.columns)
    if not known.tell_rows_apart(columns):
        return ViewKeys((), _missing(root, known, columns))
    found = {_minimal(known, columns[i:] + columns[:i]) for i in range(len(columns))}
    ordered = [tuple(c for c in columns if c in key) for key in found]
    return ViewKeys(tuple(sorted(ordered, key=lambda k: (len(k), list(map(columns.index, k))))))


def _minimal(known: Facts, columns: Sequence[str]) -> frozenset[str]:
    """Drops each column, in this order, unless it is needed."""
    kept = frozenset(columns)
    for column in columns:
        if known.tell_rows_apart(kept - {column}):
            kept -= {column}
    return kept


def _missing(root: Node, known: Facts, columns: Sequence[str]) -> tuple[str, ...]:
    """The columns of relations' keys that would determine all rows if they were shown too."""
    shown = set(columns)
    wanted: list[str] = []
    for node in nodes(root):
        for atom in node.view.atoms if isinstance(node, Core) else ():
            alias = f"@{atom.alias}"
            there = known.determined_by(shown)
            if mark(alias) in known.marks - there:
                lacking = lacking_least(alias, atom.relation, there)
                shown.update(lacking)
                wanted += [each.removeprefix("@") for each in lacking]
    return tuple(wanted) if known.tell_rows_apart(shown) else ()
