"""`viewsweep audit`: does a stored view hold now? Looks at a sample of it, without its history.

Exit code 0: all that was looked at is right; 1: something differs; 2: wrong use; 3: a source,
the broker or the lake could not be asked.
"""

import sys
import threading
from pathlib import Path
from typing import Annotated

import orjson
import typer
from rich.console import Console
from rich.text import Text

from cli.common import ConfigOption, report
from protocols.errors import WrongUse
from streaming.figures.audited import Audited, in_words
from streaming.settings.configuration import read_configuration


def audit(
    view: Annotated[str | None, typer.Argument(help="The view; all views if left out.")] = None,
    config: ConfigOption = Path("warehouse.toml"),
    fraction: Annotated[
        float | None,
        typer.Option(help="The share of the view's rows to look at (default 0.01); 1 for all."),
    ] = None,
    rows: Annotated[
        int | None, typer.Option(min=1, help="The number of rows to look at instead.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """Compare random stretches of a view with its sources, as of the view's position."""
    from streaming.auditing import FRACTION, Amount
    from streaming.auditing import audit as audit_view

    if fraction is not None and rows is not None:
        raise WrongUse("--fraction and --rows exclude each other")
    if fraction is not None and not 0 < fraction <= 1:
        raise WrongUse(f"--fraction has to be above 0 and at most 1, not {fraction:g}")
    configuration = read_configuration(config)
    chosen = configuration.views.values() if view is None else [configuration.view(view)]
    amount = Amount(FRACTION if fraction is None else fraction, rows)
    stopping = threading.Event()
    found = [audit_view(configuration, each.name, amount, report, stopping) for each in chosen]
    if json:
        form = [each.to_json() for each in found]
        sys.stdout.write(orjson.dumps(form if view is None else form[0]).decode() + "\n")
    else:
        for each in found:
            _show(each)
    raise typer.Exit(0 if all(each.holds for each in found) else 1)


def _show(audited: Audited) -> None:
    """Prints an audit for a person."""
    console = Console()
    word, style = ("HOLDS", "bold green") if audited.holds else ("DIFFERS", "bold red")
    heading = Text(word, style=style)
    heading.append(f"  view {audited.view} at position {audited.position:,}", style="default")
    console.print(heading)
    vector = " ".join(f"{source}:{version}" for source, version in audited.vector.items())
    console.print(Text(f"vector     {vector}"))
    looked = f"{audited.rows:,} of {audited.of:,}, in {audited.stretches:,} stretches"
    console.print(Text(f"rows       {looked}"))
    console.print(
        Text(f"questions  {audited.questions:,}, {audited.bytes:,} bytes, {audited.seconds:.1f} s")
    )
    if audited.wrong:
        after = "" if audited.first_after is None else f"; the first after {audited.first_after:,}"
        console.print(Text(f"differ     {audited.wrong:,} rows{after}"))
    for difference in audited.differences:
        console.print(Text(f"  {in_words(difference)}"), soft_wrap=True)
    if audited.wrong > len(audited.differences):
        console.print(Text(f"  and {audited.wrong - len(audited.differences):,} more"))
    for trouble in audited.troubles:
        console.print(Text(trouble, style="red"), soft_wrap=True)
