"""A tree in the join graph of a view: the order of questions when all origins are swept at once.

An inner atom of the tree is asked twice: by keys from below it and by keys from above. The root and
the leaves are asked once. So the fewer inner atoms the better: a star has one, on a chain all but
the ends are inner. Links that are not in the tree (the graph may have cycles) are tested as soon as
both their ends are there.
"""

from collections import deque
from dataclasses import dataclass
from functools import lru_cache

from protocols.views.view import Atom, View


@dataclass(frozen=True)
class JoinTree:
    """A spanning tree with a root; the root is an inner atom if there is one."""

    root: Atom
    parents: dict[Atom, Atom]
    #: From the root downwards: atoms of one depth are independent of each other.
    levels: tuple[tuple[Atom, ...], ...]

    @property
    def inner(self) -> tuple[Atom, ...]:
        """The atoms with more than one neighbour in the tree."""
        return tuple(atom for level in self.levels for atom in level if self._neighbours(atom) > 1)

    def is_below(self, atom: Atom, other: Atom) -> bool:
        """Whether the path from `atom` up to the root leads through `other`."""
        above = self.parents.get(atom)
        return above is not None and (above == other or self.is_below(above, other))

    def _neighbours(self, atom: Atom) -> int:
        return list(self.parents.values()).count(atom) + (atom in self.parents)


@lru_cache(maxsize=1024)
def join_tree(view: View) -> JoinTree:
    """The tree with the fewest inner atoms that a breadth-first search from each root finds."""
    trees = [_tree_from(view, atom) for atom in view.atoms]
    fewest = min(len(tree.inner) for tree in trees)
    # Of equally good trees the flattest, for every level costs a round; its root is an inner atom.
    good = [tree for tree in trees if len(tree.inner) == fewest]
    return min(good, key=lambda tree: len(tree.levels))


def queries_per_batch(view: View) -> int:
    """The most questions that a batch of any size asks: n + I - 1."""
    n = len(view.atoms)
    if n < 3:
        return 2 * (n - 1)
    return n + len(join_tree(view).inner) - 1


def _tree_from(view: View, root: Atom) -> JoinTree:
    linked = _neighbours(view)
    parents: dict[Atom, Atom] = {}
    levels: list[tuple[Atom, ...]] = [(root,)]
    found = {root}
    todo = deque([(root, 0)])
    while todo:
        atom, depth = todo.popleft()
        # Atoms with many neighbours first, so that they gather the others below them.
        for other in sorted(linked[atom] - found, key=lambda a: (-len(linked[a]), a.index)):
            found.add(other)
            parents[other] = atom
            todo.append((other, depth + 1))
            if len(levels) == depth + 1:
                levels.append(())
            levels[depth + 1] += (other,)
    return JoinTree(root, parents, tuple(levels))


def _neighbours(view: View) -> dict[Atom, set[Atom]]:
    neighbours: dict[Atom, set[Atom]] = {atom: set() for atom in view.atoms}
    for link in view.links:
        left, right = view.atoms[link.left[0]], view.atoms[link.right[0]]
        neighbours[left].add(right)
        neighbours[right].add(left)
    return neighbours
