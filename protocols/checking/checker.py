"""The checker: how consistent was a run, and if not enough, why not.

`check` goes from the cheapest evidence to the dearest:

1. the claims themselves (`claims`);
2. complete in delivery order, which is exact at any size: all states against V@k, in one join;
3. a witness: the delivered prefixes at the states' positions, or the vectors that the run claims,
   prove `strong`, and steps of one transaction prove `complete`;
4. for what is still open, the search over all vectors (`lattice`), if the trace is small enough;
   else the answer is `unknown`, and says what would decide it.

Each level is answered for itself, holds / fails / unknown; a level that holds implies the weaker
ones, one that fails denies the stronger ones. The verdict is the answer to the level asked for, and
`invalid` comes with a contradiction in words, after Elle [Kingsbury, Alvaro, VLDB 2020].
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from protocols.checking.changes import Changes
from protocols.checking.claims import Trouble, troubles
from protocols.checking.explanation import Scene, described, half_shown, updates_at
from protocols.checking.history import History
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
from protocols.checking.nearest import nearest_step
from protocols.checking.order import Order, Vectors, first_half, is_monotone, order_of
from protocols.checking.trace import Trace, shown_row

Answer = Literal["holds", "fails", "unknown"]
_MANY = 20


@dataclass(frozen=True)
class Counts:
    """What a run did; `compensated` answers held more than was asked for: real concurrency."""

    updates: int
    undelivered: int
    positions: int
    states: int
    queries: int
    #: Questions that an empty partial change made needless, as far as the trace says so.
    skipped: int
    queries_per_update: float
    answers: int
    compensated: int


@dataclass(frozen=True)
class Verdict:
    """The answer; `witness` has (position, vector) per state if the level asked for holds."""

    verdict: Literal["valid", "invalid", "unknown"]
    asked: Level
    reached: Level | None
    answers: Mapping[str, Answer]
    contradiction: str | None
    witness: tuple[tuple[int, Mapping[str, int]], ...]
    undecided: str | None
    findings: tuple[str, ...]
    remarks: tuple[str, ...]
    counts: Counts

    def to_json(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict,
            "asked": self.asked.name,
            "reached": self.reached.name if self.reached else None,
            "levels": dict(self.answers),
            "contradiction": self.contradiction,
            "witness": [{"position": p, "vector": dict(v)} for p, v in self.witness],
            "undecided": self.undecided,
            "findings": list(self.findings),
            "remarks": list(self.remarks),
            "counts": asdict(self.counts),
        }


def check(trace: Trace, asked: Level, budget: Budget | None = None) -> Verdict:
    """Judges a trace at a level."""
    order = order_of(trace)
    with History(trace, order) as history:
        case = _Case(trace, order, history, budget or Budget())
        case.judge()
        return case.verdict(asked)


class _Case:
    """The evidence for and against one trace."""

    def __init__(self, trace: Trace, order: Order, history: History, budget: Budget) -> None:
        self.trace = trace
        self.order = order
        self.history = history
        self.budget = budget
        self.positions = np.array([state.position for state in trace.states], dtype=np.int64)
        # The last position that is judged: all of them, or in a trace without end the last shown.
        self.last = order.last
        if trace.end is None and len(self.positions):
            self.last = int(min(order.last, self.positions.max()))
        self.troubles = troubles(trace, order, self.last)
        # Per level: the answer so far, and a function that writes the contradiction if it fails.
        self.answers: dict[str, Answer] = {}
        self.stories: dict[str, Callable[[], str]] = {}
        self.witness: Vectors | None = None
        self.undecided: str | None = None
        # What the view should do by position; what the states show by their own number.
        self.expected = history.along(order.prefixes[: self.last + 1])
        self.shown = history.view.shown(trace.states)
        # Which state first includes a position; len(states) if none does.
        running = np.maximum.accumulate(np.minimum(self.positions, self.last))
        self.including = np.searchsorted(running, np.arange(self.last + 1), side="left")
        # By state: what is too much or too little, against the delivered prefixes.
        self.wrong = self.shown.minus(self.expected.at(self.including))

    def judge(self) -> None:
        """Answers every level, cheapest evidence first."""
        self._delivery()
        if not self._open():
            return
        self._convergent()
        self._negative()
        if self._open():
            self._by_prefixes()
        if "strong" not in self.answers:
            self._by_claims()
        if self._open():
            self._by_search()

    # The evidence

    def _delivery(self) -> None:
        states = len(self.positions)
        if not self.troubles and not len(self.wrong.rows):
            self._holds(DELIVERY, self.order.prefixes[self.positions])
            return
        first = int(self.wrong.steps.min(initial=states))
        at = int(self.positions[first]) if first < states else self.order.last + 1
        if self.troubles and self.troubles[0].position <= at:
            self._fails(DELIVERY, lambda: _sentence(self.troubles[0]))
        elif first < states:
            self._fails(DELIVERY, lambda: self._wrong_state(first))
        else:
            self._fails(DELIVERY, self._wrong_end)

    def _convergent(self) -> None:
        if not len(self.positions) or self.wrong.until(len(self.positions)):
            self._fails(CONVERGENT, self._wrong_end)
        else:
            self._holds(CONVERGENT)

    def _negative(self) -> None:
        """A state with less than none of a row is no state of any view."""
        order = np.lexsort((self.shown.steps, self.shown.rows))
        rows, counts = self.shown.rows[order], self.shown.counts[order]
        running = np.cumsum(counts)
        starts = np.searchsorted(rows, rows, side="left")
        held = running - running[starts] + counts[starts]
        below = np.flatnonzero(held < 0)
        if len(below):
            worst = below[np.argmin(self.shown.steps[order][below])]
            state, row, count = (int(of[worst]) for of in (self.shown.steps[order], rows, held))
            self._fails(WEAK, lambda: self._below_none(state, row, count))

    def _by_prefixes(self) -> None:
        """The delivered prefixes at the states' positions, as a witness."""
        chain = self.order.prefixes[np.maximum.accumulate(np.minimum(self.positions, self.last))]
        if not len(self.wrong.rows):
            self._by_chain(chain)

    def _by_claims(self) -> None:
        """The vectors that the states claim, as a witness."""
        chain = np.array([self.order.row(s.vector) for s in self.trace.states], dtype=np.int64)
        if (chain > self.order.prefixes[self.last]).any() or not is_monotone(chain):
            return
        if not len(self.shown.minus(self.history.along(chain)).rows):
            self._by_chain(chain)

    def _by_chain(self, chain: Vectors) -> None:
        """What a chain proves along which the view is what the states show."""
        if (chain[0] != self.order.prefixes[0]).any() or first_half(self.order, chain):
            return
        self._holds(STRONG, chain)
        if self._leaves_none_out(chain):
            self._holds(COMPLETE, chain)

    def _leaves_none_out(self, chain: Vectors) -> bool:
        """Is a chain a schedule, or are all values between its vectors equal to a neighbour?"""
        ends = (chain[-1] == self.order.prefixes[self.last]).all()
        if ends and (np.diff(chain, axis=0).sum(axis=1) == 1).all():
            return True
        prefixes = self.order.prefixes[np.minimum(self.positions, self.last)]
        if (chain != prefixes).any() or first_half(self.order, self.order.prefixes):
            return False
        changed = self.including[np.unique(self.expected.steps)]
        return len(np.unique(changed)) == len(changed)

    def _by_search(self) -> None:
        states = len(self.positions)
        top = self.order.prefixes[self.last]
        try:
            lattice = Lattice(self.history, self.order, self.shown, states, top, self.budget)
            for level, search in (
                (WEAK, lattice.weak),
                (STRONG, lattice.strong),
                (COMPLETE, lattice.complete),
            ):
                if level.name not in self.answers:
                    self._searched(level, search(states), lattice)
        except BudgetError as spent:
            self.undecided = str(spent)

    def _searched(self, level: Level, found: Found, lattice: Lattice) -> None:
        if not found.holds:
            self._fails(level, lambda: self._no_vector(level, found, lattice))
            return
        self._holds(level)
        if len(found.vectors) == len(self.positions):
            chain = np.tile(self.order.prefixes[0], (len(found.vectors), 1))
            chain[:, lattice.axes] = np.array(found.vectors)
            self.witness = chain

    # Bookkeeping

    def _open(self) -> bool:
        return any(level.name not in self.answers for level in LEVELS)

    def _holds(self, level: Level, witness: Vectors | None = None) -> None:
        for weaker in LEVELS[: LEVELS.index(level) + 1]:
            self.answers.setdefault(weaker.name, "holds")
        self.witness = witness if witness is not None else self.witness

    def _fails(self, level: Level, story: Callable[[], str]) -> None:
        for stronger in LEVELS[LEVELS.index(level) :]:
            if stronger.name not in self.answers:
                self.answers[stronger.name] = "fails"
                self.stories[stronger.name] = story

    def verdict(self, asked: Level) -> Verdict:
        answers: dict[str, Answer] = {
            level.name: self.answers.get(level.name, "unknown") for level in LEVELS
        }
        # What only delivery order forbids is no finding at a weaker level.
        listed = [trouble for trouble in self.troubles if trouble.refused or asked is DELIVERY]
        refused = next((trouble for trouble in self.troubles if trouble.refused), None)
        answer = answers[asked.name]
        outcome: Literal["valid", "invalid", "unknown"] = (
            "valid" if answer == "holds" else "unknown" if answer == "unknown" else "invalid"
        )
        contradiction = self.stories[asked.name]() if answer == "fails" else None
        if refused and outcome != "invalid":
            outcome, contradiction = "invalid", _sentence(refused)
        holding = [level for level in LEVELS if answers[level.name] == "holds"]
        return Verdict(
            outcome,
            asked,
            holding[-1] if holding else None,
            answers,
            contradiction,
            self._witnessed() if outcome == "valid" else (),
            self.undecided if "unknown" in answers.values() else None,
            tuple(_sentence(trouble) for trouble in listed[:_MANY]),
            (*self.trace.remarks, *self._remarks(len(listed))),
            self._counts(),
        )

    def _witnessed(self) -> tuple[tuple[int, Mapping[str, int]], ...]:
        if self.witness is None:
            return ()
        pairs = zip(self.positions.tolist(), self.witness, strict=True)
        return tuple((position, self.order.vector(vector)) for position, vector in pairs)

    def _remarks(self, findings: int) -> list[str]:
        remarks = []
        if self.last < self.order.last:
            remarks.append(
                f"positions {self.last + 1} to {self.order.last} were delivered, but the trace "
                "stops before their states: they are not judged"
            )
        if findings > _MANY:
            remarks.append(f"{findings - _MANY} more findings are not listed")
        return remarks

    def _counts(self) -> Counts:
        source = {name: i for i, name in enumerate(self.order.sources)}
        asked = {query.id: query for query in self.trace.queries}
        compensated = 0
        for answer in self.trace.answers:
            query = asked[answer.id]
            position = min(query.position, self.order.last)
            compensated += answer.version > self.order.prefixes[position, source[query.source]]
        updates = sum(1 for deliver in self.trace.delivers if deliver.position)
        return Counts(
            updates,
            len(self.trace.commits) - len(self.trace.delivers),
            self.order.last,
            len(self.positions),
            len(asked),
            sum(state.skipped for state in self.trace.states),
            round(len(asked) / updates, 3) if updates else 0.0,
            len(self.trace.answers),
            int(compensated),
        )

    # The words

    def _scene(self, state: int) -> Scene:
        position = int(min(self.positions[state], self.last))
        before = int(self.positions[state - 1]) if state else -1
        return Scene(
            self.history,
            self.order,
            self.order.prefixes[position].tolist(),
            position,
            before + 1,
            self.expected,
            self._by_position(self.wrong),
        )

    def _by_position(self, changes: Changes) -> Changes:
        places = np.append(self.positions, self.order.last + 1)
        return changes.at(places)

    def _wrong_state(self, state: int) -> str:
        """The contradiction of a state that is not the view at its position."""
        scene = self._scene(state)
        difference = self.wrong.until(state)
        due = self.expected.until(scene.position)
        words = described(scene, difference, due)
        half = half_shown(scene, self.shown.until(state), self._reach(scene, difference))
        arrived = updates_at(self.order, scene.position)
        subject = f"Position {scene.position} delivers {arrived}, so" if arrived else "The first"
        if scene.position - scene.since > 0:
            subject = f"Positions {scene.since} to {scene.position} end with {arrived}, so"
        opening = (
            f"{subject} its state has to be the view after exactly position {scene.position}"
            if arrived
            else "The first state has to be the view over the initial relations"
        )
        near = self._nearest_position(state)
        return f"{opening}; however {words}{' ' + half if half else ''} {near} A contradiction."

    def _nearest_position(self, state: int) -> str:
        """Which delivered state a wrong one is most like."""
        position = int(min(self.positions[state], self.last))
        found = nearest_step(self.shown.until(state), self.expected, self.last)
        # A value of the view lasts until the next position that changes it.
        place = min(found.places, key=lambda each: abs(each - position))
        vector = _vector(self.order.vector(self.order.prefixes[place]))
        if found.off == 0:
            return f"It is the view at position {place} ({vector})."
        return (
            f"Of all delivered states it comes closest to that of position {place} ({vector}),"
            f" from which it is {_copies(found.off)} away."
        )

    def _nearest_vectors(self, state: int, lattice: Lattice) -> str:
        """The vectors at which the view is most like a state that is no view at all."""
        found = lattice.nearest(self.shown.until(state))
        if found is None:
            return self._nearest_position(state)
        places = [
            _vector(self.order.vector(self._whole(lattice, flat))) for flat in found.places[:3]
        ]
        more = f" and {len(found.places) - 3} more" if len(found.places) > 3 else ""
        return (
            f"Closest come the vectors ({'), ('.join(places)}){more}, from which it is"
            f" {_copies(found.off)} away."
        )

    def _reach(self, scene: Scene, difference: Mapping[int, int]) -> int:
        """The last position that a wrong row may have to do with."""
        chosen = np.isin(self.expected.steps, np.arange(scene.position, self.last + 1))
        chosen &= np.isin(self.expected.rows, list(difference))
        return int(self.expected.steps[chosen].max(initial=scene.position))

    def _wrong_end(self) -> str:
        if not len(self.positions):
            return _sentence(self.troubles[0])
        state = len(self.positions) - 1
        total = self.wrong.until(state + 1)
        scene = self._scene(state)
        at_top = Scene(
            self.history,
            self.order,
            self.order.prefixes[self.last].tolist(),
            self.last,
            scene.since,
            self.expected,
            scene.missed,
        )
        words = described(at_top, total, self.expected.until(self.last))
        return (
            f"The last state (position {scene.position}) has to be the view after everything that "
            f"was delivered, up to position {self.last}; however {words} A contradiction."
        )

    def _below_none(self, state: int, row: int, count: int) -> str:
        shown = shown_row(self.history.view.rows([row])[row])
        return (
            f"A view holds a row at least 0 times; however the state of position "
            f"{self.positions[state]} holds {shown} {count} times. A contradiction."
        )

    def _no_vector(self, level: Level, found: Found, lattice: Lattice) -> str:
        state = found.failed_at
        position = int(self.positions[state])
        matches = lattice.matches(state)
        if not len(matches):
            opening = (
                f"Every state has to be the view at some version vector; however the state of "
                f"position {position} is the view at none of the {lattice.size:,} legal ones."
            )
            opening += f" {self._nearest_vectors(state, lattice)}"
            wrong = self.wrong.until(state)
            if not wrong:
                return f"{opening} A contradiction."
            words = described(self._scene(state), wrong, self.expected.until(position))
            return f"{opening} Against the delivered prefix, {words} A contradiction."
        where = self.order.vector(self._whole(lattice, int(matches[0])))
        also = f" (and at {len(matches) - 1} more vectors)" if len(matches) > 1 else ""
        if level is STRONG:
            return (
                f"The states have to follow one another in time; however the state of position "
                f"{position} is the view at {_vector(where)}{also}, and none of these lies at or "
                f"after what the states before it show. A contradiction."
            )
        return (
            f"No value of the view may be left out; however on every schedule something else comes "
            f"between the states before position {position} and its own, the view at "
            f"{_vector(where)}{also}. A contradiction."
        )

    def _whole(self, lattice: Lattice, flat: int) -> list[int]:
        whole: list[int] = self.order.prefixes[0].tolist()
        for axis, version in zip(lattice.axes, lattice.vector(flat), strict=True):
            whole[axis] = version
        return whole


def _vector(vector: Mapping[str, int]) -> str:
    return ", ".join(f"{source}:{version}" for source, version in vector.items())


def _copies(number: int) -> str:
    return "1 row" if number == 1 else f"{number} rows"


def _sentence(trouble: Trouble) -> str:
    return f"{trouble.words}: a contradiction."
