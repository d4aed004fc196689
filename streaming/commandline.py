"""The command `viewsweep`: one subcommand per thing that a user wants to do.

Exit codes: 0 good, 1 the answer is no, 2 wrong use, 3 something broke. Whatever goes wrong is one
message on stderr; only a defect of viewsweep itself shows a traceback.
"""

import os
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import orjson
import typer
from rich.console import Console
from rich.markup import escape

from infra.errors import InfraError
from protocols.errors import ViewsweepError
from protocols.maintenance.registry import PROTOCOLS
from sources.commands import app as sources_app
from streaming.benching import bench
from streaming.checking import check
from streaming.comparing import compare, protocols
from streaming.configuration import read_configuration
from streaming.demo import demo
from streaming.explaining import constructs, explain
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
    """Keep the views up to date: the streaming job. Stops after the current batch on Ctrl-C."""
    configuration = read_configuration(config)
    views = list(configuration.views.values()) if view is None else [configuration.view(view)]
    if protocol is not None:
        views = [settings.with_protocol(protocol) for settings in views]
    # Spark takes seconds to import, and no other command needs it.
    from streaming.sparkjob import run as run_job

    measures = run_job(configuration, views, report, once)
    if summary is not None:
        summary.write_bytes(orjson.dumps(measures.to_json(), option=orjson.OPT_INDENT_2))
    names = " and ".join(settings.name for settings in views)
    report(f"view {names}: stopped at position {measures.position}; nothing is in work")


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


def main() -> None:
    """The entry point: runs the command and turns errors into messages and exit codes."""
    try:
        app(standalone_mode=True)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except (ViewsweepError, InfraError) as error:
        _complain(str(error))
        code = error.exit_code
    if code == _INTERRUPTED:
        _complain("stopped; what was committed stays, and the same command goes on")
    _leave(code)


def _leave(code: int) -> NoReturn:
    """Ends without Python's teardown, in which DuckDB's binding reports leaks when pyspark or
    Flight were loaded beside it. Everything that has to be closed is closed by now.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _complain(message: str) -> None:
    Console(stderr=True).print(f"[red]viewsweep:[/red] {escape(message)}", soft_wrap=True)


if __name__ == "__main__":
    main()
