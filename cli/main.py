"""The command `viewsweep`: one subcommand per thing that a user wants to do.

Exit codes: 0 success, 1 a check failed, 2 wrong usage, 3 an error at run time. Every error is one
message on stderr. If it may be a defect of viewsweep, the message names a file with the traceback.
"""

import contextlib
import importlib
import importlib.metadata
import os
import sys
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer

from cli.events import complain
from cli.reports import message_of, without_tracebacks
from infra.errors import InfraError
from protocols.errors import ViewsweepError

#: Typer's exit code for Ctrl-C, which it does not report.
_INTERRUPTED = 130
#: Command → its module, in the order of the help.
_COMMANDS = {
    "run": "cli.run",
    "status": "cli.status",
    "page": "cli.page",
    "check": "cli.check",
    "audit": "cli.audit",
    "trace": "cli.trace",
    "explain": "cli.explain",
    "advise": "cli.advise",
    "rules": "cli.rules",
    "simulate": "cli.simulate",
    "compare": "cli.compare",
    "demo": "cli.demo",
    "bench": "cli.bench",
    "protocols": "cli.compare",
    "constructs": "cli.explain",
}
#: Group of commands → the module of its `app`.
_GROUPS = {"sources": "cli.sources"}


def command_line(arguments: Sequence[str] = ()) -> typer.Typer:
    """The command that the arguments begin with, or else all: their imports take a second."""
    app = typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        help="Keep provably consistent views of databases that you do not own, as Delta tables.",
    )
    app.callback()(options)
    every = {**_GROUPS, **_COMMANDS}
    for name in arguments[:1] if every.keys() & set(arguments[:1]) else every:
        module = importlib.import_module(every[name])
        if name in _GROUPS:
            app.add_typer(module.app, name=name)
        else:
            app.command(name)(getattr(module, name))
    return app


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"viewsweep {importlib.metadata.version('viewsweep')}")
        raise typer.Exit


def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", is_eager=True, callback=_version
        ),
    ] = False,
) -> None:
    """Keep provably consistent views of databases that you do not own, as Delta tables."""


def main() -> None:
    """The entry point: runs the command and turns errors into messages and exit codes."""
    without_tracebacks(complain)
    try:
        command_line(sys.argv[1:])(standalone_mode=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except InfraError as error:
        complain(str(error))
        code = error.exit_code
    except KeyboardInterrupt:
        code = _INTERRUPTED
    except BaseException as error:
        message, code = message_of(error)
        complain(message)
    if code == _INTERRUPTED:
        complain("stopped; what was committed stays, and the same command goes on")
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
        complain(f"not all of the output could be written: {error.strerror}")
        code = code or ViewsweepError.exit_code
    with contextlib.suppress(OSError):
        sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
