"""`viewsweep sources doctor` and `sources connector`: databases that are asked directly."""

import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated

import orjson
import typer

from cli.common import ConfigOption
from protocols.errors import Unreachable, WrongUse
from protocols.views.sql import relations_named_in
from sources.debezium.lack import Lack
from streaming.settings.configuration import (
    Configuration,
    DatabaseSettings,
    SourceSettings,
    read_configuration,
)

#: A person waits for it.
_SECONDS = 10.0
_Slot = Annotated[str, typer.Option(help="The connector's replication slot.")]
_Publication = Annotated[
    str | None, typer.Option(help="The connector's publication, if not the configuration's.")
]
_Sources = Annotated[
    list[str] | None, typer.Option("--source", help="Only this one; repeat it for more.")
]


def doctor(
    config: ConfigOption = Path("warehouse.toml"),
    source: _Sources = None,
    slot: _Slot = "viewsweep",
    publication: _Publication = None,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """Report what PostgreSQL and MariaDB sources and their connectors lack, and how to fix it.

    It changes nothing, except for one mark in the database's log, which has to come back through
    the topic. Exit code 1 if something is missing that the configured views need; faults of other
    tables and columns are only noted.
    """
    known = read_configuration(config)
    needed = {each for view in known.views.values() for each in relations_named_in(view.sql)}
    found = {each.name: _lacks(known, each, slot, publication) for each in _chosen(known, source)}
    if as_json:
        forms = {
            name: [
                {"what": each.what, "mend": each.mend, "needed": _is_needed(each, name, needed)}
                for each in lacks
            ]
            for name, lacks in found.items()
        }
        typer.echo(orjson.dumps(forms).decode())
    else:
        for name, lacks in found.items():
            _show(name, lacks, needed)
    if any(_is_needed(each, name, needed) for name, lacks in found.items() for each in lacks):
        sys.exit(1)


def _is_needed(lack: Lack, source: str, needed: set[tuple[str, str]]) -> bool:
    """Whether the views cannot do without it. They name no column that cannot be used."""
    if lack.about is None:
        return True
    return "." not in lack.about and (source.lower(), lack.about.lower()) in needed


def _show(source: str, lacks: Sequence[Lack], needed: set[tuple[str, str]]) -> None:
    missing = [each for each in lacks if _is_needed(each, source, needed)]
    number = f"{len(missing)} finding{'s' if len(missing) > 1 else ''}"
    typer.echo(f"source {source}: {number if missing else 'ready, nothing is missing'}")
    for each in missing:
        typer.echo(f"  {each.what}\n    {each.mend}")
    notes = [each for each in lacks if each not in missing]
    if notes:
        typer.echo("  notes on tables and columns that no configured view uses:")
    for each in notes:
        typer.echo(f"    {each.what}\n      {each.mend}")


def connector(
    source: Annotated[str, typer.Argument(help="The source, by its name in the configuration.")],
    config: ConfigOption = Path("warehouse.toml"),
    slot: _Slot = "viewsweep",
    publication: _Publication = None,
    user: Annotated[
        str, typer.Option(help="The connector's login, which is not that of the look-ups.")
    ] = "debezium",
) -> None:
    """Print the configuration of a database's Debezium connector, without its password."""
    known = read_configuration(config)
    [settings] = _chosen(known, [source])
    [topic] = settings.topics
    database, address = _database(settings)
    if database.kind == "postgres":
        from sources.postgres import connector as postgres

        published = _published(database, publication)
        form = postgres.connector(settings.name, topic, address, slot, published)
    else:
        from sources.mariadb import connector as mariadb

        form = mariadb.connector(settings.name, topic, address, known.kafka.bootstrap)
    form |= {"database.user": user, "database.password": "…"}
    typer.echo(orjson.dumps(form, option=orjson.OPT_INDENT_2).decode())


def _chosen(known: Configuration, names: list[str] | None) -> list[SourceSettings]:
    """The sources that are databases, or those of these names."""
    for name in names or ():
        if name not in known.sources:
            have = ", ".join(known.sources)
            raise WrongUse(f"{known.file}: there is no [sources.{name}]; choose one of: {have}")
        if known.sources[name].database is None:
            raise WrongUse(
                f"source {name} has a query server, which doctor cannot check; use 'viewsweep"
                " sources inspect' to see the source as a job does"
            )
    chosen = [known.sources[name] for name in names or known.sources]
    found = [each for each in chosen if each.database is not None]
    if not found:
        raise WrongUse(f"{known.file}: no source here is a PostgreSQL or MariaDB database")
    return found


def _database(settings: SourceSettings) -> tuple[DatabaseSettings, str]:
    """The database of a source, and its address."""
    from streaming.intake.factory import address_of

    assert settings.database is not None
    return settings.database, address_of(settings.name, settings.database)


def _published(database: DatabaseSettings, given: str | None) -> str:
    """The publication in the option, or else in the configuration."""
    published = given or database.publication
    assert published is not None
    return published


def _lacks(
    known: Configuration, settings: SourceSettings, slot: str, publication: str | None
) -> list[Lack]:
    """The things that a source lacks."""
    database, address = _database(settings)
    if database.kind == "postgres":
        found = _of_postgres(settings.name, database, address, slot, publication)
    else:
        found = _of_mariadb(settings.name, database, address)
    return [*found, *_of_the_topic(known, settings)]


def _of_postgres(
    source: str, database: DatabaseSettings, address: str, slot: str, publication: str | None
) -> list[Lack]:
    from sources.postgres.connecting import DatabaseConnections
    from sources.postgres.doctor import examine

    assert database.schema is not None
    with (
        closing(DatabaseConnections(source, address, _SECONDS)) as connections,
        connections.plain() as cursor,
    ):
        published = _published(database, publication)
        return list(examine(cursor, source, database.schema, published, slot))


def _of_mariadb(source: str, database: DatabaseSettings, address: str) -> list[Lack]:
    from sources.mariadb.connecting import DatabaseConnections
    from sources.mariadb.doctor import examine

    assert database.marks is not None
    with (
        closing(DatabaseConnections(source, address, _SECONDS, database.marks)) as connections,
        connections.plain() as cursor,
    ):
        return list(examine(cursor, source, connections.database, database.marks))


def _of_the_topic(known: Configuration, settings: SourceSettings) -> list[Lack]:
    """The things that are missing between the database's log and the topic."""
    from sources.topics import ends_of
    from streaming.intake.factory import opened

    assert settings.database is not None
    with closing(opened(settings, known.job.answer_megabytes, _SECONDS)) as source:
        try:
            ends = ends_of(known.kafka, {settings.name: settings.topics})[settings.name]
            source.begin(known.kafka, ends, None)
        except (Unreachable, WrongUse) as error:
            return [Lack(str(error), f"docs/{settings.database.kind}.md describes the topic")]
    return []
