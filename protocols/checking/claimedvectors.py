"""Compares each state with the view at the very vector that it claims.

A state is published with a vector, and its readers use both. So a run whose claimed vectors do not
give its states is refuted, even if other vectors would explain these states:

    the view at the last claimed vector is not the last state          refutes `convergent`
    some other state is not the view at its vector, or the vector
    contains a global transaction in part                              refutes `weak`
    the claimed vectors run back                                       refutes `strong`

Each refutation rules out the stronger levels, too.
"""

from collections.abc import Callable, Iterator

import numpy as np

from protocols.checking.changes import StepChanges
from protocols.checking.contradictions import backwards, claimed_half, other_than_claimed
from protocols.checking.evidence import Evidence
from protocols.checking.levels import CONVERGENT, STRONG, WEAK, Level
from protocols.checking.order import DeliveryOrder, Vectors, is_monotone


def refutations(evidence: Evidence) -> Iterator[tuple[Level, Callable[[], str]]]:
    """The levels that the claimed vectors refute, each with a function that says why.

    Empty if a claim is refused already (`claims.py`): then no vector need be looked at.
    """
    if not evidence.trace.states or any(trouble.refused for trouble in evidence.troubles):
        return
    chain = np.array([evidence.order.row(s.vector) for s in evidence.trace.states], dtype=np.int64)
    wrong = _wrong(evidence, chain)
    last = len(chain) - 1
    if wrong.until(last):
        yield CONVERGENT, lambda: other_than_claimed(evidence, chain, wrong, last)
    if len(wrong.rows):
        first = int(wrong.steps.min())
        yield WEAK, lambda: other_than_claimed(evidence, chain, wrong, first)
    half = _first_half(evidence.order, chain)
    if half is not None:
        yield WEAK, lambda: claimed_half(evidence, chain, *half)
    if not is_monotone(chain):
        back = int(np.flatnonzero((np.diff(chain, axis=0) < 0).any(axis=1))[0]) + 1
        yield STRONG, lambda: backwards(evidence, chain, back)


def _wrong(evidence: Evidence, chain: Vectors) -> StepChanges:
    """By state: the rows too many or too few, against the claimed vectors."""
    places = np.minimum(evidence.positions, evidence.last)
    if (chain == evidence.order.prefixes[places]).all() and (np.diff(places) > 0).all():
        kept = evidence.wrong.steps < len(chain)
        known = evidence.wrong
        return StepChanges(known.rows[kept], known.steps[kept], known.counts[kept])
    if is_monotone(chain):
        return evidence.shown.minus(evidence.history.along(chain))
    whole = evidence.history.at(chain)
    kept = whole.steps < len(chain) - 1
    before = StepChanges(whole.rows[kept], whole.steps[kept] + 1, whole.counts[kept])
    return evidence.shown.minus(whole.minus(before))


def _first_half(order: DeliveryOrder, chain: Vectors) -> tuple[int, str] | None:
    """The first state whose vector contains a global transaction in part, and its name."""
    halves = []
    for name, parts in order.globals.items():
        has = np.stack([chain[:, source] >= version for source, version in parts])
        split = np.flatnonzero(has.any(axis=0) & ~has.all(axis=0))
        halves += [(int(split[0]), name)] if len(split) else []
    return min(halves, default=None)
