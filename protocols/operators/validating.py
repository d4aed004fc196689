"""Checks that memories agree with the sources.

A memory is never needed, so a wrong one breaks nothing at once; the view is wrong only updates
later. So memories are read again here, as of the position of which they are true, by operators that
remember nothing; and every group has to be the same, column by column. This asks questions like any
other work, and its driver answers them: a simulator from the versions that its sources remember,
which costs no event, and a job now and then, for a sample.
"""

from collections.abc import Callable, Iterator
from random import Random

import polars as pl

from protocols.algebra.frame import Frame, picked
from protocols.errors import ProtocolBug
from protocols.exchange.questions import Maintenance
from protocols.operators.build import build
from protocols.operators.groups import GroupOperator
from protocols.operators.joins import JoinOperator
from protocols.operators.keys import ALL, These, agreeing
from protocols.operators.memory import Memories, Memory
from protocols.operators.operator import Operator, Span
from protocols.operators.placed import without
from protocols.views import tree
from protocols.views.view import View

#: The number of groups in the sample of each memory.
SAMPLED = 20


def validated(
    root: tree.Node,
    core: Callable[[View], Operator],
    memories: Memories,
    position: int,
    sample: Random | None = None,
) -> Maintenance[Frame, int]:
    """Compares remembered groups with the sources and counts them; ProtocolBug if one differs.

    `position` is the last one of the batch that the operators have settled. `core` makes leaves
    that read as of the position before a batch. Without a `sample` all groups are read, and if all
    others are known to be empty, all rows.
    """
    compared = 0
    for node, side, memory in _memories(root, memories):
        keys = memory.everything() if sample is None else memory.sample(SAMPLED, sample)
        span, operator = Span(position + 1, position), build(node, core)
        assert isinstance(operator, GroupOperator | JoinOperator)
        if isinstance(keys, These):
            read = yield from operator.to_remember(side, span, keys)
            known, _ = memory.find(keys.rows)
            assert known is not None
            wrong = without(known, read, known.columns).head(1)
            if not wrong.is_empty():
                again = agreeing(read, These(picked(wrong, keys.rows.columns)))
                raise _differs(node, position, _text(wrong), _text(again))
            compared += known.height
        if sample is None and memory.knows_all:
            read = yield from operator.to_remember(side, span, ALL)
            others = read
            if isinstance(keys, These):
                others = without(read, keys.rows, keys.rows.columns)
            if not others.is_empty():
                raise _differs(node, position, "no such group", _text(others.head(1)))
    return compared


def _memories(root: tree.Node, memories: Memories) -> Iterator[tuple[tree.Node, int, Memory]]:
    for place, node in enumerate(tree.nodes(root)):
        for side, memory in memories.at(place):
            yield node, side, memory


def _differs(node: tree.Node, position: int, remembered: str, read: str) -> ProtocolBug:
    relations = ", ".join(map(str, tree.relations(node)))
    return ProtocolBug(
        f"{tree.headline(node)} over {relations} remembers {remembered} at position {position};"
        f" as of then the sources say {read}"
    )


def _text(row: pl.DataFrame) -> str:
    values = row.row(0, named=True).items() if row.height else ()
    text = ", ".join(f"{name} = {'NULL' if value is None else value}" for name, value in values)
    return f"({text})" if text else "nothing"
