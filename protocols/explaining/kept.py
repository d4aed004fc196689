"""The memories of a view's operators between batches, and their order of size.

A memory is never needed: anything not in it is read as of the cut before the batch, and the page
says how. It has the order of the view if every remembered row is at least one row of the view;
otherwise the order of the relations' contents. Both are limited: to the last `memory.ROOM` rows
met.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from protocols.analysis.wording import listed
from protocols.explaining.asked import Ask
from protocols.explaining.following import MANY, Following, Occasion, WantedKeys
from protocols.explaining.picture import aggregate_text
from protocols.operators.memory import ROOM
from protocols.operators.statements import Read, statement
from protocols.views import tree
from protocols.views.tree import Node, headline

_AFRESH = Following(Occasion(frozenset(), MANY, True, True, remembered=False, nulls=False))


@dataclass(frozen=True)
class OperatorMemory:
    """The memory of one operator."""

    operator: str
    #: None if it cannot go on from a memory, and reads its groups again each time.
    holds: str | None
    of_the_view: bool
    #: The questions that fill it again.
    refilled: tuple[Ask, ...]

    def __str__(self) -> str:
        again = listed(list(dict.fromkeys(map(str, self.refilled))))
        if self.holds is None:
            return (
                f"{self.operator}: nothing, for different values can only be told apart by reading"
                f" them; a group that changes is read again from {again}"
            )
        order = (
            "as many as the view has rows"
            if self.of_the_view
            else f"all of them, shown by the view or not, up to {ROOM:,}"
        )
        return f"{self.operator}: {self.holds}; {order}; read again from {again}"


def memories(root: Node) -> tuple[OperatorMemory, ...]:
    """The memories of the operators of a tree, from the root down."""
    return tuple(_memories(root, True))


def _memories(node: Node, seen: bool) -> Iterator[OperatorMemory]:
    """`seen` says that each row of the node is one row of the view, or several."""
    match node:
        case tree.Group():
            yield _of_group(node, seen)
        case tree.Join():
            for read in statement(node).reads:
                if read.unless_known:
                    yield _of_partners(node, read)
    for place, below in enumerate(tree.inputs(node)):
        yield from _memories(below, seen and _shows_all(node, place))


def _shows_all(node: Node, place: int) -> bool:
    """Whether every row of an input is part of some row of the node."""
    match node:
        case tree.Compute() | tree.Union():
            return True
        case tree.Join(kind):
            return kind == "full" or (kind == "left" and place == 0)
    return False


def _of_group(node: tree.Group, seen: bool) -> OperatorMemory:
    keys = frozenset(node.keys)
    wanted = WantedKeys(keys, frozenset(), MANY) if keys else None
    holds = None
    if statement(node).remembers:
        values = ["the number of its rows"]
        values += [aggregate_text(a) for a in node.aggregates if a.column is not None]
        holds = f"per group {listed(values)}"
    return OperatorMemory(headline(node), holds, seen or not keys, _read_again(node.input, wanted))


def _of_partners(node: tree.Join, read: Read) -> OperatorMemory:
    below = (node.left, node.right)[read.input]
    wanted = WantedKeys(frozenset(read.by), frozenset(), MANY)
    holds = f"per {listed(read.by)} the number of rows"
    return OperatorMemory(headline(node), holds, False, _read_again(below, wanted))


def _read_again(node: Node, wanted: WantedKeys | None) -> tuple[Ask, ...]:
    rounds = _AFRESH.before(node, wanted)
    return tuple(dict.fromkeys(each for round_ in rounds for each in round_))
