"""The columns by whose values a view can be worked out in stretches.

A *stretch* is all rows of a view that agree with some values in a handle's columns. It can be
worked out from the few rows of the relations that lead to it, if each operator can hand these
values on to its inputs. So a handle is made of columns that one atom provides and that all
operators pass on unchanged, and its *roots* are the atoms that provide them:

    inner join      the key of one relation
    outer join      the key of the side that is kept; of both sides of a full join: a row has the
                    key of at least one of them
    EXISTS          the key of the outer relation
    groups          columns that the rows are grouped by
    windows         columns of the partition
    set operators   columns that have a root in each branch

A relation whose key the view does not show is found by the columns that it does show. What has no
such columns (an aggregate over all rows, columns that are all computed) is a single stretch: the
view as a whole.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

from protocols.operators.statements import statement
from protocols.views import tree
from protocols.views.tree import AnyView, TreeView
from protocols.views.view import Atom, View

#: Of the ways to cover a node only so many are followed: a union multiplies them.
_WAYS = 6


@dataclass(frozen=True)
class Root:
    """An atom that provides the columns of a handle."""

    atom: Atom
    #: Column of the handle → column of the relation.
    names: Mapping[str, str]

    @property
    def keyed(self) -> bool:
        """Whether the columns contain the relation's key."""
        key = self.atom.relation.key
        return bool(key) and set(key) <= set(self.names.values())

    def passed_on(self, names: Mapping[str, str]) -> "Root":
        """The root of a handle with other `names` for the same columns, or for some of them."""
        return Root(self.atom, {ours: self.names[theirs] for ours, theirs in names.items()})


@dataclass(frozen=True)
class Handle:
    """Columns of a view by whose values its stretches are taken."""

    columns: tuple[str, ...]
    #: None if the values are those that the view's text lists.
    roots: tuple[Root, ...]

    @property
    def keyed(self) -> bool:
        """Whether its values are keys of its roots, so that a stretch may be a range of them."""
        return all(root.keyed for root in self.roots)

    def passed_on(self, names: Mapping[str, str]) -> "Handle | None":
        """The handle above an operator, given the operator's names for columns of its input."""
        kept = {names[name]: name for name in self.columns if name in names}
        if not kept:
            return None
        roots = tuple(root.passed_on(kept) for root in self.roots)
        return Handle(tuple(kept), roots)

    def within(self, columns: Iterable[str]) -> "Handle | None":
        """The handle with only these columns."""
        wanted = set(columns)
        return self.passed_on({name: name for name in self.columns if name in wanted})


#: Handles of which every row has at least one with a value that is not NULL.
Cover: TypeAlias = tuple[Handle, ...]


def as_tree(view: AnyView) -> TreeView:
    """The view as a tree; an inner join is its only leaf."""
    if isinstance(view, TreeView):
        return view
    return TreeView(view.name, view.sql, tree.Core(view))


def covers_of(view: AnyView) -> list[Cover]:
    """The ways to take a view in stretches, the best first; none if it is one stretch."""
    return _covers(as_tree(view).root)


def _covers(node: tree.Node) -> list[Cover]:
    found: list[Cover]
    match node:
        case tree.Core():
            found = [(handle,) for handle in _of_atoms(node.view)]
        case tree.Constants():
            found = [(Handle(tuple(node.columns), ()),)]
        case tree.Join("inner"):
            found = _covers(node.left) + _covers(node.right)
        case tree.Join("full"):
            both = product(_covers(node.left), _covers(node.right))
            found = [left + right for left, right in both]
        case tree.Join():
            found = _covers(node.left)
        case tree.Union():
            found = _of_union([_covers(each) for each in node.inputs])
        case _:
            found = _above(node)
    different = {tuple(handle.columns for handle in cover): cover for cover in found}
    return sorted(different.values(), key=_worth)[:_WAYS]


def _worth(cover: Cover) -> tuple[int, int, int]:
    """Keys first, then few handles; of keys few columns, of other columns many."""
    unkeyed = [handle for handle in cover if not handle.keyed]
    columns = sum(len(handle.columns) for handle in cover)
    return len(unkeyed), len(cover), -columns if unkeyed else columns


def _of_atoms(view: View) -> Iterable[Handle]:
    """The key of each atom, if it is shown, and all that is shown of it."""
    for atom in view.atoms:
        own = dict(atom.renaming)
        names = {each.name: own[each.column] for each in view.outputs if each.column in own}
        if not names:
            continue
        shown = {column: name for name, column in reversed([*names.items()])}
        key = atom.relation.key
        if key and set(key) <= shown.keys():
            yield _handle(atom, {shown[column]: column for column in key})
        yield _handle(atom, names)


def _handle(atom: Atom, names: Mapping[str, str]) -> Handle:
    return Handle(tuple(names), (Root(atom, names),))


def _of_union(inputs: list[list[Cover]]) -> list[Cover]:
    """A handle has to have a root in each branch; a row may be covered in any of them."""
    found = []
    for covers in product(*inputs):
        merged = [_merged(handles) for handles in product(*covers)]
        known = tuple(handle for handle in merged if handle is not None)
        if len(known) == len(merged):
            found.append(known)
    return found


def _merged(handles: Iterable[Handle]) -> Handle | None:
    first, *others = handles
    common = [name for name in first.columns if all(name in other.columns for other in others)]
    within = [handle.within(common) for handle in (first, *others)]
    known = [handle for handle in within if handle is not None]
    if len(known) < len(within):
        return None
    return Handle(tuple(common), tuple(root for handle in known for root in handle.roots))


def _above(node: tree.Node) -> list[Cover]:
    """The covers of an operator with one input, whose columns it passes on, or some of them."""
    (below,) = tree.inputs(node)
    (theirs,) = statement(node).names
    ours = {name: own for own, name in reversed([*theirs.items()])}
    found = []
    for cover in _covers(below):
        passed = [handle.passed_on(ours) for handle in cover]
        known = tuple(handle for handle in passed if handle is not None)
        if len(known) == len(passed):
            found.append(known)
    return found
