"""The command `viewsweep`: one subcommand per thing that a user wants to do.

Exit codes: 0 success, 1 a check failed, 2 wrong usage, 3 an error at run time. Every error is one
message on stderr. If it may be a defect of viewsweep, the message names a file with the traceback.
"""

import contextlib
import importlib.metadata
import os
import sys
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.markup import escape

from cli.advise import advise
from cli.bench import bench
from cli.check import check
from cli.compare import compare, protocols
from cli.demo import demo
from cli.explain import constructs, explain
from cli.reports import message_of, without_tracebacks
from cli.run import run
from cli.simulate import simulate
from cli.sources import app as sources_app
from cli.trace import trace
from infra.errors import InfraError
from protocols.errors import ViewsweepError

#: Typer's exit code for Ctrl-C, which it does not report.
_INTERRUPTED = 130

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Keep provably consistent views of databases that you do not own, as Delta tables.",
)
app.add_typer(sources_app, name="sources")
app.command()(run)
app.command()(check)
app.command()(trace)
app.command()(explain)
app.command()(advise)
app.command()(simulate)
app.command()(compare)
app.command()(demo)
app.command()(bench)
app.command()(protocols)
app.command()(constructs)


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
    """Keep provably consistent views of databases that you do not own, as Delta tables."""


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
    """Ends without Python's teardown, in which DuckDB's binding reports leaks if pyspark or Flight
    are loaded too. Everything that has to be closed is closed by now.
    """
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        pass  # the reader has seen enough
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
