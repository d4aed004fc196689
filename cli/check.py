"""`viewsweep check`: reads a trace and says how consistent the run was, and why not more.

Exit code 0: the level is reached; 1: it is not, or could not be decided; 2: wrong use.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO

import orjson
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from protocols.checking.checker import check as judge
from protocols.checking.levels import LEVELS, Level, level_named
from protocols.checking.tracereading import read_trace
from protocols.checking.verdict import Counts, Verdict
from protocols.errors import ViewsweepError, WrongUse
from protocols.maintenance.registry import PROTOCOLS

_STYLES = {"valid": "bold green", "invalid": "bold red", "unknown": "bold yellow"}
_MEANING = {
    "valid": "the run is consistent at the level asked for",
    "invalid": "the run is not consistent at the level asked for",
    "unknown": "the level asked for could be neither shown nor refuted",
}


def check(
    trace: Annotated[Path, typer.Argument(help="Trace to check (JSON Lines); - reads stdin.")],
    level: Annotated[
        str | None,
        typer.Option(
            help=f"Level to check for: {', '.join(map(str, LEVELS))}. "
            "Default: the level that the protocol claims."
        ),
    ] = None,
    any_vectors: Annotated[
        bool,
        typer.Option(
            "--any-vectors",
            help="Ask the weaker question: may the states be right at other vectors than those "
            "that they claim?",
        ),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """Check how consistent a run was: the verdict, the level reached, and why it is no higher."""
    try:
        asked = level_named(level) if level is not None else None
        with _opened(trace) as lines:
            read = read_trace(lines)
        verdict = judge(read, asked or _claimed_by(read.run.protocol), any_vectors=any_vectors)
    except ViewsweepError as error:
        Console(stderr=True).print(Text(f"check: {error}", style="red"), soft_wrap=True)
        raise typer.Exit(error.exit_code) from None
    if json:
        sys.stdout.write(orjson.dumps(verdict.to_json()).decode() + "\n")
    else:
        show_verdict(verdict)
    raise typer.Exit(0 if verdict.verdict == "valid" else 1)


def _claimed_by(protocol: str) -> Level:
    """The level that a protocol promises; WrongUse if there is no such protocol here."""
    if protocol not in PROTOCOLS:
        raise WrongUse(
            f"the level that protocol {protocol!r} claims is unknown; specify a level with"
            f" --level: {', '.join(map(str, LEVELS))}"
        )
    return PROTOCOLS[protocol].level


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    if str(path) == "-":
        yield sys.stdin.buffer
        return
    try:
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise WrongUse(f"{path} cannot be read: {error.strerror or error}") from None


def show_verdict(verdict: Verdict) -> None:
    """Prints the verdict for a person: the verdict, the contradiction, the figures."""
    console = Console()
    heading = Text(verdict.verdict.upper(), style=_STYLES[verdict.verdict])
    heading.append(f"  {_MEANING[verdict.verdict]}", style="default")
    console.print(heading)
    console.print(Text(f"asked for      {verdict.asked}: {verdict.asked.definition}"))
    reached = f"{verdict.reached}: {verdict.reached.definition}" if verdict.reached else "none"
    console.print(Text(f"level reached  {reached}"))
    if verdict.contradiction:
        console.print()
        console.print(Text(verdict.contradiction))
    for finding in verdict.findings:
        if finding != verdict.contradiction:
            console.print(Text(f"also: {finding}", style="dim"))
    if verdict.undecided:
        console.print()
        console.print(Text(f"Not every level could be decided: {verdict.undecided}."))
    if verdict.witness:
        console.print(Text(f"witness        {_witness(verdict)}"))
    for remark in verdict.remarks:
        console.print(Text(f"note: {remark}", style="yellow"))
    console.print()
    console.print(_counts(verdict))


def _witness(verdict: Verdict) -> str:
    """The vectors of the states: all if there are few, else the first and last ones."""
    steps = list(verdict.witness)
    named = [f"{position} → ({_vector(vector)})" for position, vector in steps]
    if len(named) > 5:
        named = [*named[:2], "…", *named[-2:]]
    return ", ".join(named)


def _vector(vector: Mapping[str, int]) -> str:
    return " ".join(f"{source}:{version}" for source, version in vector.items())


def _queries(counts: Counts) -> str:
    """The questions asked and not needed; together n - 1 per update if all sources differ."""
    asked = f"{counts.queries:,} ({counts.queries_per_update:g} per update)"
    return asked + (f", and {counts.skipped:,} not needed" if counts.skipped else "")


def _counts(verdict: Verdict) -> Table:
    counts = verdict.counts
    table = Table(show_header=False, box=None, pad_edge=False)
    rows = [
        ("updates", f"{counts.updates:,}"),
        ("positions", f"{counts.positions:,}"),
        ("states", f"{counts.states:,}"),
        ("queries", _queries(counts)),
        (
            "compensated",
            f"{counts.compensated:,} of {counts.answers:,} answers contained later updates",
        ),
    ]
    if counts.undelivered:
        rows.append(
            (
                "undelivered",
                f"{counts.undelivered:,} commits were not delivered when the trace ended",
            )
        )
    for row in rows:
        table.add_row(*row)
    return table
