"""Advice that would make a view cheaper to keep, written to the author of the view.

There are three kinds: columns by which sources should find rows, columns to show, and places that
read relations whole because no key leads there.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import TypeAlias

from protocols.algebra.expressions import Column
from protocols.analysis.keys import ViewKeys
from protocols.analysis.wording import listed
from protocols.explaining.asked import Rounds
from protocols.explaining.costs import Costs
from protocols.explaining.following import MANY, Following, Occasion, WantedKeys
from protocols.explaining.picture import aggregate_text, label
from protocols.views import tree
from protocols.views.catalog import Relation
from protocols.views.tree import Node

_AFRESH = Following(Occasion(frozenset(), MANY, True, True, remembered=False, nulls=False))


#: Source → relation → columns by which it finds rows.
Indexes: TypeAlias = Mapping[str, Mapping[str, Collection[str]]]


def advice(root: Node, costs: Costs, keys: ViewKeys, indexed: Indexes) -> tuple[str, ...]:
    """Gives all advice, the most expensive places first; leaves out indexes that exist already."""
    places = (each for node in tree.nodes(root) for each in _of_node(node))
    return (*dict.fromkeys(places), *_columns_to_show(keys), *_indexes(costs, indexed))


def _of_node(node: Node) -> Iterator[str]:
    match node:
        case tree.Join(_, left, right) if not node.on:
            yield _without_link(node, left, right)
        case tree.Join(_, left, right):
            for side, below in enumerate((left, right)):
                columns = frozenset(pair[side] for pair in node.on)
                yield from _computed(f"the {label(node)}", below, columns)
        case tree.Group(below, keys, aggregates):
            if keys:
                yield from _computed(f"the {label(node)}", below, frozenset(keys))
            for each in aggregates:
                if each.distinct and each.function not in ("min", "max"):
                    yield (
                        f"{aggregate_text(each)} reads its groups again with every change; over a"
                        " subquery in FROM with SELECT DISTINCT, the plain"
                        f" {each.function.upper()} is remembered"
                    )


def _without_link(node: tree.Join, left: Node, right: Node) -> str:
    """A join with an input of one row, which every row meets."""
    sides = [_relations(side) for side in (left, right)]
    tests = label(node).partition(" on ")[2]
    what = f"by {tests} only" if tests else "by nothing"
    return (
        f"{listed(sides[0])} and the result over all {listed(sides[1])} are linked {what}, so"
        " a change there concerns every row here; link them by an equality of columns (for NOT IN"
        " write NOT EXISTS with the equality in its WHERE, if NULLs do not matter)"
    )


def _computed(what: str, below: Node, columns: frozenset[str]) -> Iterator[str]:
    """Advice where keys are computed values, by which no source can be asked."""
    if not isinstance(below, tree.Compute):
        return
    whole = _whole(_AFRESH.before(below, WantedKeys(columns, frozenset(), MANY)))
    if whole:
        values = {name: value for name, value, _ in below.values}
        names = sorted(n for n in columns if not isinstance(values[n], Column))
        if names:
            yield (
                f"{what} reads {listed(list(map(str, whole)))} whole when it does not remember,"
                f" since no source can be asked by {listed(names)}, which is computed; a plain"
                " column beside it would do"
            )


def _columns_to_show(keys: ViewKeys) -> Iterator[str]:
    if keys.missing:
        yield (
            f"add {listed(keys.missing)} to the select list: then no two rows are alike, and each"
            " change says which row it is about"
        )


def _indexes(costs: Costs, indexed: Indexes) -> Iterator[str]:
    """One index per column that is asked by; of several columns one is enough."""
    columns: dict[Relation, dict[str, None]] = {}
    for each in costs.asks:
        known = indexed.get(each.relation.source, {}).get(each.relation.name, ())
        for key in each.keys:
            if not set(key) & set(known):
                columns.setdefault(each.relation, {})[key[0]] = None
    for source in dict.fromkeys(relation.source for relation in columns):
        own = {r: names for r, names in columns.items() if r.source == source}
        places = [f"{relation}({name})" for relation, names in own.items() for name in names]
        options = [f"--on {relation.name}={','.join(names)}" for relation, names in own.items()]
        what = "an index" if len(places) == 1 else "an index each"
        yield (
            f"{what} on {listed(places)}: CREATE INDEX in a database; for a simulated source,"
            " while it is stopped:\n"
            f"viewsweep sources index {source}.db {' '.join(options)}"
        )


def _whole(asked: Rounds) -> tuple[Relation, ...]:
    return tuple(dict.fromkeys(each.relation for r in asked for each in r if each.whole))


def _relations(node: Node) -> list[str]:
    cores = (each for each in tree.nodes(node) if isinstance(each, tree.Core))
    return list(dict.fromkeys(str(r) for core in cores for r in core.view.relations))
