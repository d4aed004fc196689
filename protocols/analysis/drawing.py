"""The subsumption and the maintenance graph as drawings: boxes, with lines from top to bottom.

Larger terms stand above smaller ones. In the maintenance graph a box says how its term is affected,
D for directly and I for indirectly, as in the paper; the boxes of the latter are dashed. Here a
drawing becomes text for a terminal and Mermaid for Markdown; `svg` makes a picture of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape

from protocols.analysis.maintenancegraph import MaintenanceGraph
from protocols.analysis.normalform import Term
from protocols.analysis.subsumption import SubsumptionGraph


@dataclass(frozen=True)
class Box:
    """A term, with its mark."""

    label: str
    dashed: bool = False


@dataclass(frozen=True)
class Drawing:
    """Boxes from top to bottom, and the lines between them by their numbers."""

    title: str
    boxes: tuple[Box, ...]
    lines: tuple[tuple[int, int], ...]


def subsumption_drawing(graph: SubsumptionGraph) -> Drawing:
    """Draws each term above those whose rows it can hide."""
    boxes = tuple(Box(_label(term)) for term in graph.terms)
    return Drawing("subsumption", boxes, _lines(graph.terms, graph.edges))


def maintenance_drawing(graph: MaintenanceGraph) -> Drawing:
    """Draws the terms that an update touches, with D or I as the paper marks them."""
    terms = tuple(each.term for each in graph.affected)
    boxes = tuple(
        Box(
            f"{_label(each.term)} · {'D' if each.how == 'directly' else 'I'}",
            each.how != "directly",
        )
        for each in graph.affected
    )
    return Drawing(f"maintenance, update of {graph.updated}", boxes, _lines(terms, graph.edges))


def reduced_drawing(graph: MaintenanceGraph) -> Drawing:
    """Draws the part of the graph that foreign keys leave."""
    title = f"maintenance, insertion or deletion of {graph.updated}, by foreign keys"
    return replace(maintenance_drawing(graph), title=title)


def as_text(drawing: Drawing) -> str:
    """A line per box with the boxes below it, for a terminal."""
    lines = [drawing.title]
    for number, box in enumerate(drawing.boxes):
        below = [drawing.boxes[b].label for a, b in drawing.lines if a == number]
        lines.append(f"  {box.label}" + (f"  →  {', '.join(below)}" if below else ""))
    return "\n".join(lines)


def as_mermaid(drawing: Drawing) -> str:
    """The drawing in Mermaid's language, which Markdown viewers show as a picture."""
    lines = ["graph TD"]
    for number, box in enumerate(drawing.boxes):
        style = ":::indirect" if box.dashed else ""
        lines.append(f'  t{number}["{escape(box.label)}"]{style}')
    lines += [f"  t{a} --> t{b}" for a, b in drawing.lines]
    if any(box.dashed for box in drawing.boxes):
        lines.append("  classDef indirect stroke-dasharray: 4 3")
    return "\n".join(lines) + "\n"


def _label(term: Term) -> str:
    return " ".join(term.aliases)


def _lines(
    terms: Sequence[Term], edges: Sequence[tuple[Term, Term]]
) -> tuple[tuple[int, int], ...]:
    return tuple((terms.index(a), terms.index(b)) for a, b in edges)
