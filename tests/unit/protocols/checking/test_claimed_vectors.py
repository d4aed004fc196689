"""A state is judged at the vector that it claims, even if it is right at others."""

from collections.abc import Sequence

import pytest

from protocols.checking import tracewriting as t
from protocols.checking.checker import check
from protocols.checking.levels import level_named
from protocols.checking.tracereading import read_trace
from protocols.checking.verdict import Verdict
from protocols.views.catalog import catalog_from_json

CATALOG = catalog_from_json(
    {
        source: {"relations": {name: {"columns": {column: "BIGINT"}}}}
        for source, name, column in (("a", "r", "x"), ("b", "s", "y"))
    }
)
VIEWS = ("SELECT x, y FROM a.r, b.s", "SELECT x, y FROM a.r, b.s GROUP BY x, y")
State = tuple[tuple[int, int], tuple[int, int]]


def judged(
    states: Sequence[State],
    level: str = "strong",
    any_vectors: bool = False,
    together: str | None = None,
    view: str = VIEWS[0],
) -> Verdict:
    """A run in which x goes from 0 to 1, then y, then x to 2; states as (claimed vector, row)."""
    lines = [t.run_line("nested-sweep", view, CATALOG, {("a", "r"): [(0,)], ("b", "s"): [(0,)]})]
    for number, (source, relation, old) in enumerate(
        (("a", "r", 0), ("b", "s", 0), ("a", "r", 1)), 1
    ):
        version = 1 + old
        changes = [(relation, (old,), -1), (relation, (old + 1,), 1)]
        lines.append(t.commit_line(source, version, changes, together if number < 3 else None))
        lines.append(t.deliver_line(source, version, number))
    held: tuple[int, int] | None = None
    for position, (vector, row) in enumerate(states):
        claimed = dict(zip("ab", vector, strict=True))
        changed = [] if held == row else [(row, 1)] + ([(held, -1)] if held else [])
        lines.append(t.state_line(position, claimed, changed))
        held = row
    return check(
        read_trace([*lines, t.end_line({"a": 2, "b": 1})]),
        level_named(level),
        any_vectors=any_vectors,
    )


# (vector, row) of each position; the rows are the view at exactly these vectors.
HONEST = [((0, 0), (0, 0)), ((1, 0), (1, 0)), ((1, 1), (1, 1)), ((2, 1), (2, 1))]
#: The changes of the last state shown one state too early.
EARLY = [*HONEST[:2], ((1, 1), (2, 1)), ((2, 1), (2, 1))]
#: The last two states are both the last one, claimed a version too early.
BEHIND = [*HONEST[:2], ((1, 0), (1, 1)), ((2, 1), (2, 1))]
LATE_END = [*HONEST[:3], ((1, 1), (2, 1))]
RETURNING = [((0, 0), (0, 0)), ((1, 0), (1, 0)), ((0, 1), (0, 1)), ((2, 1), (2, 1))]


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("states", [EARLY, BEHIND])
def test_a_state_that_is_right_elsewhere_only_is_refuted(states: list[State], view: str) -> None:
    for level in ("weak", "strong"):
        verdict = judged(states, level, view=view)
        assert (verdict.verdict, str(verdict.reached)) == ("invalid", "convergent")
        assert "at position 2 claims the vector" in str(verdict.contradiction)
        assert "--any-vectors accepts these" in str(verdict.contradiction)
        assert judged(states, level, any_vectors=True, view=view).verdict == "valid"
    assert judged(states, "convergent", view=view).verdict == "valid"


def test_the_contradiction_names_the_rows() -> None:
    words = str(judged(BEHIND).contradiction)
    assert (
        "The state at position 2 claims the vector (a:1, b:0), so it must be the view there."
        " However, it has 1 x (1, 1) too many and lacks 1 x (1, 0)."
    ) in words
    assert "It is the view at position 2 (a:1, b:1)." in words


def test_a_last_state_at_another_vector_is_refuted_at_every_level() -> None:
    verdict = judged(LATE_END, "convergent")
    assert (verdict.verdict, verdict.reached) == ("invalid", None)
    assert judged(LATE_END, "strong", any_vectors=True).verdict == "valid"


@pytest.mark.parametrize("view", VIEWS)
def test_vectors_that_run_back_are_weak(view: str) -> None:
    verdict = judged(RETURNING, view=view)
    assert (verdict.verdict, str(verdict.reached)) == ("invalid", "weak")
    assert judged(RETURNING, "weak", view=view).verdict == "valid"


def test_a_vector_with_half_of_a_global_transaction_is_refuted() -> None:
    """Its state shows nothing of the transaction: the view does not read the part that it has."""
    view = "SELECT 0 AS x, y FROM b.s"
    states = [((0, 0), (0, 0)), ((1, 0), (0, 0)), ((1, 1), (0, 1)), ((2, 1), (0, 1))]
    verdict = judged(states, "weak", together="g", view=view)
    assert verdict.verdict == "invalid"
    assert "half of the global transaction g" in str(verdict.contradiction)
    assert judged(states, "weak", any_vectors=True, together="g", view=view).verdict == "valid"


def test_the_vectors_of_an_honest_run_give_its_states() -> None:
    for view in VIEWS:
        assert judged(HONEST, "complete-in-delivery-order", view=view).verdict == "valid"
