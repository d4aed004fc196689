"""`viewsweep status`: what a running job says of itself."""

import sys
import time
from pathlib import Path
from typing import Annotated

import orjson
import typer
from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from cli.common import ConfigOption, page_packages
from protocols.errors import WrongUse
from streaming.figures.status import JobStatus
from streaming.liveview import facts
from streaming.settings.configuration import read_configuration

_EVERY_SECONDS = 1.0
_NOT_READY = 1


def status(
    config: ConfigOption = Path("warehouse.toml"),
    watch: Annotated[
        bool, typer.Option("--watch", help="Renew it every second; Ctrl-C ends it.")
    ] = False,
    json: Annotated[
        bool,
        typer.Option(
            "--json", help="The whole status as a line of JSON; with --watch, a line a second."
        ),
    ] = False,
) -> None:
    """Show the status of the running job that has this configuration, as its [page] gives it.

    Exit code 1 if a view is not kept up to date, 3 if no job answers.
    """
    page = read_configuration(config).page
    if page is None:
        raise WrongUse(
            f"{config} has no section [page], so its job shows its status nowhere. Add [page] with"
            ' listen = "127.0.0.1:8090" and start the job again'
        )
    with page_packages():
        from page.asking import status_at
        from page.health import unready
        from page.serving import token_of
    token = token_of(page)
    found = status_at(page, token)
    if not watch:
        _show(found, json)
        reasons = unready(found)
        if reasons:
            raise typer.Exit(_NOT_READY)
        return
    with Live(console=Console(), auto_refresh=False) as live:
        while True:
            if json:
                _show(found, json)
                sys.stdout.flush()
            else:
                live.update(_drawn(found), refresh=True)
            time.sleep(_EVERY_SECONDS)
            found = status_at(page, token)


def _show(found: JobStatus, json: bool) -> None:
    if json:
        sys.stdout.write(orjson.dumps(found.to_json()).decode() + "\n")
    else:
        Console().print(_drawn(found))


def _drawn(status: JobStatus) -> Group:
    """The figures of the job, its views and its sources."""
    from page.health import troubles

    job = Table.grid(padding=(0, 2))
    job.add_row("phase", status.phase)
    for name, value in facts(status).items():
        job.add_row(name, escape(value))
    views = _table("view", "position", "backlog", "rows", "protocol", "state")
    for view in status.views:
        state = "failed" if view.failed else "held back" if view.held_back else "kept"
        numbers = (f"{n:,}" for n in (view.position, view.backlog, view.rows))
        views.add_row(escape(view.name), *numbers, view.protocol, state)
    sources = _table("source", "version", "behind", "answers", "errors", "state")
    for source in status.sources:
        state = {True: "answers", False: "silent", None: "-"}[source.reachable]
        figures = source.answers
        behind = "-" if source.behind is None else f"{source.behind.records:,}"
        sources.add_row(
            escape(source.name),
            f"{source.received:,}",
            behind,
            f"{figures.answers:,}",
            f"{figures.errors:,}",
            state,
        )
    said = [Text(each.words, style="red" if each.grave else "yellow") for each in troubles(status)]
    return Group(job, Text(), views, Text(), sources, *([Text(), *said] if said else []))


def _table(first: str, *numbers_and_words: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column(first)
    for number, name in enumerate(numbers_and_words):
        is_word = number == len(numbers_and_words) - 1 or name == "protocol"
        table.add_column(name, justify="left" if is_word else "right")
    return table
