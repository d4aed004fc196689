"""What an update's page says is true: compared with the sources' histories and with DuckDB."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl
import pytest

from page import walk as walking
from page.walk import Step, Walk, walk
from protocols.algebra.delta import COUNT
from streaming.job.recording import Recording
from tests.harness.pageworld import VIEWS, ShownWorld


def counted(rows: pl.DataFrame) -> Counter[tuple[Any, ...]]:
    names = [name for name in rows.columns if name != COUNT]
    found: Counter[tuple[Any, ...]] = Counter()
    for *row, count in rows.select(*names, COUNT).iter_rows():
        found[tuple(row)] += count
    return Counter({row: count for row, count in found.items() if count})


def recording_of(shown: ShownWorld) -> Recording:
    assert shown.job.recording is not None
    return shown.job.recording


def walks(shown: ShownWorld, view: str) -> Iterable[tuple[int, Walk]]:
    recording, tables = recording_of(shown), shown.tables(view)
    for position in range(1, tables.standing().position + 1):
        record = recording.of(view, position)
        assert record is not None, position
        yield position, walk(tables.view, "batched-sweep", record, position)


def matching(shown: ShownWorld, step: Step, version: int) -> Counter[tuple[Any, ...]]:
    """The rows that the step's question is about, at a version, from the source's history."""
    names = step.relation.column_names
    shown_names = [name for name in step.answered.columns if name != COUNT]
    found: Counter[tuple[Any, ...]] = Counter()
    for row, count in shown.held(step.relation, version).items():
        known = dict(zip(names, row, strict=True))
        asked = not step.keys or any(
            tuple(known[name] for name in keys.columns) in set(keys.rows()) for keys in step.keys
        )
        # The one condition of the views on a single relation.
        if asked and not (step.relation.name == "r" and "t" in shown_names and _left_out(known)):
            found[tuple(known[name] for name in shown_names)] += count
    return found


#: Set by the view whose steps are compared.
_LEAVES_OUT_Q = [True]


def _left_out(row: Mapping[str, Any]) -> bool:
    return _LEAVES_OUT_Q[0] and row["t"] == "q"


def wrong_steps(shown: ShownWorld, view: str) -> list[str]:
    """Every step that differs from what the sources committed."""
    _LEAVES_OUT_Q[0] = view == "v"
    wrong = []
    for position, found in walks(shown, view):
        vector = shown.vector(view, position)
        for step in found.steps:
            upto = int(re.findall(r"up to version ([\d,]+)", step.contains)[0].replace(",", ""))
            if step.wanted != vector[step.relation.source]:
                wrong.append(f"{position}: {step.relation} is wanted as of {step.wanted}")
            if counted(step.answered) != matching(shown, step, upto):
                wrong.append(f"{position}: the answer of {step.relation}")
            if counted(step.corrected) != matching(shown, step, step.wanted):
                wrong.append(f"{position}: the rows of {step.relation} as of the update")
    return wrong


@pytest.mark.parametrize("view", VIEWS)
def test_answers_and_corrections_are_those_of_the_histories(shown: ShownWorld, view: str) -> None:
    assert wrong_steps(shown, view) == []


def test_something_had_to_be_taken_out(shown: ShownWorld) -> None:
    steps = [step for view in VIEWS for _, found in walks(shown, view) for step in found.steps]
    assert sum(bool(step.too_much) for step in steps) > 20


def test_a_page_that_forgets_to_take_something_out_is_found(
    shown: ShownWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walking._Found, "_late", lambda *_: ())
    assert wrong_steps(shown, "v")


def test_the_steps_of_an_inner_join_give_the_change_of_the_view(shown: ShownWorld) -> None:
    changed = 0
    for position, found in walks(shown, "v"):
        before, after = (shown.truth("v", at) for at in (position - 1, position))
        truth = Counter(after)
        truth.subtract(before)
        assert found.change is not None, "every step's answer is kept"
        assert counted(found.change) == Counter({r: n for r, n in truth.items() if n}), position
        assert all(step.own for step in found.steps)
        changed += bool(found.change.height)
    assert changed > 10


def test_the_changes_at_the_source_are_those_of_its_transaction(shown: ShownWorld) -> None:
    progress = shown.tables("v").progress()
    for position, found in walks(shown, "v"):
        [(source, version)] = (
            progress.filter(pl.col("position") == position).select("source", "version").iter_rows()
        )
        committed: Counter[tuple[Any, ...]] = Counter()
        for at, name, row, count in shown.world.sources[source].history:
            if at == version and name in "rsu":
                committed[row] += count
        said: Counter[tuple[Any, ...]] = Counter()
        for rows in found.committed.values():
            said.update(counted(rows))
        assert said == Counter({row: n for row, n in committed.items() if n})


def test_old_records_go_first_and_large_ones_lose_their_rows(shown: ShownWorld) -> None:
    records = list(reversed(recording_of(shown).of_view("v")))
    small = Recording(room=max(each.bytes for each in records) * 16 * 2)
    for each in records:
        small._keep("v", each)
    assert small.of("v", records[-1].last) is records[-1]
    tiny = Recording(room=16)
    logs = shown.job.views[0]._reading.received.logs
    for answer in records[-1].answers:
        tiny.answered("v", answer)
    tiny.installed("v", records[-1].vector, records[-1].order, logs)
    [kept] = tiny.of_view("v")
    assert kept.too_large
    assert walk(shown.tables("v").view, "batched-sweep", kept, kept.last).too_large
