"""`viewsweep run`: the streaming job."""

import contextlib
import sys
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import orjson
import typer

from cli.common import ConfigOption, page_packages, report
from cli.events import LogForm, write_as
from protocols.errors import Unreachable
from protocols.maintenance.registry import PROTOCOLS
from protocols.telling import Told
from streaming.figures.heldback import HeldBack
from streaming.figures.status import JobStatus
from streaming.settings.configuration import Configuration, read_configuration

if TYPE_CHECKING:
    from streaming.job.job import Job


def run(
    config: ConfigOption = Path("warehouse.toml"),
    view: Annotated[
        str | None,
        typer.Option(help="Keep only this view up to date (default: all of the configuration)."),
    ] = None,
    protocol: Annotated[
        str | None,
        typer.Option(
            help=f"Use this protocol, not the configured one: {', '.join(PROTOCOLS)}."
            " `viewsweep protocols` describes them."
        ),
    ] = None,
    once: Annotated[
        bool,
        typer.Option(
            "--once", help="Apply the updates that are in the topics at startup, then stop."
        ),
    ] = False,
    summary: Annotated[
        Path | None, typer.Option(help="Write the run's figures to this file (JSON).")
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="The run's figures on stdout, as one line of JSON.")
    ] = False,
    log: Annotated[
        LogForm,
        typer.Option(help="What stderr gets: text, or json with one event a line (docs/page.md)."),
    ] = LogForm.TEXT,
) -> None:
    """Keep the views up to date: the streaming job. Ctrl-C stops it within two seconds."""
    write_as(log)
    configuration = read_configuration(config)
    chosen = list(configuration.views.values()) if view is None else [configuration.view(view)]
    views = [each if protocol is None else each.with_protocol(protocol) for each in chosen]
    # Imported here: Spark takes seconds to import, and no other command needs it.
    from streaming.eventlines import EventLines
    from streaming.liveview import LiveView
    from streaming.spark.sparkjob import run as run_job
    from streaming.spark.sparkprocess import spark_process

    with spark_process():
        line = LiveView if log is LogForm.TEXT else partial(EventLines, tell=report)
        shown = _page(configuration)
        status, failure = run_job(configuration, views, report, once, shown, line)
    _write(status, summary, json)
    _say_how_it_ended(status)
    if failure is not None:
        raise failure
    _say_what_waits(status.held_back, once)


def _page(configuration: Configuration) -> Callable[["Job"], AbstractContextManager[object]]:
    """A context that shows the job while it runs, if the configuration asks for it."""
    if configuration.page is None:
        return contextlib.nullcontext
    with page_packages():
        from page.shown import shown

    return partial(shown, configuration, report)


def _write(status: JobStatus, summary: Path | None, json: bool) -> None:
    """Writes the run's figures to a file, and to stdout."""
    if summary is not None:
        summary.write_bytes(orjson.dumps(status.to_json(), option=orjson.OPT_INDENT_2))
    if json:
        sys.stdout.write(orjson.dumps(status.to_json()).decode() + "\n")


def _say_how_it_ended(status: JobStatus) -> None:
    for each in status.views:
        how = "stopped" if each.failed is None else "failed"
        words = f"view {each.name}: {how} at position {each.position:,}"
        report(Told(words, view=each.name, position=each.position))
        if each.audit is not None and not each.audit.holds:
            report(Told(f"audit: {each.audit}", view=each.name))
    if status.behind != "-":
        report(f"behind the topics: {status.behind}")


def _say_what_waits(held: Collection[HeldBack], once: bool) -> None:
    """Reports updates that are held back; Unreachable if `once` was to install all of them."""
    if once and held:
        raise Unreachable(
            f"{'. '.join(map(str, held))}. Run the same command again when the missing parts have"
            " arrived in the topics"
        )
    for each in held:
        report(Told(str(each), view=each.view))
