"""Writes the contradictions: a requirement of the level, and how the run breaks it.

`explanation.py` finds the update that a wrong row is due to; `nearest.py` finds the states that a
wrong one is most like.
"""

from collections.abc import Mapping

import numpy as np

from protocols.checking.changes import StepChanges
from protocols.checking.claims import RefutedClaim
from protocols.checking.evidence import Evidence
from protocols.checking.explanation import Scene, described, differing, half_shown, updates_at
from protocols.checking.lattice import Found, Lattice
from protocols.checking.levels import STRONG, Level
from protocols.checking.nearest import nearest_step
from protocols.checking.order import Vectors
from protocols.checking.trace import shown_row


def _scene(evidence: Evidence, state: int) -> Scene:
    position = int(min(evidence.positions[state], evidence.last))
    before = int(evidence.positions[state - 1]) if state else -1
    places = np.append(evidence.positions, evidence.order.last + 1)
    return Scene(
        evidence.history,
        evidence.order,
        evidence.order.prefixes[position].tolist(),
        position,
        before + 1,
        evidence.expected,
        evidence.wrong.at(places),
    )


def wrong_state(evidence: Evidence, state: int) -> str:
    """The contradiction of a state that is not the view at its position."""
    scene = _scene(evidence, state)
    difference = evidence.wrong.until(state)
    due = evidence.expected.until(scene.position)
    words = described(scene, difference, due)
    half = half_shown(scene, evidence.shown.until(state), _reach(evidence, scene, difference))
    arrived = updates_at(evidence.order, scene.position)
    subject = f"Position {scene.position} delivers {arrived}, so" if arrived else "The first"
    if scene.position - scene.since > 0:
        subject = f"Positions {scene.since} to {scene.position} end with {arrived}, so"
    opening = (
        f"{subject} the state at position {scene.position} must be the view after exactly the"
        f" updates up to position {scene.position}"
        if arrived
        else "The first state must be the view over the initial relations"
    )
    near = _nearest_position(evidence, state)
    return f"{opening}. However, {words}{' ' + half if half else ''} {near} A contradiction."


def _nearest_position(evidence: Evidence, state: int) -> str:
    """The sentence about the delivered state that a wrong one is most like."""
    position = int(min(evidence.positions[state], evidence.last))
    found = nearest_step(evidence.shown.until(state), evidence.expected, evidence.last)
    # A state of the view lasts until the next position that changes it.
    place = min(found.places, key=lambda each: abs(each - position))
    vector = _vector(evidence.order.vector(evidence.order.prefixes[place]))
    if found.off == 0:
        return f"It is the view at position {place} ({vector})."
    return (
        f"Of all delivered states it comes closest to that of position {place} ({vector}),"
        f" from which it is {_copies(found.off)} away."
    )


def _nearest_vectors(evidence: Evidence, state: int, lattice: Lattice) -> str:
    """The sentence about the vectors whose view is most like a state that matches none."""
    found = lattice.nearest(evidence.shown.until(state))
    if found is None:
        return _nearest_position(evidence, state)
    places = [_vector(_at(evidence, lattice, flat)) for flat in found.places[:3]]
    more = f" and {len(found.places) - 3} more" if len(found.places) > 3 else ""
    return (
        f"Closest come the vectors ({'), ('.join(places)}){more}, from which it is"
        f" {_copies(found.off)} away."
    )


def _reach(evidence: Evidence, scene: Scene, difference: Mapping[int, int]) -> int:
    """The last position that may be related to a wrong row."""
    chosen = np.isin(evidence.expected.steps, np.arange(scene.position, evidence.last + 1))
    chosen &= np.isin(evidence.expected.rows, list(difference))
    return int(evidence.expected.steps[chosen].max(initial=scene.position))


def wrong_end(evidence: Evidence) -> str:
    """The contradiction of a last state that is not the view after all deliveries."""
    if not len(evidence.positions):
        return sentence(evidence.troubles[0])
    state = len(evidence.positions) - 1
    total = evidence.wrong.until(state + 1)
    scene = _scene(evidence, state)
    at_top = Scene(
        evidence.history,
        evidence.order,
        evidence.order.prefixes[evidence.last].tolist(),
        evidence.last,
        scene.since,
        evidence.expected,
        scene.missed,
    )
    words = described(at_top, total, evidence.expected.until(evidence.last))
    return (
        f"The last state (position {scene.position}) must be the view after everything that "
        f"was delivered, up to position {evidence.last}. However, {words} A contradiction."
    )


def below_none(evidence: Evidence, state: int, row: int, count: int) -> str:
    """The contradiction of a state with a row count below zero."""
    shown = shown_row(evidence.history.view.rows([row])[row])
    return (
        f"A view holds a row at least 0 times. However, the state of position "
        f"{evidence.positions[state]} holds {shown} {count} times. A contradiction."
    )


def other_than_claimed(evidence: Evidence, chain: Vectors, wrong: StepChanges, state: int) -> str:
    """The contradiction of a state that is not the view at the vector that it claims."""
    position = int(min(evidence.positions[state], evidence.last))
    claimed = evidence.order.vector(chain[state])
    opening = f"{_claim(evidence, chain, state)}, so it must be the view there."
    if claimed == evidence.order.vector(evidence.order.prefixes[position]):
        return f"{opening} {wrong_state(evidence, state)}"
    words = differing(evidence.history, wrong.until(state))
    return f"{opening} However, it {words}. {_nearest_position(evidence, state)} A contradiction."


def claimed_half(evidence: Evidence, chain: Vectors, state: int, name: str) -> str:
    """The contradiction of a claimed vector that contains a global transaction in part."""
    parts = evidence.order.globals[name]
    has = [evidence.order.name(part) for part in parts if chain[state][part[0]] >= part[1]]
    lacks = [evidence.order.name(part) for part in parts if chain[state][part[0]] < part[1]]
    return (
        f"A state contains all of a global transaction, or nothing. However,"
        f" {_claim(evidence, chain, state, first='the')}, which has {' and '.join(has)} and lacks"
        f" {' and '.join(lacks)}: half of the global transaction {name}. A contradiction."
    )


def backwards(evidence: Evidence, chain: Vectors, state: int) -> str:
    """The contradiction of a claimed vector that is not at or after the one before it."""
    return (
        f"The states must follow one another in time. However,"
        f" {_claim(evidence, chain, state, first='the')}, although"
        f" {_claim(evidence, chain, state - 1, first='the')}. A contradiction."
    )


def _claim(evidence: Evidence, chain: Vectors, state: int, first: str = "The") -> str:
    vector = _vector(evidence.order.vector(chain[state]))
    return f"{first} state at position {evidence.positions[state]} claims the vector ({vector})"


def no_vector(evidence: Evidence, level: Level, found: Found, lattice: Lattice) -> str:
    """The contradiction of a level for which the search found no vectors."""
    state = found.failed_at
    position = int(evidence.positions[state])
    matches = lattice.matches(state)
    if not len(matches):
        opening = (
            f"Every state must be the view at some version vector. However, the state of "
            f"position {position} is the view at none of the {lattice.size:,} legal ones."
        )
        opening += f" {_nearest_vectors(evidence, state, lattice)}"
        wrong = evidence.wrong.until(state)
        if not wrong:
            return f"{opening} A contradiction."
        words = described(_scene(evidence, state), wrong, evidence.expected.until(position))
        return f"{opening} Against the delivered prefix, {words} A contradiction."
    where = _at(evidence, lattice, int(matches[0]))
    also = f" (and at {len(matches) - 1} more vectors)" if len(matches) > 1 else ""
    if level is STRONG:
        return (
            f"The states must follow one another in time. However, the state of position "
            f"{position} is the view at {_vector(where)}{also}, and none of these lies at or "
            f"after what the states before it show. A contradiction."
        )
    return (
        f"No value of the view may be left out. However, on every schedule something else comes "
        f"between the states before position {position} and its own, the view at "
        f"{_vector(where)}{also}. A contradiction."
    )


def _at(evidence: Evidence, lattice: Lattice, flat: int) -> Mapping[str, int]:
    """The vector of a place on the grid; sources that are not an axis keep their first version."""
    whole: list[int] = evidence.order.prefixes[0].tolist()
    for axis, version in zip(lattice.axes, lattice.vector(flat), strict=True):
        whole[axis] = version
    return evidence.order.vector(whole)


def _vector(vector: Mapping[str, int]) -> str:
    return ", ".join(f"{source}:{version}" for source, version in vector.items())


def _copies(number: int) -> str:
    return "1 row" if number == 1 else f"{number} rows"


def sentence(trouble: RefutedClaim) -> str:
    """A contradiction in the claims themselves."""
    return f"{trouble.words}: a contradiction."
