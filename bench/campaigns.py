"""Long campaigns of every protocol: tens of thousands simulated, then live. Part of `make soak`.

Simulated: random scenarios with all knobs drawn; no run may be below the level that the protocol
claims, none may ask too much, and the control has to be caught. The same with random SQL beyond
inner joins, for the protocols that keep it: the number of different plans, and the operators that
were in use while an answer contained concurrent updates. Then all schedules of a small scenario for
the three most important protocols, and of a smaller one over sources with holes and with windows.
Live: `viewsweep demo` with each protocol, broker, sources, Spark and Delta included, judged by the
checker.
"""

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from protocols.maintenance.registry import PROTOCOLS, Entry

_VIEWSWEEP = [sys.executable, "-m", "cli.main"]
_SCENARIOS = Path(__file__).parents[1] / "examples/scenarios"
_SMALL = _SCENARIOS / "three-sources-four-updates.json"
#: Its relations have keys, which windows need, and one of its updates depends on another.
_SMALLER = _SCENARIOS / "two-keyed-sources-four-updates.json"
#: Their runs cost several times as much, so they get a fifth of the runs.
_DEAR = ("c-strobe", "eca", "eca-key", "eca-local", "lca")
_EXHAUSTIVE = ("sweep", "nested-sweep", "batched-sweep")
#: The ways in which foreign sources read, and the protocols that keep a view over them.
_READS, _READERS = (
    ("holes", "windows"),
    ("sweep", "nested-sweep", "pipelined-sweep", "batched-sweep"),
)
#: Protocol → the share of the runs with random views that it makes.
_VIEWS = {"batched-sweep": 1.0, "sweep": 0.05}
#: Runs of the control with random views, and the least share of them that has to be wrong.
_CONTROLS, _CAUGHT = 200, 0.25


def main(
    runs: Annotated[int, typer.Option(help="Simulated runs per protocol.")] = 100_000,
    views: Annotated[int, typer.Option(help="Simulated runs with random views.")] = 100_000,
    updates: Annotated[int, typer.Option(help="Updates of a live run; 0 for no live runs.")] = 2000,
    failures: Annotated[Path, typer.Option(help="Directory for the files of failing runs.")] = Path(
        ".viewsweep/failures"
    ),
) -> None:
    """Run the campaigns; exit code 1 if one of them failed."""
    wrong: list[str] = []
    wrong += _simulated(runs, failures) if runs else []
    wrong += _with_views(views, failures) if views else []
    wrong += _exhaustive()
    if updates:
        wrong += _live(updates)
    for words in wrong:
        Console(stderr=True).print(f"[red]{words}[/red]")
    raise typer.Exit(1 if wrong else 0)


def _simulated(runs: int, failures: Path) -> list[str]:
    table = Table(
        "protocol", "runs", "below", "asked too much", "states", "met", "runs/s", box=None
    )
    wrong, total, began = [], 0, time.monotonic()
    for entry, count, reads in _planned(runs):
        options = f"--random --protocol {entry.name} --seeds 1..{count} --no-shrink --json"
        options += f" --reads {reads}" if reads else ""
        code, found = _json(["simulate", *options.split(), "--failures", str(failures)])
        below, asked = len(found.get("wrong", ())), int(found.get("bound_exceeded", 0))
        table.add_row(
            f"{entry.name}, {reads}" if reads else entry.name,
            f"{found.get('runs', 0):,}",
            f"{below:,}",
            f"{asked:,}",
            f"{found.get('states', 0):,}",
            f"{found.get('concurrent_answers', 0):,}",
            f"{found.get('runs_per_second', 0):,.0f}",
        )
        total += int(found.get("runs", 0))
        Console(stderr=True).print(f"{entry.name}: exit code {code}, {total:,} runs so far")
        if code != (1 if entry.control else 0):
            wrong.append(f"simulate {options}: exit code {code}")
    Console().print(table)
    spent = time.monotonic() - began
    Console().print(f"{total:,} runs in {spent:,.0f} s: {total / spent:,.0f} runs/s")
    return wrong


def _planned(runs: int) -> Iterator[tuple[Entry, int, str | None]]:
    """Protocol, runs, and the way in which sources read (drawn if None)."""
    for entry in PROTOCOLS.values():
        # The control fails in most of its runs, so a few are enough.
        count = min(runs, 200) if entry.control else runs // 5 if entry.name in _DEAR else runs
        yield entry, count, None
    for reads in _READS:
        for name in _READERS:
            yield PROTOCOLS[name], max(1, runs // 4), reads


def _with_views(runs: int, failures: Path) -> list[str]:
    """Runs random SQL beyond inner joins."""
    counts = {name: max(1, int(runs * share)) for name, share in _VIEWS.items()}
    table = Table("views", "runs", "below", "plans", "states", "met", "runs/s", box=None)
    met: Counter[str] = Counter()
    wrong = []
    for name, count in {**counts, "naive": min(runs, _CONTROLS)}.items():
        control = PROTOCOLS[name].control
        options = f"--random --views --protocol {name} --seeds 1..{count} --no-shrink --json"
        code, found = _json(["simulate", *options.split(), "--failures", str(failures)])
        below = len(found.get("wrong", ()))
        kept = ("runs", "plans", "states", "concurrent_answers", "runs_per_second")
        made, plans, states, differed, speed = (f"{found.get(each, 0):,.0f}" for each in kept)
        table.add_row(name, made, f"{below:,}", plans, states, differed, speed)
        if control and below < _CAUGHT * count:
            wrong.append(f"simulate {options}: only {below} of {count} runs were wrong")
        elif not control:
            met.update(found.get("operators_met", {}))
            if code:
                wrong.append(f"simulate {options}: exit code {code}")
    Console().print(table)
    operators = ", ".join(f"{name} {number:,}" for name, number in sorted(met.items()))
    Console().print(f"operators in use while an answer differed, with runs: {operators}")
    return wrong


def _exhaustive() -> list[str]:
    wrong = []
    for name, scenario, reads in _explored():
        options = ["--exhaustive", "--reads", reads, "--protocol", name, "--json"]
        code, found = _json(["simulate", str(scenario), *options])
        schedules = f"all {found.get('runs', 0):,} schedules of {scenario.name}, reads {reads}"
        Console().print(f"{name}: {schedules}")
        if code:
            wrong.append(f"simulate {scenario} {' '.join(options)}: exit code {code}")
    return wrong


def _explored() -> Iterator[tuple[str, Path, str]]:
    """Protocol, scenario, and the way in which its sources read."""
    for name in _EXHAUSTIVE:
        yield name, _SMALL, "versions"
    for reads in _READS:
        for name in _EXHAUSTIVE:
            yield name, _SMALLER, reads


def _live(updates: int) -> list[str]:
    wrong = []
    for entry in PROTOCOLS.values():
        began = time.monotonic()
        arguments = [*_VIEWSWEEP, "demo", "--protocol", entry.name, "--updates", str(updates)]
        # The ECA family's work grows with the square of the backlog from Spark's start.
        arguments += ["--rate", "4"] if entry.one_source else []
        run = subprocess.run(arguments, capture_output=True, text=True, check=False)
        Console().print(
            f"live {entry.name}: {_verdict(run.stdout)} {time.monotonic() - began:.0f} s"
        )
        if run.returncode != _expected(entry):
            wrong.append(f"demo --protocol {entry.name}: exit code {run.returncode}\n{run.stderr}")
    return wrong


def _expected(entry: Entry) -> int:
    return 1 if entry.control else 0


def _verdict(output: str) -> str:
    """The first line and the figures of the checker's output."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    kept = [
        " ".join(line.split())
        for line in lines
        if line.split()[0] in ("VALID", "INVALID", "level", "updates", "states", "queries")
    ]
    return "; ".join(kept)


def _json(arguments: list[str]) -> tuple[int, dict[str, Any]]:
    run = subprocess.run([*_VIEWSWEEP, *arguments], stdout=subprocess.PIPE, text=True, check=False)
    try:
        found: dict[str, Any] = json.loads(run.stdout)
    except json.JSONDecodeError:
        found = {}
    return run.returncode, found


if __name__ == "__main__":
    typer.run(main)
