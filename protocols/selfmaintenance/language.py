"""The views of the paper (section 2): one projection of one selection of one cross-product.

Each relation has a key. The view may hold duplicates. Anything else that viewsweep can keep is
refused here with the reason, since the definitions of the paper say nothing about it.
"""

from typing import NoReturn

from protocols.algebra.expressions import Column
from protocols.errors import WrongUse
from protocols.views.tree import AnyView, Compute, Core, Node, TreeView, headline, inputs
from protocols.views.view import View


def select_project_join(view: AnyView) -> View:
    """The view, if the paper is about it; otherwise WrongUse with the reason."""
    if isinstance(view, TreeView):
        _refuse_operators(view)
    for atom in view.atoms:
        if not atom.relation.all_keys:
            raise WrongUse(
                f"{atom.relation} has no key, and rows that cannot be told apart cannot be followed"
                f' through auxiliary views; declare one ("key", or "keys" in the configuration)'
            )
    return view


def _refuse_operators(view: TreeView) -> NoReturn:
    """Names the uppermost operator that is not in the language."""
    node: Node = view.root
    while isinstance(node, Compute):
        for name, value, _ in node.values:
            if not isinstance(value, Column):
                _refuse(f"the column {name!r} of its SELECT list is computed; select plain columns")
        node = node.input
    if isinstance(node, Core):
        node = view.root
    below = [headline(each) for each in inputs(node) if not isinstance(each, Core)]
    inside = f" (over {' and '.join(below)})" if below else ""
    _refuse(f"it has the operator {headline(node)!r}{inside}")


def _refuse(reason: str) -> NoReturn:
    raise WrongUse(
        "auxiliary views can be computed only for select-project-join views: plain columns of"
        f" inner-joined relations. This view is not one of them: {reason}"
    )
