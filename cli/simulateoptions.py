"""The options of `viewsweep simulate`, with their help and their allowed combinations."""

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from protocols.errors import WrongUse
from protocols.maintenance.registry import PROTOCOLS, Entry
from protocols.maintenance.registry import protocol as protocol_named

_EXAMPLE = "examples/scenarios/three-sources-four-updates.json"


@dataclass(frozen=True)
class SimulateOptions:
    """The command line, as it was given."""

    scenario: Annotated[
        Path | None, typer.Argument(help="Scenario (JSON) to run; none with --random.")
    ] = None
    protocol: Annotated[str | None, typer.Option(help=f"The protocol: {', '.join(PROTOCOLS)}.")] = (
        None
    )
    seed: Annotated[int | None, typer.Option(help="Seed of one run (default: 0).")] = None
    seeds: Annotated[
        str | None, typer.Option(help="Range of seeds, one run each, such as 1..20000.")
    ] = None
    random: Annotated[
        bool, typer.Option("--random", help="Choose the scenario at random, too.")
    ] = False
    views: Annotated[
        bool,
        typer.Option(
            "--views", help="Use random views that go beyond inner joins (with --random)."
        ),
    ] = False
    exhaustive: Annotated[
        bool, typer.Option("--exhaustive", help="Try all schedules of a small scenario.")
    ] = False
    replay: Annotated[Path | None, typer.Option(help="Repeat the failing run in this file.")] = None
    trace: Annotated[
        Path | None, typer.Option(help="Write the trace of the run (JSON Lines), for `check`.")
    ] = None
    json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False
    algebra: Annotated[
        str | None,
        typer.Option(
            help="How rows are represented: bag (default; fast for few rows) or frame (as in a"
            " job)."
        ),
    ] = None
    stale: Annotated[
        bool | None,
        typer.Option("--stale/--no-stale", help="Let sources answer from older versions."),
    ] = None
    partitions: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of parts into which each relation is split; each part is read at a"
            " different time.",
        ),
    ] = None
    reads: Annotated[
        str | None,
        typer.Option(
            help="What an answer shows: one version (versions), a snapshot that lacks transactions"
            " (holes), or rows read one after another (windows)."
        ),
    ] = None
    copies: Annotated[
        str | None,
        typer.Option(
            help="Relations for which a local copy answers instead of the source: none, some, all."
        ),
    ] = None
    slices: Annotated[
        int | None,
        typer.Option(
            min=1, help="Maximum number of slices into which a batch is cut for executors."
        ),
    ] = None
    crashes: Annotated[
        int | None, typer.Option(min=0, help="Maximum number of warehouse crashes in a run.")
    ] = None
    redelivery: Annotated[
        str | None, typer.Option(help="Order of redelivery after a crash: same or other.")
    ] = None
    updates: Annotated[
        int | None, typer.Option(min=0, help="Number of updates in a random scenario.")
    ] = None
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Number of processes for several seeds (default: one per core)."),
    ] = None
    shrink: Annotated[
        bool, typer.Option("--shrink/--no-shrink", help="Shrink the first failing run.")
    ] = True
    failures: Annotated[Path, typer.Option(help="Directory for the files of failing runs.")] = Path(
        ".viewsweep/failures"
    )
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Show the traceback of an internal error.")
    ] = False

    @cached_property
    def knobs(self) -> dict[str, Any]:
        """The knobs that were given, by name."""
        names = ("algebra", "stale", "partitions", "reads", "copies", "slices", "crashes")
        given = {name: getattr(self, name) for name in (*names, "redelivery")}
        return {name: value for name, value in given.items() if value is not None}

    @cached_property
    def range_of_seeds(self) -> range:
        """The seeds to run, in order; none if --seeds is not a range."""
        if self.seeds is None:
            return range(self.seed or 0, (self.seed or 0) + 1)
        first, dots, last = self.seeds.partition("..")
        try:
            return range(int(first), int(last) + 1) if dots else range(0)
        except ValueError:
            return range(0)

    @property
    def processes(self) -> int:
        """The number of processes for a campaign."""
        return self.workers or os.cpu_count() or 1

    def entry(self) -> Entry:
        """The protocol that is named."""
        if self.protocol is None:
            raise WrongUse(f"name a protocol: --protocol {' | '.join(PROTOCOLS)}")
        return protocol_named(self.protocol)

    def refuse_contradictions(self) -> None:
        """WrongUse if two options exclude each other, or none says what to run."""
        self._refuse_modes()
        if self.updates is not None and not self.random:
            raise WrongUse("--updates is for random scenarios: it needs --random")
        if self.views and not self.random:
            raise WrongUse("--views is for random scenarios: it needs --random")
        if not self.range_of_seeds:
            raise WrongUse(f"--seeds is a range such as 1..20000, not {self.seeds!r}")
        of_seeds = [knob for knob in self.knobs if not (self.exhaustive and knob == "reads")]
        if of_seeds and (self.exhaustive or self.replay is not None):
            raise WrongUse(f"--{of_seeds[0]} applies only to seeded runs, and this is not one")

    def _refuse_modes(self) -> None:
        seeded = self.seed is not None or self.seeds is not None
        if sum((self.scenario is not None, self.random, self.replay is not None)) != 1:
            hint = f", e.g. {_EXAMPLE}" if self.exhaustive else ""
            raise WrongUse(f"say what to run: a SCENARIO{hint}, or --random, or --replay FILE")
        if self.exhaustive and (self.random or seeded):
            raise WrongUse(
                "--exhaustive tries all schedules of a SCENARIO, so it cannot be combined with"
                " --random, --seed or --seeds"
            )
        if self.seed is not None and self.seeds is not None:
            raise WrongUse("give either --seed N or --seeds N..M, not both")
        if self.trace is not None and (self.exhaustive or self.seeds is not None):
            raise WrongUse("--trace writes the trace of one run: give --seed N")

    def repeated(self, mode: str, seeds: str) -> str:
        """The command that repeats this run."""
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

    def say(self, words: str, style: str = "") -> None:
        """Prints a line; on stderr with --json, where stdout has only the result."""
        Console(stderr=self.json).print(Text(words, style=style), soft_wrap=True)
