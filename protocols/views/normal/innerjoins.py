"""Inner joins of relations as leaves, regardless of the order and shape they were written in.

A region of inner joins and conditions is taken apart into its parts. Relations that are linked by
equalities of columns become one `Core`, which a protocol keeps with few questions; the other parts
(outer joins, groups) are joined to it one by one. The other kinds of joins take the equalities in
their conditions as their links; without one of columns, an equality of values will do (`links.py`).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NoReturn, TypeAlias

from protocols.algebra.expressions import (
    Call,
    Column,
    Comparison,
    Condition,
    Expression,
    columns_of,
    compared_by_same,
    conjunction,
    conjuncts,
    parts_of,
    renamed,
)
from protocols.algebra.functions import FUNCTIONS
from protocols.views import tree
from protocols.views.binding.rows import Names
from protocols.views.normal.links import equal_values, on_values
from protocols.views.normal.regions import region
from protocols.views.view import Link, View

#: Refuses a view because nothing links a relation (by the alias of its atom) to the others.
Unlinked: TypeAlias = Callable[[str], NoReturn]


def gathered(node: tree.Node, names: Names, unlinked: Unlinked) -> tree.Node:
    """The tree with its inner joins gathered."""
    match node:
        case tree.Core() | tree.Constants():
            return node
        case tree.Union():
            return tree.Union(tuple(gathered(each, names, unlinked) for each in node.inputs))
        case tree.Join(kind="inner") | tree.Filter():
            parts, tests = region(node)
            parts = [gathered(part, names, unlinked) for part in parts]
            return _joined(parts, tests, names, unlinked)
        case tree.Join():
            left, right = (gathered(each, names, unlinked) for each in (node.left, node.right))
            return _linked(replace(node, left=left, right=right), names, unlinked)
        case _:
            return replace(node, input=gathered(node.input, names, unlinked))


def _joined(
    parts: list[tree.Node], tests: list[Condition], names: Names, unlinked: Unlinked
) -> tree.Node:
    """Joins the parts of a region: relations into as few leaves as links allow, then the rest."""
    nodes = _cores([part for part in parts if isinstance(part, tree.Core)], tests)
    nodes += [part for part in parts if not isinstance(part, tree.Core)]
    nodes = [_tested(each, tests) for each in nodes]
    whole, *waiting = nodes
    while waiting:
        linked = (each for each in waiting if _equalities(whole, each, tests))
        null_safe = (each for each in waiting if _null_safe(whole, each, tests))
        by_values = (each for each in waiting if equal_values(whole, each, tests))
        following = (
            next(linked, None)
            or next(null_safe, None)
            or next(by_values, None)
            or next(filter(_is_small, waiting), None)
            or waiting[0]
        )
        waiting = [each for each in waiting if each is not following]
        whole = _linked(tree.Join("inner", whole, following, (), None), names, unlinked, tests)
    return whole


def _tested(node: tree.Node, tests: list[Condition]) -> tree.Node:
    """The node under the conditions that read nothing else; removes these from the list."""
    own = _take(tests, lambda test: columns_of(test) <= node.columns.keys())
    condition = conjunction(tuple(own))
    if condition is None:
        return node
    return _restricted(node, own) if isinstance(node, tree.Core) else tree.Filter(node, condition)


def _linked(
    join: tree.Join, names: Names, unlinked: Unlinked, tests: list[Condition] | None = None
) -> tree.Join:
    """The join, with the equalities of its conditions as its links."""
    there = {*join.left.columns, *join.right.columns}
    own = list(conjuncts(join.condition))
    if tests is not None:
        own += _take(tests, lambda test: columns_of(test) <= there)
    equal = _equalities(join.left, join.right, own)
    if not join.on and not equal and (equal := _null_safe(join.left, join.right, own)):
        join = replace(join, nulls_equal=True)
    on = tuple(dict.fromkeys((*join.on, *(pair for _, pair in equal))))
    if not on and not any(map(_is_small, (join.left, join.right))):
        by_values = equal_values(join.left, join.right, own)
        if by_values is None:
            unlinked(_first_alias(join.right))
        join, on = on_values(join, by_values, names)
        own = [test for test in own if test is not by_values.test]
    others = [test for test in own if not any(test is used for used, _ in equal)]
    return replace(join, on=on, condition=conjunction(tuple(others)))


def _equalities(
    left: tree.Node, right: tree.Node, tests: Sequence[Condition]
) -> list[tuple[Condition, tuple[str, str]]]:
    """The equalities of a column of one side with a column of the other, of the same type."""
    found: list[tuple[Condition, tuple[str, str]]] = []
    for test in tests:
        match test:
            case Comparison(Column(one), "=", Column(other)):
                found += [(test, pair) for pair in _pairs(left, right, one, other)]
    return found


def _null_safe(
    left: tree.Node, right: tree.Node, tests: Sequence[Condition]
) -> list[tuple[Condition, tuple[str, str]]]:
    """The same for IS NOT DISTINCT FROM, which is a link where there is no other."""
    found: list[tuple[Condition, tuple[str, str]]] = []
    for test in tests:
        match compared_by_same(test):
            case Column(one), Column(other):
                found += [(test, pair) for pair in _pairs(left, right, one, other)]
    return found


def _pairs(left: tree.Node, right: tree.Node, one: str, other: str) -> Iterator[tuple[str, str]]:
    for ours, theirs in ((one, other), (other, one)):
        type_ = left.columns.get(ours)
        if type_ is not None and type_ == right.columns.get(theirs):
            yield ours, theirs


# -- leaves ----------------------------------------------------------------------------------------


def _cores(cores: list[tree.Core], tests: list[Condition]) -> list[tree.Node]:
    """Merges the leaves that equalities connect into one each; removes the links that it uses."""
    done: list[tree.Node] = []
    waiting = list(cores)
    while waiting:
        together = [waiting[0]]
        while more := [each for each in waiting if _hangs_on(each, together, tests)]:
            together += more
        done.append(_merged([core for core in waiting if core in together], tests))
        waiting = [core for core in waiting if core not in together]
    return done


def _hangs_on(core: tree.Core, others: list[tree.Core], tests: Sequence[Condition]) -> bool:
    linked = any(_equalities(core, other, tests) for other in others)
    return linked and core not in others


def _merged(cores: list[tree.Core], tests: list[Condition]) -> tree.Core:
    """Merges leaves, in the order of FROM, with the conditions that can be tested there."""
    whole, *others = (core.view for core in cores)
    for view in others:
        shift = len(whole.atoms)
        atoms = (*whole.atoms, *view.atoms)
        whole = replace(
            whole,
            atoms=tuple(replace(atom, index=index) for index, atom in enumerate(atoms)),
            links=(*whole.links, *(_shifted(link, shift) for link in view.links)),
            residuals=(*whole.residuals, *view.residuals),
            outputs=(*whole.outputs, *view.outputs),
        )
    core = tree.Core(whole)
    return _restricted(core, _take(tests, lambda test: columns_of(test) <= core.columns.keys()))


def _restricted(core: tree.Core, tests: Sequence[Condition]) -> tree.Core:
    """The leaf under conditions: links, conditions of one relation, and residuals."""
    view = core.view
    qualified = {output.name: output.column for output in view.outputs}
    for test in tests:
        view = _with_condition(view, renamed(test, lambda name: qualified[name]))
    return tree.Core(view)


def _with_condition(view: View, test: Condition) -> View:
    places = {atom.qualified(c): (atom, c) for atom in view.atoms for c in atom.columns}
    atoms = {places[name][0] for name in columns_of(test)}
    if len(atoms) <= 1 and not _is_for_us(test):
        # A condition on constants is true or false for every row of the first relation.
        atom = next(iter(atoms), view.atoms[0])
        own = renamed(test, lambda name: places[name][1])
        changed = replace(atom, condition=conjunction((*conjuncts(atom.condition), own)))
        return replace(view, atoms=tuple(changed if a is atom else a for a in view.atoms))
    match test:
        case Comparison(Column(one), "=", Column(other)) if len(atoms) == 2:
            (left, ours), (right, theirs) = places[one], places[other]
            if left.relation.type_of(ours) == right.relation.type_of(theirs):
                link = Link((left.index, ours), (right.index, theirs))
                known = {link, Link(link.right, link.left)} & set(view.links)
                return view if known else replace(view, links=(*view.links, link))
    return replace(view, residuals=(*view.residuals, test))


def _is_for_us(what: Condition | Expression) -> bool:
    """Whether it calls a function that sources do not have."""
    if isinstance(what, Call) and FUNCTIONS[what.function].sql is None:
        return True
    return any(map(_is_for_us, parts_of(what)))


def _shifted(link: Link, by: int) -> Link:
    (left, ours), (right, theirs) = link.left, link.right
    return Link((left + by, ours), (right + by, theirs))


# -- small things ----------------------------------------------------------------------------------


def _take(tests: list[Condition], wanted: Callable[[Condition], bool]) -> list[Condition]:
    """Removes the wanted conditions from the list and returns them."""
    found = [test for test in tests if wanted(test)]
    tests[:] = [test for test in tests if not any(test is other for other in found)]
    return found


def _is_small(node: tree.Node) -> bool:
    """Whether the node can be joined without a link: a group over everything, or constants."""
    match node:
        case tree.Core():
            return False
        case tree.Group(keys=()):
            return True
    return all(map(_is_small, tree.inputs(node)))


def _first_alias(node: tree.Node) -> str:
    leaves = (each for each in tree.nodes(node) if isinstance(each, tree.Core))
    return next(leaves).view.atoms[0].alias
