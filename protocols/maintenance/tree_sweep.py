"""Views that are more than an inner join: the batched sweep below, operators above.

Complete in delivery order. The batched sweep computes the changes of the inner joins at the leaves
of the view's tree. Every operator above them computes its own change from those of its inputs, for
all positions of the batch; the state before the batch that it needs is read as of that cut
(operators/operator.py). Nothing depends on the number of positions in a batch, so the same code
keeps one update at a time, and runs the control that believes every answer.
"""

from collections.abc import Callable
from random import Random
from typing import TypeAlias

import polars as pl

from protocols.algebra.delta import POSITION
from protocols.algebra.frame import Frame
from protocols.exchange.asof import Reading, as_answered, asof
from protocols.exchange.mailbox import Mailbox
from protocols.exchange.protocol import Install, Work
from protocols.exchange.questions import Maintenance
from protocols.maintenance.batched_sweep import BatchedSweep
from protocols.maintenance.sweep import Sweep
from protocols.operators.build import build
from protocols.operators.cores import Changing, CoreOperator
from protocols.operators.keys import ALL
from protocols.operators.memory import Memories
from protocols.operators.operator import Operator, Span
from protocols.operators.validating import validated
from protocols.views.tree import TreeView
from protocols.views.view import View

#: Computes the changes of inner joins: (view, mailbox) → work on a batch.
Leaves: TypeAlias = Callable[[View, Mailbox[Frame]], Changing]


class TreeSweep:
    """The protocol over one view and one mailbox."""

    #: One piece of work at a time.
    width = 1

    def __init__(
        self,
        view: TreeView,
        mailbox: Mailbox[Frame],
        at_most: int | None = None,
        leaves: Leaves | None = None,
        read: Reading[Frame] = asof,
        memories: Memories | None = None,
        allows_too_few: bool = False,
    ) -> None:
        """`memories` hold what operators remember of the state that the mailbox begins with."""
        self._mailbox = mailbox
        self._at_most = at_most
        self._root = tree_at_work(view, mailbox, leaves, read, memories, allows_too_few)
        self._begun = mailbox.start

    def begin(self) -> Work[Frame] | None:
        """The next batch: everything that was delivered meanwhile, at most `at_most` positions."""
        first, last = self._begun + 1, self._mailbox.last_position
        if first > last:
            return None
        if self._at_most is not None:
            last = min(last, self._begun + self._at_most)
        self._begun = last
        return self._batch(Span(first, last))

    def _batch(self, span: Span) -> Work[Frame]:
        change = yield from self._root.change(span)
        self._root.settle()
        return [Install(span.last, None if change.is_empty() else Frame(change), first=span.first)]


def batched(view: TreeView, mailbox: Mailbox[Frame], memories: Memories) -> TreeSweep:
    """The protocol that sweeps everything delivered meanwhile as one batch."""
    return TreeSweep(view, mailbox, memories=memories)


def one_by_one(view: TreeView, mailbox: Mailbox[Frame], memories: Memories) -> TreeSweep:
    """The protocol that sweeps each update by itself."""
    return TreeSweep(view, mailbox, at_most=1, memories=memories)


def believing(view: TreeView, mailbox: Mailbox[Frame], _memories: Memories) -> TreeSweep:
    """The control: each update by itself, every answer treated as the state that was wanted.

    It does not use what operators remember of the first state, which was read correctly: if that
    were all they need, there would be no answers to believe. And where it believes that rows were
    deleted that were not there, it has to continue.
    """
    return TreeSweep(view, mailbox, 1, _naive_leaves, as_answered, allows_too_few=True)


def contents(
    view: TreeView,
    mailbox: Mailbox[Frame],
    cut: int,
    read: Reading[Frame] = asof,
    memories: Memories | None = None,
) -> Maintenance[Frame, Frame]:
    """All rows of the view as of a cut, read from the sources; memories then know that state."""
    root = tree_at_work(view, mailbox, None, read, memories)
    rows = yield from root.before(Span(cut + 1, cut), ALL)
    root.settle()
    return Frame(rows)


def validate(
    view: TreeView,
    mailbox: Mailbox[Frame],
    memories: Memories,
    position: int,
    sample: Random | None = None,
) -> Maintenance[Frame, int]:
    """Reads again what the operators of a view remember (see operators/validating.py).

    `position` is the last one that was installed; operators must be settled up to it and no
    further. Without a `sample` everything is read.
    """

    def core(node: View) -> CoreOperator:
        return CoreOperator(node, mailbox, _batched_leaves(node, mailbox), asof)

    compared = yield from validated(view.root, core, memories, position, sample)
    return compared


def tree_at_work(
    view: TreeView,
    mailbox: Mailbox[Frame],
    leaves: Leaves | None,
    read: Reading[Frame],
    memories: Memories | None = None,
    allows_too_few: bool = False,
) -> Operator:
    """The operators of a view over the updates that its mailbox receives."""
    changing = leaves or _batched_leaves

    def core(node: View) -> CoreOperator:
        return CoreOperator(node, mailbox, changing(node, mailbox), read)

    return build(view.root, core, memories, allows_too_few)


def _batched_leaves(view: View, mailbox: Mailbox[Frame]) -> Changing:
    return BatchedSweep(view, mailbox).change


def _naive_leaves(view: View, mailbox: Mailbox[Frame]) -> Changing:
    sweep = Sweep(view, mailbox, as_answered)

    def change(first: int, last: int) -> Maintenance[Frame, Frame | None]:
        assert first == last, "the control takes one update at a time"
        install = yield from sweep.update(first)
        if install.change is None:
            return None
        rows = install.change.data
        return Frame(rows.with_columns(pl.lit(first, pl.Int64).alias(POSITION)))

    return change
