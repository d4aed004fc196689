"""`viewsweep compare` and `viewsweep protocols`: the protocols side by side.

Exit code of `compare`: 0 when every protocol reached what it claims, 1 when one did not.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import orjson
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cli.markdown import around, put, table, write
from infra.charts import Chart, drawn, refuse_without_altair
from infra.options import taking
from protocols.maintenance.registry import PROTOCOLS, Entry, protocol
from protocols.simulation.comparison import ComparedProtocols, ComparisonSettings, ProtocolLine
from protocols.simulation.comparison import compare as measure

_COMPARED = "compare"
_LISTED = "protocols"


@dataclass(frozen=True)
class Compared:
    """The measurement and its output."""

    only: Annotated[
        list[str] | None,
        typer.Option("--protocol", "-p", help="Only this one; can be repeated."),
    ] = None
    relations: Annotated[
        int, typer.Option(min=2, max=7, help="Relations in the chain join of the first table.")
    ] = ComparisonSettings.relations
    updates: Annotated[int, typer.Option(min=10, help="Updates per measured run.")] = (
        ComparisonSettings.updates
    )
    runs: Annotated[
        int, typer.Option(min=1, help="Random runs per protocol that the checker judges.")
    ] = ComparisonSettings.runs
    json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False
    plot: Annotated[
        Path | None, typer.Option(help="Draw messages per update into this file (SVG).")
    ] = None
    into: Annotated[
        Path | None,
        typer.Option(
            help="Replace the tables in this file: the one between <!-- compare --> and"
            " <!-- end of compare -->, and the one between <!-- protocols --> and"
            " <!-- end of protocols -->."
        ),
    ] = None

    @property
    def settings(self) -> ComparisonSettings:
        """The settings of the comparison."""
        names = tuple(protocol(name).name for name in self.only or PROTOCOLS)
        sizes = tuple(sorted({*ComparisonSettings.sizes, self.relations}))
        return ComparisonSettings(
            names, self.relations, sizes=sizes, updates=self.updates, runs=self.runs
        )


@taking(Compared)
def compare(options: Compared) -> None:
    """Reproduce Table 1 of the SWEEP paper: level reached, messages, bytes and states.

    Then check the claims of the papers.
    """
    if options.into is not None:
        for mark in (_COMPARED, _LISTED):
            around(options.into, mark)
    if options.plot is not None:
        refuse_without_altair()
    found = measure(options.settings, _say)
    if options.plot is not None:
        write(options.plot, drawn(_charts(found)))
        _say(f"{options.plot}: messages per update against pace and against n")
    if options.into is not None:
        put(options.into, _COMPARED, _markdown(found))
        put(options.into, _LISTED, listed())
        _say(f"{options.into}: tables renewed")
    if options.json:
        sys.stdout.write(orjson.dumps(found.to_json()).decode() + "\n")
    else:
        _show(found)
    for name in found.failed:
        _say(f"[red]{name} stayed below the level that it claims[/red]")
    raise typer.Exit(1 if found.failed else 0)


def protocols() -> None:
    """List the protocols with their consistency levels and requirements."""
    console = _console()
    shown = Table(box=None, pad_edge=False)
    for heading in _CAPABILITIES:
        shown.add_column(heading, no_wrap=heading == "protocol", overflow="fold")
    for entry in PROTOCOLS.values():
        shown.add_row(*map(escape, _capabilities(entry)))
    console.print(shown)


def listed() -> str:
    """The capabilities of all protocols, in Markdown."""
    return table(_CAPABILITIES, [_capabilities(entry) for entry in PROTOCOLS.values()])


_CAPABILITIES = ("protocol", "what it does", "level", "needs", "transactions shown atomically")


def _capabilities(entry: Entry) -> list[str]:
    needs = [
        words
        for words, needed in (
            ("one source that evaluates joins", entry.one_source),
            ("all keys in the view", entry.needs_keys),
            ("FIFO channels", entry.fifo),
        )
        if needed
    ]
    whole = "of one source, and global ones" if entry.transactions == "global" else "of one source"
    level = "none: a control" if entry.control else entry.level.name
    return [entry.name, entry.summary, level, ", ".join(needs) or "-", whole]


# The table ----------------------------------------------------------------------------------------

_HEADINGS = (
    "protocol",
    "level reached",
    "messages",
    "bytes",
    "largest",
    "round trips",
    "states",
    "before the last update",
)


def _cells(line: ProtocolLine) -> list[str]:
    rest, load = line.at_rest, line.under_load

    def both(attribute: str, digits: int = 2) -> str:
        values = (getattr(each, attribute) / each.updates for each in (rest, load))
        return " → ".join(f"{value:.{digits}f}" for value in values)

    reached = "none" if line.reached is None else line.reached.name
    if line.below:
        reached += f" (claims {line.entry.level.name})"
    return [
        line.entry.name,
        reached,
        both("questions"),
        both("bytes", 0),
        f"{rest.largest_message} → {load.largest_message}",
        both("round_trips"),
        both("installs"),
        f"{load.installs_meanwhile}, to {load.covered_meanwhile}",
    ]


def _caption(settings: ComparisonSettings) -> str:
    return (
        f"Per update, over a chain of {settings.relations} relations: without concurrency → with"
        f" {settings.paces[-1]:g} updates per round trip. Messages: pairs of a question and its"
        " answer. Bytes: of their keys and rows. Largest: the largest message, in bytes. Before the"
        f" last update: how many states were shown before the last of {settings.updates} updates"
        " arrived, and the number of the latest update that they included. Level reached: the"
        f" weakest that the checker found in {settings.runs} random runs."
    )


def _show(found: ComparedProtocols) -> None:
    console = _console()
    shown = Table(box=None, pad_edge=False)
    for number, heading in enumerate(_HEADINGS):
        side: Literal["left", "right"] = "left" if number < 2 else "right"
        shown.add_column(heading, justify=side, no_wrap=number == 0, overflow="fold")
    for line in found.lines:
        shown.add_row(*_cells(line))
    console.print(shown)
    console.print(f"[dim]{escape(_caption(found.settings))}[/dim]\n")
    for claim in found.claims:
        mark = "[green]holds[/green]  " if claim.holds else "[yellow]does not[/yellow]"
        console.print(f"{mark} {escape(claim.words)}\n         {escape(claim.figures)}")


def _markdown(found: ComparedProtocols) -> str:
    lines = [table(_HEADINGS, [_cells(line) for line in found.lines])]
    lines += ["", _caption(found.settings), ""]
    for claim in found.claims:
        verdict = "holds" if claim.holds else "**does not hold**"
        lines.append(f"- {claim.words}: {verdict}. Measured: {claim.figures}.")
    return "\n".join(lines)


def _charts(found: ComparedProtocols) -> list[Chart]:
    by_pace, by_size = {}, {}
    for line in found.lines:
        name = line.entry.name
        by_pace[name] = [(p, c.per_update(c.questions)) for p, c in line.by_pace.items()]
        by_size[name] = [(n, c.per_update(c.questions)) for n, c in line.by_size.items()]
    last = found.settings.paces[-1]
    return [
        Chart(
            f"Messages per update, {found.settings.relations} relations",
            "updates per round trip",
            "questions per update",
            by_pace,
        ),
        Chart(
            f"Messages per update, {last:g} updates per round trip",
            "relations in the chain (n)",
            "questions per update",
            by_size,
        ),
    ]


def _console() -> Console:
    """A console; a wide one if the output is not a terminal, because tables need room."""
    return Console() if Console().is_terminal else Console(width=120)


def _say(message: str) -> None:
    Console(stderr=True).print(message, highlight=False, soft_wrap=True)
