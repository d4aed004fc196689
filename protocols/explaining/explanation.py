"""Everything that is known of one view before it is kept."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from protocols.analysis.drawing import (
    Drawing,
    maintenance_drawing,
    reduced_drawing,
    subsumption_drawing,
)
from protocols.analysis.keys import ViewKeys, keys_of
from protocols.analysis.outerjoins import (
    BlockAnalysis,
    UpdateAnalysis,
    WithoutNormalForm,
    outer_joins,
    padded,
)
from protocols.analysis.safety import SelectAnalysis, analysed
from protocols.analysis.wording import as_json
from protocols.errors import ViewRefused
from protocols.explaining.advice import Indexes, advice
from protocols.explaining.asked import Rounds
from protocols.explaining.costs import Costs, QuestionCost, costs_of, root_of
from protocols.explaining.kept import OperatorMemory, memories
from protocols.explaining.picture import Branch, branch, drawing, forest
from protocols.maintenance.registry import PROTOCOLS, Entry
from protocols.views import tree
from protocols.views.catalog import Catalog, ForeignKey
from protocols.views.dialects import Dialect
from protocols.views.sql import as_written, parse_view
from protocols.views.tree import AnyView, TreeView


@dataclass(frozen=True)
class Explanation:
    """One view, explained."""

    view: AnyView
    picture: Branch
    #: Its parts, in words.
    made_of: str
    protocols: tuple[Entry, ...]
    costs: Costs
    memories: tuple[OperatorMemory, ...]
    outer_joins: tuple[BlockAnalysis | WithoutNormalForm, ...]
    #: The foreign keys between relations of the view, across sources too.
    foreign_keys: tuple[ForeignKey, ...]
    #: The aliases that the text pads with NULL, but whose padding is never seen.
    never_padded: tuple[str, ...]
    keys: ViewKeys
    #: A text gives the reason why the criteria of safe references do not cover the view.
    safety: tuple[SelectAnalysis, ...] | str
    advice: tuple[str, ...]

    @property
    def drawing(self) -> Drawing:
        """The tree, and beside it the graphs of its outer joins."""
        graphs = [
            graph
            for joins in self.outer_joins
            if isinstance(joins, BlockAnalysis)
            for graph in (
                subsumption_drawing(joins.subsumption),
                *(graph for update in joins.updates for graph in _drawings(update)),
            )
        ]
        return forest([drawing(self.picture, self.view.name), *graphs])

    def to_json(self) -> dict[str, Any]:
        """The JSON form, for programs."""
        view = self.view
        return {
            "view": view.name,
            "sql": view.sql,
            "columns": {name: type_.name for name, type_ in view.schema.items()},
            "made_of": self.made_of,
            "tree": _tree_json(self.picture),
            "protocols": {entry.name: entry.level.name for entry in self.protocols},
            "updates": {
                str(each.relation): {
                    **{kind: _cost_json(cost) for kind, cost in each.kinds.items()},
                    "need nothing": list(each.spared),
                }
                for each in self.costs.relations
            },
            "batch": _cost_json(self.costs.batch),
            "memories": as_json(self.memories),
            "outer_joins": [as_json(each) for each in self.outer_joins],
            "foreign_keys": [
                {**as_json(each), "within_source": each.within_source} for each in self.foreign_keys
            ],
            "never_padded": list(self.never_padded),
            "keys": as_json(self.keys),
            "safety": as_json(self.safety),
            "advice": list(self.advice),
        }


def explain(
    name: str,
    sql: str,
    catalog: Catalog,
    indexed: Indexes | None = None,
    dialect: Dialect | None = None,
) -> Explanation:
    """Explains a view; ViewRefused says why it cannot be kept. `indexed` comes from the sources."""
    view = parse_view(name, sql, catalog, dialect)
    root, costs, keys = root_of(view), costs_of(view), keys_of(view)
    return Explanation(
        view,
        _picture(view),
        _made_of(view),
        tuple(e for e in PROTOCOLS.values() if e.keeps(view) and not e.control),
        costs,
        memories(root),
        outer_joins(root, catalog.foreign_keys),
        tuple(k for k in catalog.foreign_keys if {k.child, k.parent} <= set(view.relations)),
        tuple(sorted(padded(as_written(sql, catalog, dialect)) - padded(root))),
        keys,
        _safety(sql, catalog, dialect),
        advice(root, costs, keys, indexed or {}),
    )


def _drawings(update: UpdateAnalysis) -> Iterator[Drawing]:
    yield maintenance_drawing(update.graph)
    if update.spared:
        yield reduced_drawing(update.reduced)


def _picture(view: AnyView) -> Branch:
    below = branch(root_of(view))
    if isinstance(view, TreeView):
        return below
    shown = ", ".join(
        o.name if o.column.rpartition(".")[2] == o.name else f"{o.column} AS {o.name}"
        for o in view.outputs
    )
    return Branch(f"select {shown}", (below,))


def _made_of(view: AnyView) -> str:
    """The operators by kind and number."""
    counts: dict[str, int] = {}
    for node in tree.nodes(root_of(view)):
        if (word := _word(node)) is not None:
            counts[word] = counts.get(word, 0) + 1
    parts = [f"{n} {word}{'s' if n > 1 else ''}" for word, n in counts.items()]
    return ", ".join(parts) or "a selection"


def _word(node: tree.Node) -> str | None:
    match node:
        case tree.Core(view):
            return f"inner join of {len(view.atoms)}" if len(view.atoms) > 1 else None
        case tree.Join(kind):
            words = {"semi": "existence test", "anti": "non-existence test"}
            return words.get(kind, f"{kind} join")
        case tree.Group(_, _, aggregates):
            return "group" if aggregates else "DISTINCT"
        case tree.Window():
            return "window"
        case tree.Union():
            return "union"
        case _:
            return None


def _safety(
    sql: str, catalog: Catalog, dialect: Dialect | None
) -> tuple[SelectAnalysis, ...] | str:
    try:
        return analysed(sql, catalog, dialect)
    except ViewRefused as error:
        return error.reason


def _tree_json(picture: Branch) -> dict[str, Any]:
    form: dict[str, Any] = {"label": picture.label}
    if picture.below:
        form["below"] = [_tree_json(each) for each in picture.below]
    return form


def _cost_json(cost: QuestionCost) -> dict[str, Any]:
    return {
        "first": _rounds_json(cost.first),
        "remembered": _rounds_json(cost.remembered),
        "most": {"first": cost.most[0], "remembered": cost.most[1]},
    }


def _rounds_json(rounds: Rounds) -> list[list[str]]:
    return [[str(each) for each in round_] for round_ in rounds]
