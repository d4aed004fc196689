"""The coverage of a campaign over views: its plans, and the operators that met concurrency.

The outline of a tree is the tree without names: views with the same outline are kept in the same
way. An operator was *met* if an answer differed from the requested state while it ran.
"""

from protocols.views import tree
from protocols.views.tree import AnyView, TreeView


def outline(view: AnyView) -> str:
    """The plan of a view, in one line."""
    if not isinstance(view, TreeView):
        return f"inner join of {len(view.atoms)}"
    return _outline(view.root)


def operators(view: AnyView) -> frozenset[str]:
    """The operators of a view by name; for groups also their aggregates."""
    if not isinstance(view, TreeView):
        return frozenset()
    return frozenset(name for node in tree.nodes(view.root) for name in _names(node))


def _outline(node: tree.Node) -> str:
    below = ", ".join(_outline(each) for each in tree.inputs(node))
    return f"{_outlined(node)}({below})" if below else _outlined(node)


def _outlined(node: tree.Node) -> str:
    match node:
        case tree.Core(view):
            links = sum(1 for _ in view.links)
            return f"core of {len(view.atoms)} by {links}" + " tested" * bool(view.residuals)
        case tree.Join():
            return f"{node.kind} join on {len(node.on)}" + " tested" * (node.condition is not None)
        case tree.Group():
            kept = " ".join(sorted(_aggregated(each) for each in node.aggregates))
            return f"group by {len(node.keys)}: {kept}"
    return type(node).__name__.lower()


def _names(node: tree.Node) -> list[str]:
    match node:
        case tree.Join():
            tested = ", tested" * (node.condition is not None)
            return [f"{node.kind} join{tested}"]
        case tree.Group() if not node.aggregates:
            return ["distinct"]
        case tree.Group():
            aggregated = [_aggregated(each) for each in node.aggregates]
            return [*aggregated, "group" if node.keys else "group of everything"]
        case tree.Window():
            return ["window", *(each.function for each in node.functions)]
        case tree.Core(view):
            return ["core"] if len(view.atoms) > 1 else []
    return [type(node).__name__.lower()]


def _aggregated(each: tree.Aggregate) -> str:
    if each.column is None:
        return "count(*)"
    return f"{each.function}{' distinct' * each.distinct}"
