"""`viewsweep rules`: a view that one PostgreSQL database keeps by itself, without a warehouse.

Exit code 1 if `--check` finds a difference, 2 for a view that rules cannot keep.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import orjson
import typer

from cli.catalogs import CatalogFile, Config, Workload, described
from cli.common import report
from infra.options import taking
from protocols.errors import ViewRefused, WrongUse
from protocols.rules.names import ViewNames
from protocols.rules.script import comparison, installation, removal
from protocols.rules.view import RuledView, read_view, schemas_of
from protocols.views.catalog import Catalog
from streaming.settings.sqlfiles import sql_in

if TYPE_CHECKING:
    import psycopg

#: So many rows of a difference are shown.
_MOST = 20


class Dialect(StrEnum):
    """The databases that rules can be written for."""

    POSTGRES = "postgres"


@dataclass(frozen=True)
class RulesOptions:
    """A view, its relations, and what to do."""

    view: Annotated[
        Path,
        typer.Argument(
            help="The SQL file of the view; its name without .sql becomes the table's.",
            show_default=False,
        ),
    ]
    dialect: Annotated[Dialect, typer.Option(help="The database's dialect.")] = Dialect.POSTGRES
    install: Annotated[
        str | None,
        typer.Option(
            metavar="DSN",
            help="Run the script in this database, postgresql://USER@HOST/DATABASE (the password in"
            " PGPASSWORD), instead of printing it.",
        ),
    ] = None
    on: Annotated[
        str | None,
        typer.Option(metavar="DSN", help="The database in which --drop and --check are run."),
    ] = None
    drop: Annotated[
        bool, typer.Option("--drop", help="Remove the view and its rules, or print how.")
    ] = False
    check: Annotated[
        bool,
        typer.Option("--check", help="Compare the view's table with its query, or print how."),
    ] = False
    config: Config = None
    catalog: CatalogFile = None
    workload: Workload = None
    json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False


@taking(RulesOptions)
def rules(options: RulesOptions) -> None:
    """Write the triggers by which a PostgreSQL database keeps a view of its own tables.

    The table source.relation of the view is table relation of schema source. The view becomes a
    table in schema viewsweep. The keys are read from the database, or from --config, --catalog or
    --workload.

    For example: viewsweep rules open_orders.sql --install postgresql://me@db.example/shop
    """
    if options.drop and (options.check or options.install is not None):
        raise WrongUse("--drop stands alone, or with --on DSN for the database to remove it from")
    dsn = options.install if options.install is not None else options.on
    if options.install is not None and options.on is not None:
        raise WrongUse("give the database once: --install DSN, or --on DSN with --drop or --check")
    if options.on is not None and not (options.drop or options.check):
        raise WrongUse("say what to do there: --check or --drop; --install DSN installs the view")
    name = options.view.stem
    if options.drop:
        _drop(ViewNames(name), dsn)
        return
    sql = sql_in(options.view)
    with _connection(dsn) as connection:
        view = _read(options, name, sql, connection)
        if connection is None:
            _print(view, options)
            return
        if options.install is not None:
            _install(view, connection)
        if options.check:
            _compare(view, connection, options.json)


def _drop(names: ViewNames, dsn: str | None) -> None:
    with _connection(dsn) as connection:
        if connection is None:
            sys.stdout.write(removal(names))
            return
        from sources.postgres.ruled import run

        run(connection, removal(names))
    report(f"view {names.view}: removed")


@contextmanager
def _connection(dsn: str | None) -> "Iterator[psycopg.Connection | None]":
    if dsn is None:
        yield None
        return
    try:
        from sources.postgres.ruled import connected
    except ImportError:
        raise WrongUse(
            "PostgreSQL needs further packages: pip install 'viewsweep[postgres]'"
        ) from None
    with connected(dsn) as connection:
        yield connection


def _read(
    options: RulesOptions, name: str, sql: str, connection: "psycopg.Connection | None"
) -> RuledView:
    try:
        return read_view(name, sql, _catalog(options, sql, connection))
    except ViewRefused as error:
        raise WrongUse(f"{options.view}: {error}") from None


def _catalog(options: RulesOptions, sql: str, connection: "psycopg.Connection | None") -> Catalog:
    given = (options.config, options.catalog, options.workload)
    if connection is None or any(each is not None for each in given):
        return described(*given).catalog
    from sources.postgres.ruled import catalog

    return catalog(connection, schemas_of(sql))


def _print(view: RuledView, options: RulesOptions) -> None:
    script = f"{comparison(view)};\n" if options.check else installation(view)
    if options.json:
        form = {
            "view": view.names.view,
            "table": view.names.table,
            "key": view.key,
            "relations": list(map(str, view.relations)),
            "references": [_verdict(view, number) for number in range(len(view.branches))],
            "script": script,
        }
        sys.stdout.write(orjson.dumps(form).decode() + "\n")
    else:
        sys.stdout.write(script)


def _verdict(view: RuledView, branch: int) -> list[dict[str, str]]:
    return [
        {
            "reference": each.reference,
            "relation": each.relation,
            "place": each.place,
            "inserted": each.inserted,
            "deleted": each.deleted,
            "updated": each.updated,
            "because": each.because,
        }
        for each in view.branches[branch].analysis.references
    ]


def _install(view: RuledView, connection: "psycopg.Connection") -> None:
    from sources.postgres.ruled import rows, run

    run(connection, installation(view))
    [(number,)] = rows(connection, f"SELECT count(*) FROM {view.names.table}", 1)
    for branch in view.branches:
        for line in (*map(str, branch.analysis.references), *branch.analysis.suggestions):
            report(line)
    report(f"view {view.names.view}: {number:,} rows in {view.names.table}, kept by rules")


def _compare(view: RuledView, connection: "psycopg.Connection", as_json: bool) -> None:
    from sources.postgres.ruled import rows

    found = rows(connection, comparison(view), _MOST)
    if as_json:
        form = {"equal": not found, "difference": [list(map(_plain, row)) for row in found]}
        sys.stdout.write(orjson.dumps(form).decode() + "\n")
    else:
        for what, *values in found[:_MOST]:
            sys.stdout.write(f"{what}: ({', '.join(map(repr, values))})\n")
        if len(found) > _MOST:
            sys.stdout.write("… and more\n")
    table = view.names.table
    if found:
        report(f"{table} is not what its query gives; viewsweep rules … --install DSN mends it")
        sys.exit(1)
    report(f"{table} is what its query gives")


def _plain(value: object) -> object:
    return value if isinstance(value, int | float | str | None) else str(value)
