"""A wrong state is shown beside the nearest view: compared with a search by hand."""

from collections import Counter
from random import Random

import numpy as np
import orjson

from protocols.checking.changes import StepChanges
from protocols.checking.checker import check
from protocols.checking.levels import DELIVERY, WEAK
from protocols.checking.nearest import nearest_step, nearest_vectors
from protocols.checking.tracereading import read_trace
from tests.harness.places import TESTS

REPLAY = TESTS / "replay"


def _changes(rng: Random, steps: int) -> list[tuple[int, int, int]]:
    return [
        (rng.randrange(4), rng.randrange(steps), rng.choice((-1, 1)))
        for _ in range(rng.randrange(9))
    ]


def _distance(one: Counter[int], other: Counter[int]) -> int:
    return sum(abs(one[row] - other[row]) for row in {*one, *other})


def test_the_nearest_steps_are_those_that_a_search_by_hand_finds() -> None:
    rng = Random(3)
    for _ in range(300):
        changes, held = _changes(rng, 6), Counter({row: rng.randrange(3) for row in range(4)})
        off = {}
        for step in range(6):
            there: Counter[int] = Counter()
            for row, at, count in changes:
                there[row] += count if at <= step else 0
            off[step] = _distance(held, there)
        rows, steps, counts = (np.array(column, dtype=np.int64) for column in _columns(changes))
        found = nearest_step(dict(held), StepChanges(rows, steps, counts), 5)
        assert found.off == min(off.values())
        assert all(off[step] == found.off for step in found.places)


def test_the_nearest_vectors_are_those_that_a_search_by_hand_finds() -> None:
    rng = Random(4)
    for _ in range(100):
        tagged = [
            (rng.randrange(4), (rng.randrange(3), rng.randrange(4)), rng.choice((-1, 1, 2)))
            for _ in range(rng.randrange(8))
        ]
        held = Counter({row: rng.randrange(3) for row in range(4)})
        legal = np.array([[rng.random() < 0.8 for _ in range(4)] for _ in range(3)])
        legal[0, 0] = True
        off = {}
        for a in range(3):
            for b in range(4):
                there: Counter[int] = Counter()
                for row, (x, y), count in tagged:
                    there[row] += count if x <= a and y <= b else 0
                if legal[a, b]:
                    off[a * 4 + b] = _distance(held, there)
        rows = np.array([row for row, _, _ in tagged], dtype=np.int64)
        place = tuple(np.array([p[i] for _, p, _ in tagged], dtype=np.int64) for i in (0, 1))
        counts = np.array([count for _, _, count in tagged], dtype=np.int64)
        found = nearest_vectors(dict(held), (rows, place, counts), (3, 4), legal)
        assert found is not None
        smallest = min(off.values())
        assert found.off == smallest
        assert found.places == tuple(flat for flat, each in off.items() if each == smallest)


def test_a_contradiction_names_what_the_state_is_most_like() -> None:
    forged = (REPLAY / "forged_count.jsonl").read_bytes().splitlines(keepends=True)
    of_delivery = check(read_trace(forged), DELIVERY).contradiction
    assert of_delivery is not None
    assert (
        "closest to that of position 1 (a:0, b:1, c:0), from which it is 1 row away" in of_delivery
    )


def test_a_state_that_is_no_view_at_all_names_the_nearest_vectors() -> None:
    """A row too many at position 1, taken back at position 2: convergent, and not weak."""
    lines = []
    for line in (REPLAY / "figure_5.jsonl").read_bytes().splitlines():
        form = orjson.loads(line)
        if form["type"] == "state" and form["position"] in (1, 2):
            row = {"row": [7, 8], "count": 1 if form["position"] == 1 else -1}
            form["changes"] = [*form["changes"], row]
        lines.append(orjson.dumps(form))
    words = check(read_trace(lines), WEAK).contradiction
    assert words is not None
    assert "Closest come the vectors (a:0, b:1, c:0), from which it is 1 row away" in words


def test_a_lost_change_is_the_view_of_an_earlier_position() -> None:
    forged = (REPLAY / "forged_lost.jsonl").read_bytes().splitlines(keepends=True)
    words = check(read_trace(forged), DELIVERY).contradiction
    assert words is not None
    assert "It is the view at position 1" in words


def _columns(changes: list[tuple[int, int, int]]) -> list[list[int]]:
    return [[change[i] for change in changes] for i in range(3)]
