"""A run written to a file so that it can be repeated: scenario, knobs, choices and verdict.

    {"scenario": …, "schedule": {knobs and choices}, "protocol": …, "verdict": {…} or null}

`viewsweep simulate --replay FILE` runs it again. A schedule of the exhaustive mode is just
`{"exhaustive": [choices], "reads": "versions" | "holes" | "windows"}`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from protocols.errors import WrongUse
from protocols.forms import refuse_unknown_fields
from protocols.maintenance.registry import Entry
from protocols.simulation.campaign import Judged, Trouble, judged_run, trouble_of
from protocols.simulation.exhaustive import Exploration, OneOfAll
from protocols.simulation.scenario import scenario_from_json
from protocols.simulation.schedule import Schedule, schedule_from_json


@dataclass(frozen=True)
class RecordedRun:
    """One recorded run of a protocol, with the error that it had when it was recorded."""

    form: Mapping[str, Any]
    protocol: str
    #: The knobs, or a schedule of the exhaustive mode.
    schedule: Schedule | OneOfAll
    trouble: Trouble | None

    def to_json(self) -> dict[str, Any]:
        schedule = self.schedule
        return {
            "protocol": self.protocol,
            "verdict": None if self.trouble is None else self.trouble.to_json(),
            "schedule": schedule.to_json()
            if isinstance(schedule, Schedule)
            else {"exhaustive": list(schedule.choices), "reads": schedule.reads},
            "scenario": self.form,
        }

    def again(self, entry: Entry) -> Judged:
        """Repeats the run."""
        scenario = scenario_from_json(self.form)
        if isinstance(self.schedule, Schedule):
            return judged_run(scenario, entry, self.schedule, double_check=True)
        exploration = Exploration(scenario, entry, self.schedule.reads)
        outcome = exploration.outcome(self.schedule.choices)
        return Judged(outcome, trouble_of(scenario, entry, outcome, double_check=True))


def recorded_run_from_json(form: Any) -> RecordedRun:
    """Reads a recorded run; raises WrongUse with the missing part."""
    if not isinstance(form, dict):
        raise WrongUse("a recorded run must be a JSON object")
    for key, kind in (("scenario", dict), ("schedule", dict), ("protocol", str)):
        if not isinstance(form.get(key), kind):
            raise WrongUse(f"a recorded run needs the field {key!r}")
    refuse_unknown_fields("the run", form, ("scenario", "schedule", "protocol", "verdict"))
    verdict = form.get("verdict")
    trouble = None if verdict is None else _trouble(verdict)
    return RecordedRun(form["scenario"], form["protocol"], _schedule(form["schedule"]), trouble)


def _schedule(form: Any) -> Schedule | OneOfAll:
    if "exhaustive" not in form:
        return schedule_from_json(form)
    refuse_unknown_fields("the schedule", form, ("exhaustive", "reads"))
    choices = form["exhaustive"]
    if not isinstance(choices, list) or not all(isinstance(choice, int) for choice in choices):
        raise WrongUse("the choices of the exhaustive mode have to be a list of whole numbers")
    return OneOfAll(tuple(choices), form.get("reads", "versions"))


def _trouble(form: Any) -> Trouble:
    if not isinstance(form, dict) or form.get("kind") not in ("wrong", "bound", "broke"):
        raise WrongUse('a verdict has to be null or have a "kind": wrong, bound or broke')
    refuse_unknown_fields("the verdict", form, ("kind", "words", "reached"))
    return Trouble(form["kind"], str(form.get("words", "")), form.get("reached"))
