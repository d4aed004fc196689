"""The analysis of the outer joins of a view, block by block.

A secondary delta can come from the view only if the view's rows are those of the block: at the
root, not below a group or a union.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from protocols.analysis.block import NamedBlock, block_of, outer_blocks
from protocols.analysis.leftdeep import left_deep
from protocols.analysis.maintenancegraph import MaintenanceGraph, maintenance_graph, reduced
from protocols.analysis.normalform import NoNormalForm, NormalForm, normal_form
from protocols.analysis.outeraggregation import GroupCounters, group_counters
from protocols.analysis.primarydelta import primary_delta, simplified
from protocols.analysis.secondarydelta import SecondaryDelta, secondary_deltas
from protocols.analysis.subsumption import SubsumptionGraph, subsumption_graph
from protocols.views.catalog import ForeignKey
from protocols.views.tree import Core, Group, Join, Node, inputs, nodes


@dataclass(frozen=True)
class UpdateAnalysis:
    """The effects of an update of one alias on a block."""

    alias: str
    graph: MaintenanceGraph
    #: The same for insertions and deletions, less the terms that foreign keys rule out.
    reduced: MaintenanceGraph
    #: The primary delta as an expression; for the reduced graph empty if there is none.
    primary: str
    primary_reduced: str
    insertion: tuple[SecondaryDelta, ...]
    deletion: tuple[SecondaryDelta, ...]

    @property
    def spared(self) -> bool:
        """Whether foreign keys rule anything out."""
        return (self.reduced, self.primary_reduced) != (self.graph, self.primary)


@dataclass(frozen=True)
class BlockAnalysis:
    """One outer-join block of a view."""

    block: str
    form: NormalForm
    subsumption: SubsumptionGraph
    updates: tuple[UpdateAnalysis, ...]
    #: The counts of the group right above it, if there is one.
    counters: GroupCounters | None


@dataclass(frozen=True)
class WithoutNormalForm:
    """A block that cannot be analysed this way, and the reason."""

    block: str
    reason: str


def outer_joins(
    root: Node, foreign_keys: Iterable[ForeignKey] = ()
) -> tuple[BlockAnalysis | WithoutNormalForm, ...]:
    """Analyses every outer-join block of a tree."""
    keys = tuple(foreign_keys)
    return tuple(_block(root, node, keys) for node in outer_blocks(root))


def padded(node: Node) -> frozenset[str]:
    """The aliases of FROM that some outer join pads with NULL if there is no partner."""
    match node:
        case Join(kind, left, right) if kind in ("semi", "anti") or node.of_subquery:
            return padded(left)
        case Join(kind, left, right):
            sides = {"left": (right,), "full": (left, right)}.get(kind, ())
            below = padded(left) | padded(right)
            return below.union(*(_aliases(side) for side in sides))
        case _:
            return frozenset[str]().union(*map(padded, inputs(node)))


def _aliases(node: Node) -> frozenset[str]:
    """The aliases of FROM, without those of subqueries in conditions."""
    match node:
        case Core(view):
            return frozenset(atom.alias for atom in view.atoms)
        case Join(kind, left, _) if kind in ("semi", "anti") or node.of_subquery:
            return _aliases(left)
        case _:
            return frozenset[str]().union(*map(_aliases, inputs(node)))


def _block(
    root: Node, node: Node, keys: tuple[ForeignKey, ...]
) -> BlockAnalysis | WithoutNormalForm:
    named = block_of(node)
    try:
        form = normal_form(named.block, keys)
    except NoNormalForm as reason:
        return WithoutNormalForm(str(named.block), str(reason))
    exposed = named.exposed if node is root else None
    updates = tuple(_update(named, form, alias, exposed, keys) for alias in form.aliases)
    groups = (each for each in nodes(root) if isinstance(each, Group) and each.input is node)
    counters = next(map(group_counters, groups), None)
    return BlockAnalysis(str(named.block), form, subsumption_graph(form), updates, counters)


def _update(
    named: NamedBlock,
    form: NormalForm,
    alias: str,
    exposed: frozenset[str] | None,
    keys: tuple[ForeignKey, ...],
) -> UpdateAnalysis:
    graph = maintenance_graph(form, alias)
    delta = primary_delta(named.block, alias)
    smaller = simplified(delta, keys)
    return UpdateAnalysis(
        alias,
        graph,
        reduced(graph, form, keys),
        str(left_deep(delta)),
        "" if smaller is None else str(left_deep(smaller)),
        secondary_deltas(form, graph, "insertion", exposed),
        secondary_deltas(form, graph, "deletion", exposed),
    )
