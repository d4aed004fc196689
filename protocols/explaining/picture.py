"""The tree of a view: as text for a terminal, and as a drawing for Mermaid and SVG."""

from collections.abc import Sequence
from dataclasses import dataclass

from protocols.algebra.expressions import Column
from protocols.analysis.drawing import Box, Drawing
from protocols.analysis.wording import condition_text, conditions_text, value_text
from protocols.views import tree
from protocols.views.tree import Aggregate, Node, headline, inputs
from protocols.views.view import Atom, View


@dataclass(frozen=True)
class Branch:
    """One line of the tree, and the branches below it."""

    label: str
    below: tuple["Branch", ...] = ()

    def lines(self) -> list[str]:
        """The tree from this line on."""
        lines = [self.label]
        for number, branch in enumerate(self.below, 1):
            last = number == len(self.below)
            first, *others = branch.lines()
            lines.append(("└─ " if last else "├─ ") + first)
            lines += [("   " if last else "│  ") + line for line in others]
        return lines


def branch(node: Node) -> Branch:
    """A node with everything below it."""
    if isinstance(node, tree.Core):
        return _core(node.view)
    return Branch(label(node), tuple(branch(each) for each in inputs(node)))


def drawing(root: Branch, title: str) -> Drawing:
    """The tree as boxes and lines."""
    boxes: list[Box] = []
    lines: list[tuple[int, int]] = []

    def drawn(branch_: Branch) -> int:
        number = len(boxes)
        boxes.append(Box(branch_.label))
        lines.extend((number, drawn(below)) for below in branch_.below)
        return number

    drawn(root)
    return Drawing(title, tuple(boxes), tuple(sorted(lines)))


def forest(drawings: Sequence[Drawing]) -> Drawing:
    """The first drawing with all others beside it, each of these below its title."""
    first, *others = drawings
    boxes, lines = list(first.boxes), list(first.lines)
    for each in others:
        title = len(boxes)
        boxes += [Box(each.title, dashed=True), *each.boxes]
        below = {b for _, b in each.lines}
        lines += [(title, title + 1 + n) for n in range(len(each.boxes)) if n not in below]
        lines += [(title + 1 + a, title + 1 + b) for a, b in each.lines]
    return Drawing(first.title, tuple(boxes), tuple(lines))


def label(node: Node) -> str:
    """A node in words, close to the SQL that it came from."""
    match node:
        case tree.Compute(_, values):
            shown = ", ".join(
                name
                if isinstance(value, Column) and name in (value.name, value.name.rpartition(".")[2])
                else f"{value_text(value)} AS {name}"
                for name, value, _ in values
            )
            return f"select {shown}"
        case tree.Filter(_, condition):
            return f"where {condition_text(condition)}"
        case tree.Constants(_, rows):
            return f"constants, {len(rows)} row{'s' * (len(rows) != 1)}"
        case tree.Union():
            return "union all"
        case tree.Multiply(_, times):
            return f"each row as often as {times} says"
        case tree.Join():
            tests = node.conditions
            return headline(node) + (f" on {conditions_text(tests)}" if tests else "")
        case tree.Group(_, _, aggregates):
            sums = [f"{aggregate_text(each)} AS {each.name}" for each in aggregates]
            return headline(node) + (f": {', '.join(sums)}" if sums else "")
        case tree.Window():
            return _window(node)
        case tree.Core(view):
            return _core(view).label


def _window(node: tree.Window) -> str:
    keys = [
        f"{key.name}{' DESC' * key.descending}{' NULLS FIRST' * key.nulls_first}"
        for key in node.order
    ]
    ordered = f" by {', '.join(keys)}" if keys else ""
    calls = [f"{e.function.upper()}({e.column or ''}) AS {e.name}" for e in node.functions]
    return f"{headline(node)}{ordered}: {', '.join(calls)}"


def aggregate_text(each: Aggregate) -> str:
    """An aggregate in SQL."""
    distinct = "DISTINCT " if each.distinct else ""
    return f"{each.function.upper()}({distinct}{each.column or '*'})"


def _core(view: View) -> Branch:
    """An inner join with its relations; a single relation is one line."""
    atoms = tuple(map(_atom, view.atoms))
    if len(atoms) == 1:
        return atoms[0]
    return Branch(f"join on {conditions_text((*view.equalities, *view.residuals))}", atoms)


def _atom(atom: Atom) -> Branch:
    test = f" where {condition_text(atom.condition)}" if atom.condition is not None else ""
    alias = "" if atom.alias == atom.relation.name else f" {atom.alias}"
    return Branch(f"{atom.relation}{alias} ({', '.join(atom.columns)}){test}")
