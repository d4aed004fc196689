"""Shrinks a failing run to a small one that fails in the same way.

Everything that can be left out is left out as long as the run still fails: updates, single changes,
initial rows, times and global transactions of the scenario; crashes, partitions and stale reads of
the knobs; finally the choices. Choice 0 means "finish work that is under way first", so a small
schedule is nearly sequential, except where it has to differ.

A smaller scenario makes other choices possible, so a candidate that does not fail with the current
choices is tried with a few new ones.
"""

import copy
import dataclasses
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from protocols.errors import WrongUse
from protocols.maintenance.registry import Entry
from protocols.simulation.campaign import Trouble, judged_run
from protocols.simulation.failure import RecordedRun
from protocols.simulation.scenario import scenario_from_json
from protocols.simulation.schedule import Schedule

#: The number of other schedules that a candidate is tried with.
_OTHERS = 12
#: Fewer updates than this are also left out in pairs: one may insert a row that another deletes.
_FEW = 10
#: Knob → its most harmless value.
_HARMLESS: dict[str, Any] = {
    "crashes": 0,
    "partitions": 1,
    "slices": 1,
    "stale": False,
    "late_start": False,
    "redelivery": "same",
    "page": 1000,
    "algebra": "bag",
}
Form = dict[str, Any]


def shrunk(form: Any, entry: Entry, schedule: Schedule, budget: int = 4000) -> RecordedRun:
    """Shrinks a failing run: the smallest failing one found within `budget` runs."""
    shrinking = _Shrinking(entry, budget, copy.deepcopy(form), schedule)
    shrinking.record()
    while shrinking.simplify_scenario() or shrinking.simplify_knobs():
        pass
    shrinking.simplify_choices()
    return RecordedRun(shrinking.form, entry.name, shrinking.schedule, shrinking.trouble)


@dataclass
class _Shrinking:
    """The smallest failing run so far."""

    entry: Entry
    #: The number of runs that may still be made.
    budget: int
    form: Form
    schedule: Schedule
    trouble: Trouble | None = field(default=None)

    def record(self) -> None:
        """Repeats the failing run to record its choices."""
        schedule = self.schedule.settled(scenario_from_json(self.form).catalog.sources)
        if not self._try(self.form, schedule):
            raise AssertionError("the run to be shrunk does not fail")

    # -- candidates ----------------------------------------------------------------------------

    def simplify_scenario(self) -> bool:
        """Leaves out all parts that it can; returns whether it left out any."""
        begun = _size(self.form)
        for smaller in (_fewer_updates, _earlier, _fewer_changes, _fewer_rows, _plainer):
            self._walk(smaller)
        return _size(self.form) < begun

    def simplify_knobs(self) -> bool:
        simplified = False
        for knob, value in _HARMLESS.items():
            if getattr(self.schedule, knob) != value:
                calmer = dataclasses.replace(self.schedule, **{knob: value})
                simplified |= self._fails_somehow(self.form, calmer)
        return simplified

    def simplify_choices(self) -> None:
        """Tries shorter lists, then smaller numbers."""
        kept = list(self.schedule.choices or ())
        length = len(kept)
        while length:
            length //= 2
            while len(kept) > length and self._with_choices(kept[: len(kept) - max(length, 1)]):
                kept = list(self.schedule.choices or ())
        for index in range(len(kept)):
            for value in range(kept[index] if index < len(kept) else 0):
                if self._with_choices([*kept[:index], value, *kept[index + 1 :]]):
                    kept = list(self.schedule.choices or ())
                    break
        while kept and kept[-1] == 0:
            kept.pop()
        self._with_choices(kept)

    # -- trying --------------------------------------------------------------------------------

    def _walk(self, smaller: Any) -> None:
        """Takes every smaller form that still fails; continues where the last one was found."""
        place = 0
        while self.budget > 0:
            candidates = list(smaller(self.form))[place:]
            if not candidates:
                return
            for candidate in candidates:
                if self._fails_somehow(candidate, self.schedule):
                    break
                place += 1

    def _fails_somehow(self, form: Form, schedule: Schedule) -> bool:
        """Whether the run fails with these choices, with none, or with some others."""
        try:
            scenario_from_json(form)
        except WrongUse:
            return False
        if self._try(form, schedule) or self._try(form, dataclasses.replace(schedule, choices=())):
            return True
        for seed in range(_OTHERS):
            drawn = dataclasses.replace(schedule, seed=seed, choices=None)
            if self._try(form, drawn):
                return True
        return False

    def _with_choices(self, choices: list[int]) -> bool:
        """Whether the run fails with exactly these choices."""
        given = dataclasses.replace(self.schedule, choices=tuple(choices))
        return self._try(self.form, given, exactly=True)

    def _try(self, form: Form, schedule: Schedule, exactly: bool = False) -> bool:
        """Runs a candidate; one that fails as the original did is the smallest so far."""
        if self.budget <= 0:
            return False
        self.budget -= 1
        try:
            judged = judged_run(scenario_from_json(form), self.entry, schedule)
        except WrongUse:
            return False
        if judged.trouble is None:
            return False
        if self.trouble is not None and judged.trouble.kind != self.trouble.kind:
            return False
        if judged.outcome is not None and not exactly:
            schedule = dataclasses.replace(schedule, choices=judged.outcome.choices)
        self.form, self.schedule, self.trouble = form, schedule, judged.trouble
        return True


# Smaller forms ------------------------------------------------------------------------------------


def _fewer_updates(form: Form) -> Iterator[Form]:
    updates = form["updates"]
    length = len(updates) // 2
    while length > 0:
        for start in range(0, len(updates), length):
            yield {**form, "updates": updates[:start] + updates[start + length :]}
        length //= 2
    if len(updates) < _FEW:
        for one, other in itertools.combinations(range(len(updates)), 2):
            kept = [update for i, update in enumerate(updates) if i not in (one, other)]
            yield {**form, "updates": kept}


def _earlier(form: Form) -> Iterator[Form]:
    """Moves the first update of a source into its initial rows."""
    for source in form["sources"]:
        own = [index for index, u in enumerate(form["updates"]) if u["source"] == source]
        if not own:
            continue
        smaller = copy.deepcopy(form)
        relations = smaller["sources"][source]["relations"]
        for change in smaller["updates"].pop(own[0])["changes"]:
            rows = relations[change["relation"]].setdefault("rows", [])
            rows += [change["row"]] * change["count"]
            for _ in range(-change["count"]):
                if change["row"] in rows:
                    rows.remove(change["row"])
        yield smaller


def _fewer_changes(form: Form) -> Iterator[Form]:
    for index, update in enumerate(form["updates"]):
        changes = update["changes"]
        for place in range(len(changes) if len(changes) > 1 else 0):
            fewer = {**update, "changes": changes[:place] + changes[place + 1 :]}
            yield _with_update(form, index, fewer)


def _fewer_rows(form: Form) -> Iterator[Form]:
    for source, body in form["sources"].items():
        for name, relation in body["relations"].items():
            for place in range(len(relation.get("rows", ()))):
                smaller = copy.deepcopy(form)
                del smaller["sources"][source]["relations"][name]["rows"][place]
                yield smaller


def _plainer(form: Form) -> Iterator[Form]:
    for index, update in enumerate(form["updates"]):
        for extra in ("at", "global"):
            if extra in update:
                plain = {key: value for key, value in update.items() if key != extra}
                yield _with_update(form, index, plain)


def _with_update(form: Form, index: int, update: Form) -> Form:
    updates = form["updates"]
    return {**form, "updates": [*updates[:index], update, *updates[index + 1 :]]}


def _size(form: Form) -> int:
    """The size of a scenario: its rows, changes and updates."""
    rows = sum(
        len(relation.get("rows", ()))
        for body in form["sources"].values()
        for relation in body["relations"].values()
    )
    changes = sum(len(update["changes"]) + len(update) for update in form["updates"])
    return rows + changes + len(form["updates"])
