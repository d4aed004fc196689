"""`viewsweep sources fill` and `sources drive`: a workload in a real database."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from cli.serve import told_to_stop
from infra.options import taking
from protocols.errors import WrongUse
from protocols.views.catalog import Catalog
from sources.debezium.writing import DatabaseWriter
from sources.simulated.drive import Drive, WorkloadDriver
from sources.simulated.workloads import WORKLOADS, workload
from streaming.settings.configuration import DatabaseSettings


@dataclass(frozen=True)
class Filled:
    """A database, and the workload that it is for."""

    source: Annotated[str, typer.Argument(help="The workload's source.", show_default=False)]
    workload_name: Annotated[
        str, typer.Option("--workload", help=f"The workload: {', '.join(WORKLOADS)}.")
    ]
    postgres_env: Annotated[
        str | None,
        typer.Option(help="Environment variable with the address of a PostgreSQL database."),
    ] = None
    postgres_file: Annotated[
        Path | None, typer.Option(help="File with the address of a PostgreSQL database.")
    ] = None
    mariadb_env: Annotated[
        str | None,
        typer.Option(help="Environment variable with the address of a MariaDB database."),
    ] = None
    mariadb_file: Annotated[
        Path | None, typer.Option(help="File with the address of a MariaDB database.")
    ] = None
    scale: Annotated[
        int, typer.Option(min=1, help="Size of the workload, as in 'sources init'.")
    ] = 1000
    seed: Annotated[int, typer.Option(help="Seed of the workload.")] = 0

    @property
    def database(self) -> DatabaseSettings:
        """Where the address stands."""
        given = [
            DatabaseSettings(self.postgres_env, None, "postgres") if self.postgres_env else None,
            DatabaseSettings(None, self.postgres_file, "postgres") if self.postgres_file else None,
            DatabaseSettings(self.mariadb_env, None, "mariadb") if self.mariadb_env else None,
            DatabaseSettings(None, self.mariadb_file, "mariadb") if self.mariadb_file else None,
        ]
        found = [each for each in given if each is not None]
        if len(found) != 1:
            raise WrongUse(
                "give one address: --postgres-env, --postgres-file, --mariadb-env or --mariadb-file"
            )
        return found[0]


@dataclass(frozen=True)
class Driven(Filled):
    """The same, with its load."""

    rate: Annotated[float, typer.Option(min=0.001, help="Transactions per second.")] = 10.0
    transactions: Annotated[
        int | None, typer.Option(min=0, help="End after this many transactions.")
    ] = None
    after: Annotated[
        Path | None, typer.Option(help="Wait for this file to exist before starting.")
    ] = None


@contextmanager
def _writing(filled: Filled, catalog: Catalog) -> Iterator[DatabaseWriter]:
    """A session of the database; its packages are loaded only here."""
    from streaming.intake.factory import address_of, database_packages

    database = filled.database
    address = address_of(filled.source, database)
    with database_packages(database.kind):
        if database.kind == "postgres":
            from sources.postgres.writing import PostgresWriter

            open_: Callable[[str, Catalog, str], DatabaseWriter] = PostgresWriter
        else:
            from sources.mariadb.writing import MariaDBWriter

            open_ = MariaDBWriter
    with closing(open_(filled.source, catalog, address)) as writer:
        yield writer


@taking(Filled)
def fill(filled: Filled) -> None:
    """Create a workload's tables and first rows in an empty PostgreSQL or MariaDB database.

    The login has to be allowed to create tables, and at PostgreSQL a publication. This is for
    demonstrations and measurements: viewsweep itself only reads a database.
    """
    content = workload(filled.workload_name).source(filled.source, filled.scale, filled.seed)
    rows = dict(content.initial_rows())
    with _writing(filled, content.catalog) as writer:
        writer.fill(rows)
    sizes = ", ".join(f"{name} ({len(found)} rows)" for name, found in rows.items())
    typer.echo(f"source {filled.source} filled: {sizes}")


@taking(Driven)
def drive(driven: Driven) -> None:
    """Commit a workload's transactions in a database that 'sources fill' has filled.

    Scale and seed have to be those given there. Each run begins with the first transaction. Ctrl-C
    ends it.
    """
    stop = told_to_stop()
    content = workload(driven.workload_name).source(driven.source, driven.scale, driven.seed)
    with _writing(driven, content.catalog) as writer:
        load = Drive(content.transactions(), driven.rate, driven.transactions, driven.after)
        driver = WorkloadDriver(writer, load)
        driver.start()
        while not (driver.finished or stop.wait(0.1)):
            pass
        driver.stop()
        if driver.error is not None:
            raise driver.error
        typer.echo(f"source {driven.source}: {writer.driven} transactions committed")
