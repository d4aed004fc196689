"""The checker: finds how consistent a run was, and if not enough, why not.

`check` goes from the cheapest evidence to the most expensive:

1. the claims themselves (`claims`);
2. complete in delivery order, which is exact at any size: all states against V@k, in one join;
3. a witness: the delivered prefixes at the states' positions, or the vectors that the run claims,
   prove `strong`, and steps of one transaction prove `complete`;
4. for levels that are still open, the search over all vectors (`lattice`), if the trace is small
   enough; else the answer is `unknown`, and says what would decide it;
5. the vectors that the states claim (`claimedvectors`): they have to give the states, whatever
   other vectors would. Only the weaker question of `--any-vectors` leaves this out.

Each level gets its own answer, holds / fails / unknown; a level that holds implies the weaker ones,
one that fails rules out the stronger ones. The verdict is the answer to the level asked for, and
`invalid` comes with a contradiction in words, after Elle [Kingsbury, Alvaro, VLDB 2020].
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal

import numpy as np

from protocols.checking.claimedvectors import refutations
from protocols.checking.contradictions import (
    below_none,
    no_vector,
    sentence,
    wrong_end,
    wrong_state,
)
from protocols.checking.evidence import Evidence
from protocols.checking.history import VersionHistory
from protocols.checking.lattice import Budget, BudgetError, Found, Lattice
from protocols.checking.levels import (
    COMPLETE,
    CONVERGENT,
    DELIVERY,
    LEVELS,
    STRONG,
    WEAK,
    Level,
)
from protocols.checking.order import Vectors, first_half, is_monotone, order_of
from protocols.checking.trace import Trace
from protocols.checking.verdict import Answer, Verdict, counts_of

_MANY = 20


def check(
    trace: Trace, asked: Level, budget: Budget | None = None, any_vectors: bool = False
) -> Verdict:
    """Judges a trace at a level; with `any_vectors`, states need not be right at their own ones."""
    order = order_of(trace)
    with VersionHistory(trace, order) as history:
        evidence, answers = Evidence(trace, order, history), _Answers()
        _judge(evidence, answers, budget or Budget())
        if not any_vectors and answers.known[DELIVERY.name] != "holds":
            for level, story in refutations(evidence):
                answers.refutes(level, story)
        return _verdict(evidence, answers, asked)


class _Answers:
    """The answers for the levels so far, with their proof or refutation."""

    def __init__(self) -> None:
        self.known: dict[str, Answer] = {}
        #: For each level that fails, a function that writes the contradiction.
        self.stories: dict[str, Callable[[], str]] = {}
        self.witness: Vectors | None = None
        self.undecided: str | None = None

    def open(self) -> bool:
        """Whether some level is neither proved nor refuted."""
        return any(level.name not in self.known for level in LEVELS)

    def holds(self, level: Level, witness: Vectors | None = None) -> None:
        """Records that a level holds, and so do the weaker ones."""
        for weaker in LEVELS[: LEVELS.index(level) + 1]:
            self.known.setdefault(weaker.name, "holds")
        self.witness = witness if witness is not None else self.witness

    def fails(self, level: Level, story: Callable[[], str]) -> None:
        """Records that a level fails, and so do the stronger ones."""
        for stronger in LEVELS[LEVELS.index(level) :]:
            if stronger.name not in self.known:
                self.known[stronger.name] = "fails"
                self.stories[stronger.name] = story

    def refutes(self, level: Level, story: Callable[[], str]) -> None:
        """Records that the claimed vectors rule out a level, and so the stronger ones."""
        for stronger in LEVELS[LEVELS.index(level) :]:
            if self.known.get(stronger.name) != "fails":
                explained = self.known.get(stronger.name) == "holds"
                self.stories[stronger.name] = partial(_refuted, story, explained)
                self.known[stronger.name] = "fails"


def _refuted(story: Callable[[], str], explained: bool) -> str:
    """The contradiction, and whether the states would be right at other vectors."""
    words = "Other vectors would explain the states; --any-vectors accepts these."
    return f"{story()} {words}" if explained else story()


def _judge(evidence: Evidence, answers: _Answers, budget: Budget) -> None:
    """Answers every level, cheapest evidence first."""
    _delivery(evidence, answers)
    if not answers.open():
        return
    _convergent(evidence, answers)
    _negative(evidence, answers)
    if answers.open():
        _by_prefixes(evidence, answers)
    if "strong" not in answers.known:
        _by_claims(evidence, answers)
    if answers.open():
        _by_search(evidence, answers, budget)


def _delivery(evidence: Evidence, answers: _Answers) -> None:
    states = len(evidence.positions)
    if not evidence.troubles and not len(evidence.wrong.rows):
        answers.holds(DELIVERY, evidence.order.prefixes[evidence.positions])
        return
    first = int(evidence.wrong.steps.min(initial=states))
    at = int(evidence.positions[first]) if first < states else evidence.order.last + 1
    if evidence.troubles and evidence.troubles[0].position <= at:
        answers.fails(DELIVERY, lambda: sentence(evidence.troubles[0]))
    elif first < states:
        answers.fails(DELIVERY, lambda: wrong_state(evidence, first))
    else:
        answers.fails(DELIVERY, lambda: wrong_end(evidence))


def _convergent(evidence: Evidence, answers: _Answers) -> None:
    if not len(evidence.positions) or evidence.wrong.until(len(evidence.positions)):
        answers.fails(CONVERGENT, lambda: wrong_end(evidence))
    else:
        answers.holds(CONVERGENT)


def _negative(evidence: Evidence, answers: _Answers) -> None:
    """Refutes states with a row count below zero, which no view has."""
    order = np.lexsort((evidence.shown.steps, evidence.shown.rows))
    rows, counts = evidence.shown.rows[order], evidence.shown.counts[order]
    running = np.cumsum(counts)
    starts = np.searchsorted(rows, rows, side="left")
    held = running - running[starts] + counts[starts]
    below = np.flatnonzero(held < 0)
    if len(below):
        worst = below[np.argmin(evidence.shown.steps[order][below])]
        state, row, count = (int(of[worst]) for of in (evidence.shown.steps[order], rows, held))
        answers.fails(WEAK, lambda: below_none(evidence, state, row, count))


def _by_prefixes(evidence: Evidence, answers: _Answers) -> None:
    """Tries the delivered prefixes at the states' positions as a witness."""
    reached = np.maximum.accumulate(np.minimum(evidence.positions, evidence.last))
    if not len(evidence.wrong.rows):
        _by_chain(evidence, answers, evidence.order.prefixes[reached])


def _by_claims(evidence: Evidence, answers: _Answers) -> None:
    """Tries the vectors that the states claim as a witness."""
    chain = np.array([evidence.order.row(s.vector) for s in evidence.trace.states], dtype=np.int64)
    if (chain > evidence.order.prefixes[evidence.last]).any() or not is_monotone(chain):
        return
    if not len(evidence.shown.minus(evidence.history.along(chain)).rows):
        _by_chain(evidence, answers, chain)


def _by_chain(evidence: Evidence, answers: _Answers, chain: Vectors) -> None:
    """Records the levels that a chain proves along which the view equals the states."""
    if (chain[0] != evidence.order.prefixes[0]).any() or first_half(evidence.order, chain):
        return
    answers.holds(STRONG, chain)
    if _leaves_none_out(evidence, chain):
        answers.holds(COMPLETE, chain)


def _leaves_none_out(evidence: Evidence, chain: Vectors) -> bool:
    """Is a chain a schedule, or are all values between its vectors equal to a neighbour?"""
    ends = (chain[-1] == evidence.order.prefixes[evidence.last]).all()
    if ends and (np.diff(chain, axis=0).sum(axis=1) == 1).all():
        return True
    prefixes = evidence.order.prefixes[np.minimum(evidence.positions, evidence.last)]
    if (chain != prefixes).any() or first_half(evidence.order, evidence.order.prefixes):
        return False
    changed = evidence.including[np.unique(evidence.expected.steps)]
    return len(np.unique(changed)) == len(changed)


def _by_search(evidence: Evidence, answers: _Answers, budget: Budget) -> None:
    states = len(evidence.positions)
    top = evidence.order.prefixes[evidence.last]
    try:
        lattice = Lattice(evidence.history, evidence.order, evidence.shown, states, top, budget)
        for level, search in (
            (WEAK, lattice.weak),
            (STRONG, lattice.strong),
            (COMPLETE, lattice.complete),
        ):
            if level.name not in answers.known:
                _searched(evidence, answers, level, search(states), lattice)
    except BudgetError as spent:
        answers.undecided = str(spent)


def _searched(
    evidence: Evidence, answers: _Answers, level: Level, found: Found, lattice: Lattice
) -> None:
    if not found.holds:
        answers.fails(level, lambda: no_vector(evidence, level, found, lattice))
        return
    answers.holds(level)
    if len(found.vectors) == len(evidence.positions):
        chain = np.tile(evidence.order.prefixes[0], (len(found.vectors), 1))
        chain[:, lattice.axes] = np.array(found.vectors)
        answers.witness = chain


def _verdict(evidence: Evidence, answers: _Answers, asked: Level) -> Verdict:
    known: dict[str, Answer] = {
        level.name: answers.known.get(level.name, "unknown") for level in LEVELS
    }
    # Trouble that only delivery order forbids is not a finding at a weaker level.
    listed = [trouble for trouble in evidence.troubles if trouble.refused or asked is DELIVERY]
    refused = next((trouble for trouble in evidence.troubles if trouble.refused), None)
    answer = known[asked.name]
    outcome: Literal["valid", "invalid", "unknown"] = (
        "valid" if answer == "holds" else "unknown" if answer == "unknown" else "invalid"
    )
    contradiction = answers.stories[asked.name]() if answer == "fails" else None
    if refused and outcome != "invalid":
        outcome, contradiction = "invalid", sentence(refused)
    holding = [level for level in LEVELS if known[level.name] == "holds"]
    return Verdict(
        outcome,
        asked,
        holding[-1] if holding else None,
        known,
        contradiction,
        _witnessed(evidence, answers) if outcome == "valid" else (),
        answers.undecided if "unknown" in known.values() else None,
        tuple(sentence(trouble) for trouble in listed[:_MANY]),
        (*evidence.trace.remarks, *_remarks(evidence, len(listed))),
        counts_of(evidence.trace, evidence.order),
    )


def _witnessed(evidence: Evidence, answers: _Answers) -> tuple[tuple[int, Mapping[str, int]], ...]:
    if answers.witness is None:
        return ()
    pairs = zip(evidence.positions.tolist(), answers.witness, strict=True)
    return tuple((position, evidence.order.vector(vector)) for position, vector in pairs)


def _remarks(evidence: Evidence, findings: int) -> list[str]:
    remarks = []
    if evidence.last < evidence.order.last:
        remarks.append(
            f"positions {evidence.last + 1} to {evidence.order.last} were delivered, but the trace "
            "stops before their states: they are not judged"
        )
    if findings > _MANY:
        remarks.append(f"{findings - _MANY} more findings are not listed")
    return remarks
