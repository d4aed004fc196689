"""From a source's settings to its adapter: the only code that knows which adapters there are."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from protocols.errors import WrongUse
from sources.port import Source
from sources.simulated.source import SimulatedSource
from sources.wire.client import Limits, SourceClient
from streaming.settings.configuration import DatabaseSettings, SourceSettings


def opened(settings: SourceSettings, answer_megabytes: int, answer_seconds: float) -> Source:
    """The adapter of a source; WrongUse if its settings lead nowhere. Nothing is asked yet."""
    if settings.database is not None:
        return _database(settings, settings.database, answer_seconds)
    limits = Limits(answer_megabytes, answer_seconds)
    token, roots = _token(settings), _roots(settings)
    try:
        client = SourceClient(settings.address, token, roots, settings.name, limits)
    except WrongUse as error:
        raise WrongUse(f"sources.{settings.name}.address: {error}") from None
    return SimulatedSource(settings.name, settings.topics, client)


def _database(settings: SourceSettings, database: DatabaseSettings, seconds: float) -> Source:
    """The adapter of a database; its packages are loaded only here."""
    key = f"sources.{settings.name}.{database.key}"
    address = address_of(settings.name, database)
    open_ = _postgres if database.kind == "postgres" else _mariadb
    with database_packages(database.kind, f"{key}: "):
        return open_(settings, database, address, seconds)


@contextmanager
def database_packages(kind: str, where: str = "") -> Iterator[None]:
    """WrongUse if the block imports a package that a kind of database needs, and it is not there.

    `where` begins the message.
    """
    try:
        yield
    except ImportError as error:
        raise WrongUse(f"{where}{error}; pip install 'viewsweep[{kind}]'") from None


@contextmanager
def _naming(settings: SourceSettings, database: DatabaseSettings) -> Iterator[None]:
    """Names the key in what is wrong with the address."""
    try:
        yield
    except WrongUse as error:
        raise WrongUse(f"sources.{settings.name}.{database.key}: {error}") from None


def _postgres(
    settings: SourceSettings, database: DatabaseSettings, address: str, seconds: float
) -> Source:
    from sources.postgres.connecting import DatabaseConnections
    from sources.postgres.source import PostgresSource

    assert database.schema is not None
    assert database.publication is not None
    with _naming(settings, database):
        connections = DatabaseConnections(settings.name, address, seconds)
    return PostgresSource(
        settings.name,
        settings.topics,
        connections,
        seconds,
        database.schema,
        database.publication,
    )


def _mariadb(
    settings: SourceSettings, database: DatabaseSettings, address: str, seconds: float
) -> Source:
    from sources.mariadb.connecting import DatabaseConnections
    from sources.mariadb.source import MariaDBSource

    assert database.marks is not None
    with _naming(settings, database):
        connections = DatabaseConnections(settings.name, address, seconds, database.marks)
    return MariaDBSource(settings.name, settings.topics, connections, seconds, database.marks)


def address_of(source: str, database: DatabaseSettings) -> str:
    """The address of a database, from where it stands; WrongUse if it does not."""
    key = f"sources.{source}.{database.key}"
    try:
        if database.file is None:
            return _from_environment(str(database.env))
        return database.file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise WrongUse(f"{key}: {database.file} cannot be read: {error}") from None
    except WrongUse as error:
        raise WrongUse(f"{key}: {error}") from None


def _from_environment(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise WrongUse(f"the environment variable {name} is not set")
    return value


def _token(settings: SourceSettings) -> str | None:
    if settings.token_env is None:
        return None
    try:
        return _from_environment(settings.token_env)
    except WrongUse as error:
        raise WrongUse(f"sources.{settings.name}.token_env: {error}") from None


def _roots(settings: SourceSettings) -> bytes | None:
    try:
        return None if settings.tls_roots is None else settings.tls_roots.read_bytes()
    except OSError as error:
        raise WrongUse(f"sources.{settings.name}.tls_roots: {error}") from None
