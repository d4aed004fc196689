"""The report that `viewsweep simulate` ends with: its exit code, its lines, its JSON."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from protocols.maintenance.registry import Entry
from protocols.simulation.campaign import Tally, Trouble

#: So many failing runs are listed one by one.
_TOLD = 10


@dataclass
class SimulationReport:
    """The result of the command."""

    protocol: Entry
    reproduce: str
    tally: Tally = field(default_factory=Tally)
    seconds: float = 0.0
    #: The knobs of a run, or those given to a campaign.
    knobs: dict[str, Any] = field(default_factory=dict)
    #: Schedules tried, in the exhaustive mode.
    schedules: int | None = None
    #: The reason why a campaign proves nothing.
    vacuous: str | None = None
    #: The files of failing runs.
    files: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        if self.tally.of("wrong") or self.tally.of("bound"):
            return 1
        if self.tally.of("broke"):
            return 3
        return 1 if self.vacuous else 0

    @property
    def runs_per_second(self) -> float:
        return round(self.tally.runs / self.seconds, 1) if self.seconds else 0.0

    def to_json(self) -> dict[str, Any]:
        tally = self.tally
        troubles = {
            name: [{"seed": seed, **trouble.to_json()} for seed, trouble in tally.of(kind)]
            for name, kind in KINDS
        }
        form: dict[str, Any] = {
            "protocol": self.protocol.name,
            "level": self.protocol.level.name,
            "knobs": self.knobs,
            "runs": tally.runs,
            **troubles,
            "bound_exceeded": len(tally.of("bound")),
            "concurrent_answers": tally.concurrent,
            "vacuous": self.vacuous,
            "crashes": tally.crashes,
            "several_views": tally.together,
            "states": tally.states,
            "queries": tally.queries,
            "shapes": dict(tally.shapes),
            "plans": len(tally.plans),
            "operators_met": dict(sorted(tally.met.items())),
            "seconds": round(self.seconds, 2),
            "runs_per_second": self.runs_per_second,
            "files": self.files,
            "reproduce": self.reproduce,
        }
        return form if self.schedules is None else {**form, "schedules": self.schedules}


KINDS: tuple[tuple[str, Any], ...] = (
    ("wrong", "wrong"),
    ("asked_too_much", "bound"),
    ("broke", "broke"),
)


def lines(report: SimulationReport) -> Iterator[tuple[str, str]]:
    tally = report.tally
    exhaustive = report.schedules is not None
    what = "schedule" if exhaustive else "run"
    whats = what if tally.runs == 1 else f"{what}s"
    yield "", ""
    for number, trouble in tally.troubles[:_TOLD]:
        yield f"{'schedule' if exhaustive else 'seed'} {number}: {told(trouble)}", "red"
    if len(tally.troubles) > _TOLD:
        yield f"… and {len(tally.troubles) - _TOLD:,} more", "red"
    verdict = f"below {report.protocol.level}"
    wrong, broke, bound = (len(tally.of(kind)) for kind in ("wrong", "broke", "bound"))
    yield (
        f"{tally.runs:,} {whats}: {wrong:,} {verdict}, {bound:,} asked too much, {broke:,} broke",
        "bold red" if tally.troubles else "bold green",
    )
    yield (
        f"{tally.states:,} states judged, {tally.queries:,} questions, {tally.concurrent:,} answers"
        f" met a concurrent update, {tally.crashes:,} crashes of the warehouse",
        "",
    )
    if tally.together:
        yield f"{tally.together:,} of them kept several views on one reading", ""
    if tally.met:
        yield f"{len(tally.plans):,} different plans; operators that met one: {_met(tally)}", ""
    if report.seconds:
        yield f"{report.seconds:.1f} s, {report.runs_per_second:,.0f} {what}s/s", ""
    if report.vacuous:
        yield f"vacuous: {report.vacuous}", "bold red"
    for file in report.files:
        yield f"written down: {file}  (viewsweep simulate --replay {file})", ""
    yield f"reproduce: {report.reproduce}", ""


def _met(tally: Tally) -> str:
    return ", ".join(f"{name} {runs:,}" for name, runs in tally.met.most_common())


def told(trouble: Trouble | None) -> str:
    if trouble is None:
        return "nothing wrong"
    reached = f" (level reached: {trouble.reached})" if trouble.reached else ""
    return f"{trouble.kind}: {trouble.words}{reached}"
