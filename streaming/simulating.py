"""`viewsweep simulate`: runs a protocol over a scenario under schedules that a seed draws.

The seed and every knob come first, a line that repeats it all comes last. Exit code 0: all runs
were right; 1: one was below the level that the protocol claims, or asked too much, or nothing was
concurrent in all of them; 2: wrong use; 3: viewsweep itself broke in a run.
"""

import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.console import Console
from rich.text import Text

from protocols.errors import ViewRefused, ViewsweepError, WrongUse
from protocols.maintenance.registry import PROTOCOLS, Entry
from protocols.maintenance.registry import protocol as protocol_named
from protocols.simulation.campaign import (
    UPDATES,
    Campaign,
    Family,
    Judged,
    Tally,
    Trouble,
    trouble_of,
)
from protocols.simulation.drawn import Shaped
from protocols.simulation.exhaustive import Exploration
from protocols.simulation.failure import WrittenRun, written_run_from_json
from protocols.simulation.journal import Outcome
from protocols.simulation.scenario import scenario_from_json
from protocols.simulation.schedule import Schedule
from protocols.simulation.shrinking import shrunk

#: Seconds between two lines about how far a long campaign is.
_PATIENCE = 5.0
#: So many failing runs are told one by one.
_TOLD = 10
_EXAMPLE = "examples/scenarios/three-sources-four-updates.json"


@dataclass
class Report:
    """What the command has to say at its end."""

    protocol: Entry
    reproduce: str
    tally: Tally = field(default_factory=Tally)
    seconds: float = 0.0
    #: The knobs of a run; of a campaign those that were given.
    knobs: dict[str, Any] = field(default_factory=dict)
    #: Schedules tried, in the exhaustive mode.
    schedules: int | None = None
    #: Why a campaign proves nothing.
    vacuous: str | None = None
    #: Runs that were written down.
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
            for name, kind in _KINDS
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


_KINDS: tuple[tuple[str, Any], ...] = (
    ("wrong", "wrong"),
    ("asked_too_much", "bound"),
    ("broke", "broke"),
)


@dataclass(frozen=True)
class _Request:
    """The command line, read."""

    scenario: Path | None
    protocol: str | None
    seeds: range
    knobs: dict[str, Any]
    updates: int | None
    workers: int
    shrink: bool
    failures: Path
    trace: Path | None
    json: bool
    verbose: bool

    def say(self, words: str, style: str = "") -> None:
        """To the reader of the result; with --json the result is the only thing on stdout."""
        Console(stderr=self.json).print(Text(words, style=style), soft_wrap=True)

    def entry(self) -> Entry:
        if self.protocol is None:
            raise WrongUse(f"name one: --protocol {' | '.join(PROTOCOLS)}")
        return protocol_named(self.protocol)

    def repeated(self, mode: str, seeds: str) -> str:
        """The command that does the same again."""
        words = ["viewsweep simulate"]
        words += [str(self.scenario)] if self.scenario else []
        words += [word for word in (mode, f"--protocol {self.protocol}", seeds) if word]
        for knob, value in self.knobs.items():
            words.append(
                f"--{'' if value else 'no-'}{knob}"
                if isinstance(value, bool)
                else f"--{knob} {value}"
            )
        words += [f"--updates {self.updates}"] if self.updates is not None else []
        return " ".join(words)


def simulate(
    scenario: Annotated[
        Path | None, typer.Argument(help="Scenario (JSON) to run; none with --random.")
    ] = None,
    protocol: Annotated[
        str | None, typer.Option(help=f"Which one: {', '.join(PROTOCOLS)}.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of one run (0 if nothing is said).")
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="Seeds of a campaign, as 1..20000.")] = None,
    random: Annotated[
        bool, typer.Option("--random", help="Draw the scenario from the seed, too.")
    ] = False,
    views: Annotated[
        bool, typer.Option("--views", help="Draw views of SQL beyond inner joins (with --random).")
    ] = False,
    exhaustive: Annotated[
        bool, typer.Option("--exhaustive", help="Try all schedules of a small scenario.")
    ] = False,
    replay: Annotated[
        Path | None, typer.Option(help="Run again what was written down about a failing run.")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(help="Write the trace of the run (JSON Lines), for `check`.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Machine-readable answer.")] = False,
    algebra: Annotated[
        str | None, typer.Option(help="bag (default: plain and quick) or frame (production).")
    ] = None,
    stale: Annotated[
        bool | None, typer.Option("--stale/--no-stale", help="Reads at older versions.")
    ] = None,
    partitions: Annotated[
        int | None, typer.Option(min=1, help="Parts of a relation, read at moments of their own.")
    ] = None,
    reads: Annotated[
        str | None,
        typer.Option(help="How sources read: versions, snapshots with holes, rows in windows."),
    ] = None,
    copies: Annotated[
        str | None,
        typer.Option(help="Relations with a copy that answers for the source: none, some, all."),
    ] = None,
    crashes: Annotated[
        int | None, typer.Option(min=0, help="How often the warehouse crashes at most.")
    ] = None,
    redelivery: Annotated[
        str | None, typer.Option(help="What a crash undid comes again in the same or other order.")
    ] = None,
    updates: Annotated[int | None, typer.Option(min=0, help="Updates of a drawn scenario.")] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes of a campaign (default: all cores).")
    ] = None,
    shrink: Annotated[
        bool, typer.Option("--shrink/--no-shrink", help="Make the first failing run small.")
    ] = True,
    failures: Annotated[Path, typer.Option(help="Where failing runs are written down.")] = Path(
        ".viewsweep/failures"
    ),
    verbose: Annotated[
        bool, typer.Option("--verbose", help="With the traceback when viewsweep broke.")
    ] = False,
) -> None:
    """Simulate a protocol under random schedules, or all of them. Knobs not given are drawn."""
    knobs = {
        "algebra": algebra,
        "stale": stale,
        "partitions": partitions,
        "reads": reads,
        "copies": copies,
        "crashes": crashes,
        "redelivery": redelivery,
    }
    try:
        given = {knob: value for knob, value in knobs.items() if value is not None}
        _check_modes(scenario, random, exhaustive, replay, seed, seeds, trace)
        if updates is not None and not random:
            raise WrongUse("--updates is for drawn scenarios: it needs --random")
        if views and not random:
            raise WrongUse("--views says which views are drawn: it needs --random")
        if given and (exhaustive or replay is not None):
            raise WrongUse(f"--{next(iter(given))} is a knob of seeded runs, and this is none")
        request = _Request(
            scenario,
            protocol,
            _seeds(seed, seeds),
            given,
            updates,
            workers or os.cpu_count() or 1,
            shrink,
            failures,
            trace,
            json,
            verbose,
        )
        if replay is not None:
            report = _replayed(request, replay)
        elif exhaustive:
            report = _explored(request)
        else:
            report = _campaign(request, random, "views" if views else "joins")
    except ViewsweepError as error:
        where = f"{scenario}, its view, " if isinstance(error, ViewRefused) and scenario else ""
        Console(stderr=True).print(Text(f"simulate: {where}{error}", style="red"), soft_wrap=True)
        raise typer.Exit(error.exit_code) from None
    _show(request, report)
    raise typer.Exit(report.exit_code)


# Reading the command line -------------------------------------------------------------------------


def _check_modes(
    scenario: Path | None,
    random: bool,
    exhaustive: bool,
    replay: Path | None,
    seed: int | None,
    seeds: str | None,
    trace: Path | None,
) -> None:
    if sum((scenario is not None, random, replay is not None)) != 1:
        hint = f", e.g. {_EXAMPLE}" if exhaustive else ""
        raise WrongUse(f"say what to run: a SCENARIO{hint}, or --random, or --replay FILE")
    if exhaustive and (random or seed is not None or seeds is not None):
        raise WrongUse("--exhaustive tries all schedules of a SCENARIO: no --random, no seeds")
    if seed is not None and seeds is not None:
        raise WrongUse("either --seed N or --seeds N..M")
    if trace is not None and (exhaustive or seeds is not None):
        raise WrongUse("--trace writes the trace of one run: give --seed N")


def _seeds(seed: int | None, seeds: str | None) -> range:
    if seeds is None:
        return range(seed or 0, (seed or 0) + 1)
    first, dots, last = seeds.partition("..")
    try:
        found = range(int(first), int(last) + 1)
    except ValueError:
        found = range(0)
    if not dots or not found:
        raise WrongUse(f"--seeds is a range as 1..20000, not {seeds!r}")
    return found


def _read(path: Path) -> Any:
    try:
        return orjson.loads(path.read_bytes())
    except OSError as error:
        raise WrongUse(f"{path} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise WrongUse(f"{path} is not JSON: {error}") from None


def _shaped(path: Path) -> Shaped:
    """A scenario from a file, checked."""
    shaped = Shaped(path.stem, _read(path))
    try:
        scenario_from_json(shaped.form)
    except WrongUse as error:
        raise WrongUse(f"{path}: {error}") from None
    return shaped


# The modes ----------------------------------------------------------------------------------------


def _campaign(request: _Request, random: bool, family: Family) -> Report:
    """One run, or one per seed."""
    entry = request.entry()
    given = None if random else _shaped(request.scenario or Path())
    updates = UPDATES if request.updates is None else request.updates
    campaign = Campaign(entry, given, updates, request.knobs, family=family)
    seeds, mode = request.seeds, "--random" if random else ""
    mode += " --views" if family == "views" else ""
    several = len(seeds) > 1
    words = f"--seeds {seeds[0]}..{seeds[-1]}" if several else f"--seed {seeds[0]}"
    report = Report(entry, request.repeated(mode, words))
    report.knobs = _announce(request, campaign)
    progress = _Progress(len(seeds))
    if several:
        for tally in campaign.in_parallel(seeds, request.workers):
            report.tally.add(tally)
            progress.at(report.tally)
        if report.tally.vacuous:
            report.vacuous = (
                f"only {report.tally.concurrent} answers in {report.tally.runs} runs met a "
                "concurrent update, so these runs could not have failed"
            )
    else:
        judged = campaign.run(seeds[0])
        report.tally.took(judged)
        if judged.trouble is not None:
            report.tally.troubles.append((seeds[0], judged.trouble))
        _write_trace(request, judged.outcome)
    report.seconds = progress.seconds()
    _write_down(request, campaign, report)
    return report


def _announce(request: _Request, campaign: Campaign) -> dict[str, Any]:
    """Says seed and knobs, before anything else; returns them."""
    seeds = request.seeds
    request.say(f"protocol {campaign.entry.name}, which claims {campaign.entry.level}")
    if len(seeds) == 1:
        shaped = campaign.shaped(seeds[0])
        schedule = campaign.schedule(seeds[0]).settled(shaped.scenario.catalog.sources)
        request.say(f"scenario {shaped.form.get('name') or shaped.shape}")
        request.say(f"knobs {schedule.in_words()}")
        return schedule.to_json()
    drawn = "" if campaign.given_scenario else f", scenarios of {campaign.updates} updates drawn"
    given = ", ".join(f"{knob} {value}" for knob, value in campaign.given.items()) or "none"
    request.say(f"seeds {seeds[0]}..{seeds[-1]} ({request.workers} workers){drawn}")
    request.say(f"knobs given: {given}; all others drawn from each seed")
    return dict(campaign.given)


class _Progress:
    """A line on stderr now and then."""

    def __init__(self, runs: int | None) -> None:
        self._of = "" if runs is None else f" of {runs:,}"
        self.begun = self._last = time.monotonic()

    def at(self, tally: Tally) -> None:
        now = time.monotonic()
        if now - self._last < _PATIENCE:
            return
        self._last = now
        speed, troubles = tally.runs / (now - self.begun), len(tally.troubles)
        words = f"{tally.runs:,}{self._of} runs, {speed:.0f}/s, {troubles:,} with trouble"
        if tally.troubles:
            words += f", the first with seed {tally.troubles[0][0]}"
        Console(stderr=True).print(Text(words, style="dim"))

    def seconds(self) -> float:
        return time.monotonic() - self.begun


def _explored(request: _Request) -> Report:
    """All schedules of a scenario."""
    entry, shaped = request.entry(), _shaped(request.scenario or Path())
    exploration = Exploration(shaped.scenario, entry)
    report = Report(entry, request.repeated("--exhaustive", ""), schedules=0)
    request.say(f"protocol {entry.name}, which claims {entry.level}")
    request.say(f"scenario {shaped.form.get('name') or shaped.shape}, all schedules")
    progress = _Progress(None)
    failing: WrittenRun | None = None
    try:
        for number, outcome in enumerate(exploration.schedules(), 1):
            trouble = trouble_of(
                shaped.scenario, entry, outcome, number % 200 == 0, exploration.contents
            )
            report.tally.took(Judged(outcome, trouble))
            if trouble is not None:
                report.tally.troubles.append((number, trouble))
                failing = failing or WrittenRun(shaped.form, entry.name, outcome.choices, trouble)
            progress.at(report.tally)
    except Exception as error:
        words = f"{type(error).__name__}: {error}; the schedules behind it were not tried"
        report.tally.troubles.append((report.tally.runs + 1, Trouble("broke", words)))
        if request.verbose:
            Console(stderr=True).print_exception()
    report.seconds = progress.seconds()
    report.schedules = report.tally.runs
    if report.tally.runs > 1 and not report.tally.concurrent:
        report.vacuous = "in none of the schedules did an answer meet a concurrent update"
    if failing is not None:
        report.files.append(_saved(request, failing, f"{entry.name}-exhaustive"))
    return report


def _replayed(request: _Request, path: Path) -> Report:
    """A run that was written down, once more."""
    written = written_run_from_json(_read(path))
    entry = protocol_named(request.protocol or written.protocol)
    report = Report(entry, f"viewsweep simulate --replay {path} --protocol {entry.name}")
    request.say(f"protocol {entry.name}, which claims {entry.level}")
    if isinstance(written.schedule, Schedule):
        request.say(f"knobs {written.schedule.in_words()}")
    else:
        request.say(f"one of all schedules, {len(written.schedule)} choices given")
    judged = written.again(entry)
    report.tally.took(judged)
    if judged.trouble is not None:
        seed = written.schedule.seed if isinstance(written.schedule, Schedule) else 0
        report.tally.troubles.append((seed, judged.trouble))
    if judged.trouble != written.trouble:
        request.say(f"written down was: {_told(written.trouble)}", "yellow")
    _write_trace(request, judged.outcome)
    return report


# What is left behind ------------------------------------------------------------------------------


def _write_trace(request: _Request, outcome: Outcome | None) -> None:
    if request.trace is None:
        return
    if outcome is None:
        request.say("no trace was written: the run did not come to its end", "yellow")
        return
    try:
        request.trace.write_bytes(b"".join(outcome.lines))
    except OSError as error:
        raise WrongUse(f"{request.trace} cannot be written: {error.strerror or error}") from None


def _write_down(request: _Request, campaign: Campaign, report: Report) -> None:
    """The first failing run of each kind, made small if that is wished."""
    for _, kind in _KINDS:
        for seed, trouble in report.tally.of(kind)[:1]:
            form, schedule = campaign.shaped(seed).form, campaign.schedule(seed)
            written = WrittenRun(form, campaign.entry.name, schedule, trouble)
            if request.shrink:
                Console(stderr=True).print(Text(f"making seed {seed} small …", style="dim"))
                written = shrunk(form, campaign.entry, schedule)
            name = f"{campaign.entry.name}-seed-{seed}"
            report.files.append(_saved(request, written, name))
            if trouble.traceback is not None:
                (request.failures / f"{name}.traceback.txt").write_text(trouble.traceback)
                if request.verbose:
                    Console(stderr=True).print(Text(trouble.traceback))


def _saved(request: _Request, written: WrittenRun, name: str) -> str:
    path = request.failures / f"{name}.json"
    try:
        request.failures.mkdir(parents=True, exist_ok=True)
        path.write_bytes(orjson.dumps(written.to_json(), option=orjson.OPT_INDENT_2))
    except OSError as error:
        raise WrongUse(f"{path} cannot be written: {error.strerror or error}") from None
    return str(path)


# Telling ------------------------------------------------------------------------------------------


def _show(request: _Request, report: Report) -> None:
    if request.json:
        sys.stdout.write(orjson.dumps(report.to_json()).decode() + "\n")
        return
    for line, style in _lines(report):
        request.say(line, style)


def _lines(report: Report) -> Iterator[tuple[str, str]]:
    tally = report.tally
    exhaustive = report.schedules is not None
    what = "schedule" if exhaustive else "run"
    whats = what if tally.runs == 1 else f"{what}s"
    yield "", ""
    for number, trouble in tally.troubles[:_TOLD]:
        yield f"{'schedule' if exhaustive else 'seed'} {number}: {_told(trouble)}", "red"
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


def _told(trouble: Trouble | None) -> str:
    if trouble is None:
        return "nothing wrong"
    reached = f" (level reached: {trouble.reached})" if trouble.reached else ""
    return f"{trouble.kind}: {trouble.words}{reached}"
