"""The command `viewsweep`: one subcommand per thing that a user wants to do.

Exit codes: 0 good, 1 the answer is no, 2 wrong use, 3 something broke. Whatever goes wrong is one
message on stderr. If it may be a defect of viewsweep, the traceback goes into a file that it names.
"""

import contextlib
import importlib.metadata
import os
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, NoReturn

import orjson
import typer
from rich.console import Console
from rich.markup import escape

from infra.errors import InfraError
from protocols.errors import Unreachable, ViewsweepError
from protocols.maintenance.registry import PROTOCOLS
from sources.commands import app as sources_app
from streaming.benching import bench
from streaming.checking import check
from streaming.comparing import compare, protocols
from streaming.configuration import read_configuration
from streaming.demo import demo
from streaming.explaining import constructs, explain
from streaming.heldback import HeldBack
from streaming.reports import message_of, without_tracebacks
from streaming.simulating import simulate

#: What Typer makes of Ctrl-C, without a word.
_INTERRUPTED = 130

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Keep views in Delta tables over databases that you do not own, provably consistent.",
)
app.add_typer(sources_app, name="sources")
app.command()(check)
app.command()(explain)
app.command()(simulate)
app.command()(compare)
app.command()(demo)
app.command()(bench)
app.command()(protocols)
app.command()(constructs)

ConfigOption = Annotated[
    Path, typer.Option("--config", "-c", help="The warehouse.toml that describes everything.")
]
ViewOption = Annotated[
    str | None, typer.Option("--view", help="Which of the views, if there are several.")
]


@app.command()
def run(
    config: ConfigOption = Path("warehouse.toml"),
    view: ViewOption = None,
    protocol: Annotated[
        str | None,
        typer.Option(
            help=f"Instead of the configured one: {', '.join(PROTOCOLS)}."
            " `viewsweep protocols` says what each does and needs."
        ),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Install what is in the topics now, then stop.")
    ] = False,
    summary: Annotated[
        Path | None, typer.Option(help="Write the run's figures to this file (JSON).")
    ] = None,
) -> None:
    """Keep the views up to date: the streaming job. Ctrl-C stops it within two seconds."""
    configuration = read_configuration(config)
    views = list(configuration.views.values()) if view is None else [configuration.view(view)]
    if protocol is not None:
        views = [settings.with_protocol(protocol) for settings in views]
    # Spark takes seconds to import, and no other command needs it.
    from streaming.sparkjob import run as run_job
    from streaming.sparkprocess import spark_process

    with spark_process():
        measures = run_job(configuration, views, report, once)
    if summary is not None:
        summary.write_bytes(orjson.dumps(measures.to_json(), option=orjson.OPT_INDENT_2))
    for name, position in measures.positions.items():
        report(f"view {name}: stopped at position {position:,}")
    if measures.behind:
        report(f"behind the topics: {measures.how_far_behind()}")
    _say_what_waits(measures.held_back.values(), once)


def _say_what_waits(held: Collection[HeldBack], once: bool) -> None:
    """Unreachable if all that is there was to be installed and something had to wait."""
    if once and held:
        raise Unreachable(
            f"{'. '.join(map(str, held))}. The same command goes on when the topics have the rest"
        )
    for each in held:
        report(str(each))


@app.command()
def trace(
    file: Annotated[Path, typer.Argument(help="Where to write the trace (JSON Lines).")],
    config: ConfigOption = Path("warehouse.toml"),
    view: ViewOption = None,
) -> None:
    """Write the trace of a live run, from the topics, Delta and the sources, for `check`."""
    from streaming.tracing import write_live_trace

    configuration = read_configuration(config)
    settings = configuration.view(view)
    positions = write_live_trace(configuration, settings, file)
    report(f"{file}: {positions} positions of view {settings.name}")


def report(message: str) -> None:
    """A line for the person who watches."""
    Console(stderr=True).print(escape(message), highlight=False, soft_wrap=True)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"viewsweep {importlib.metadata.version('viewsweep')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="The version.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    """Keep views in Delta tables over databases that you do not own, provably consistent."""


def main() -> None:
    """The entry point: runs the command and turns errors into messages and exit codes."""
    without_tracebacks(_complain)
    try:
        app(standalone_mode=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except InfraError as error:
        _complain(str(error))
        code = error.exit_code
    except KeyboardInterrupt:
        code = _INTERRUPTED
    except BaseException as error:
        message, code = message_of(error)
        _complain(message)
    if code == _INTERRUPTED:
        _complain("stopped; what was committed stays, and the same command goes on")
    _leave(code)


def _leave(code: int) -> NoReturn:
    """Ends without Python's teardown, in which DuckDB's binding reports leaks when pyspark or
    Flight were loaded beside it. Everything that has to be closed is closed by now.
    """
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        pass  # whoever read it has seen enough
    except OSError as error:
        _complain(f"not all of the output could be written: {error.strerror}")
        code = code or ViewsweepError.exit_code
    with contextlib.suppress(OSError):
        sys.stderr.flush()
    os._exit(code)


def _complain(message: str) -> None:
    with contextlib.suppress(OSError):
        Console(stderr=True).print(f"[red]viewsweep:[/red] {escape(message)}", soft_wrap=True)


if __name__ == "__main__":
    main()
