"""`viewsweep simulate`: runs a protocol over a scenario under schedules drawn from a seed.

The output begins with the seed and every knob, and ends with a command that repeats the run. Exit
code 0: all runs were right; 1: a run was below the level that the protocol claims or asked too
much, or no run had any concurrency; 2: wrong use; 3: viewsweep itself broke in a run.
"""

import sys
import time
from pathlib import Path
from typing import Any

import orjson
import typer
from rich.console import Console
from rich.text import Text

from cli.simulateoptions import SimulateOptions
from cli.simulatereport import KINDS, SimulationReport, lines, told
from infra.options import taking
from protocols.errors import ViewRefused, ViewsweepError, WrongUse
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
from protocols.simulation.exhaustive import Exploration, OneOfAll
from protocols.simulation.failure import RecordedRun, recorded_run_from_json
from protocols.simulation.journal import Outcome
from protocols.simulation.scenario import scenario_from_json
from protocols.simulation.schedule import Schedule
from protocols.simulation.shrinking import shrunk

#: Seconds between two lines about the progress of a long campaign.
_PATIENCE = 5.0


@taking(SimulateOptions)
def simulate(options: SimulateOptions) -> None:
    """Simulate a protocol under random schedules, or under all possible ones.

    Options of the schedule that you do not give are chosen at random from the seed.
    """
    try:
        options.refuse_contradictions()
        report = _report(options)
    except ViewsweepError as error:
        known = isinstance(error, ViewRefused) and options.scenario
        where = f"{options.scenario}, its view, " if known else ""
        Console(stderr=True).print(Text(f"simulate: {where}{error}", style="red"), soft_wrap=True)
        raise typer.Exit(error.exit_code) from None
    if options.json:
        sys.stdout.write(orjson.dumps(report.to_json()).decode() + "\n")
    else:
        for line, style in lines(report):
            options.say(line, style)
    raise typer.Exit(report.exit_code)


def _report(options: SimulateOptions) -> SimulationReport:
    """The report of the mode asked for."""
    if options.replay is not None:
        return _replayed(options, options.replay)
    return _explored(options) if options.exhaustive else _campaign(options)


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


def _campaign(options: SimulateOptions) -> SimulationReport:
    """Does one run, or one for each seed."""
    entry = options.entry()
    given = None if options.random else _shaped(options.scenario or Path())
    updates = UPDATES if options.updates is None else options.updates
    family: Family = "views" if options.views else "joins"
    campaign = Campaign(entry, given, updates, options.knobs, family=family)
    seeds, mode = options.range_of_seeds, "--random" if options.random else ""
    mode += " --views" if options.views else ""
    several = len(seeds) > 1
    words = f"--seeds {seeds[0]}..{seeds[-1]}" if several else f"--seed {seeds[0]}"
    report = SimulationReport(entry, options.repeated(mode, words))
    report.knobs = _announce(options, campaign)
    progress = _Progress(len(seeds))
    if several:
        for tally in campaign.in_parallel(seeds, options.processes):
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
        _write_trace(options, judged.outcome)
    report.seconds = progress.seconds()
    _write_down(options, campaign, report)
    return report


def _announce(options: SimulateOptions, campaign: Campaign) -> dict[str, Any]:
    """Prints seed and knobs, before anything else; returns the knobs."""
    seeds = options.range_of_seeds
    options.say(f"protocol {campaign.entry.name}, which claims {campaign.entry.level}")
    if len(seeds) == 1:
        shaped = campaign.shaped(seeds[0])
        schedule = campaign.schedule(seeds[0]).settled(shaped.scenario.catalog.sources)
        options.say(f"scenario {shaped.form.get('name') or shaped.shape}")
        options.say(f"knobs {schedule.in_words()}")
        return schedule.to_json()
    drawn = "" if campaign.given_scenario else f", scenarios of {campaign.updates} updates drawn"
    given = ", ".join(f"{knob} {value}" for knob, value in campaign.given.items()) or "none"
    options.say(f"seeds {seeds[0]}..{seeds[-1]} ({options.processes} workers){drawn}")
    options.say(f"knobs given: {given}; all others drawn from each seed")
    return dict(campaign.given)


class _Progress:
    """The progress of a campaign: a line on stderr now and then."""

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


def _explored(options: SimulateOptions) -> SimulationReport:
    """Runs all schedules of a scenario."""
    entry, shaped = options.entry(), _shaped(options.scenario or Path())
    reads = options.knobs.get("reads", "versions")
    exploration = Exploration(shaped.scenario, entry, reads)
    report = SimulationReport(entry, options.repeated("--exhaustive", ""), schedules=0)
    options.say(f"protocol {entry.name}, which claims {entry.level}")
    name = shaped.form.get("name") or shaped.shape
    options.say(f"scenario {name}, all schedules, reads {reads}")
    progress = _Progress(None)
    failing: RecordedRun | None = None
    try:
        for number, outcome in enumerate(exploration.schedules(), 1):
            trouble = trouble_of(
                shaped.scenario, entry, outcome, number % 200 == 0, exploration.contents
            )
            report.tally.took(Judged(outcome, trouble))
            if trouble is not None:
                report.tally.troubles.append((number, trouble))
                one = OneOfAll(outcome.choices, reads)
                failing = failing or RecordedRun(shaped.form, entry.name, one, trouble)
            progress.at(report.tally)
    except Exception as error:
        words = f"{type(error).__name__}: {error}; the schedules after it were not tried"
        report.tally.troubles.append((report.tally.runs + 1, Trouble("broke", words)))
        if options.verbose:
            Console(stderr=True).print_exception()
    report.seconds = progress.seconds()
    report.schedules = report.tally.runs
    if report.tally.runs > 1 and not report.tally.concurrent:
        report.vacuous = "in none of the schedules did an answer meet a concurrent update"
    if failing is not None:
        report.files.append(_saved(options, failing, f"{entry.name}-exhaustive"))
    return report


def _replayed(options: SimulateOptions, path: Path) -> SimulationReport:
    """Repeats a run from a file."""
    written = recorded_run_from_json(_read(path))
    entry = protocol_named(options.protocol or written.protocol)
    report = SimulationReport(entry, f"viewsweep simulate --replay {path} --protocol {entry.name}")
    options.say(f"protocol {entry.name}, which claims {entry.level}")
    if isinstance(written.schedule, Schedule):
        options.say(f"knobs {written.schedule.in_words()}")
    else:
        given = len(written.schedule.choices)
        options.say(f"one of all schedules, reads {written.schedule.reads}, {given} choices given")
    judged = written.again(entry)
    report.tally.took(judged)
    if judged.trouble is not None:
        seed = written.schedule.seed if isinstance(written.schedule, Schedule) else 0
        report.tally.troubles.append((seed, judged.trouble))
    if judged.trouble != written.trouble:
        options.say(f"written down was: {told(written.trouble)}", "yellow")
    _write_trace(options, judged.outcome)
    return report


# The files ----------------------------------------------------------------------------------------


def _write_trace(options: SimulateOptions, outcome: Outcome | None) -> None:
    if options.trace is None:
        return
    if outcome is None:
        options.say("no trace was written: the run did not end", "yellow")
        return
    try:
        options.trace.write_bytes(b"".join(outcome.lines))
    except OSError as error:
        raise WrongUse(f"{options.trace} cannot be written: {error.strerror or error}") from None


def _write_down(options: SimulateOptions, campaign: Campaign, report: SimulationReport) -> None:
    """Writes the first failing run of each kind to a file, shrunk unless --no-shrink."""
    for _, kind in KINDS:
        for seed, trouble in report.tally.of(kind)[:1]:
            form, schedule = campaign.shaped(seed).form, campaign.schedule(seed)
            written = RecordedRun(form, campaign.entry.name, schedule, trouble)
            if options.shrink:
                Console(stderr=True).print(Text(f"shrinking seed {seed} …", style="dim"))
                written = shrunk(form, campaign.entry, schedule)
            name = f"{campaign.entry.name}-seed-{seed}"
            report.files.append(_saved(options, written, name))
            if trouble.traceback is not None:
                (options.failures / f"{name}.traceback.txt").write_text(trouble.traceback)
                if options.verbose:
                    Console(stderr=True).print(Text(trouble.traceback))


def _saved(options: SimulateOptions, written: RecordedRun, name: str) -> str:
    path = options.failures / f"{name}.json"
    try:
        options.failures.mkdir(parents=True, exist_ok=True)
        path.write_bytes(orjson.dumps(written.to_json(), option=orjson.OPT_INDENT_2))
    except OSError as error:
        raise WrongUse(f"{path} cannot be written: {error.strerror or error}") from None
    return str(path)
