"""From a source's settings to its adapter: the only code that knows which adapters there are."""

import os

from protocols.errors import WrongUse
from sources.port import Source
from sources.simulated.source import SimulatedSource
from sources.wire.client import Limits, SourceClient
from streaming.settings.configuration import PostgresSettings, SourceSettings


def opened(settings: SourceSettings, answer_megabytes: int, answer_seconds: float) -> Source:
    """The adapter of a source; WrongUse if its settings lead nowhere. Nothing is asked yet."""
    if settings.postgres is not None:
        return _postgres(settings, settings.postgres, answer_seconds)
    limits = Limits(answer_megabytes, answer_seconds)
    token, roots = _token(settings), _roots(settings)
    try:
        client = SourceClient(settings.address, token, roots, settings.name, limits)
    except WrongUse as error:
        raise WrongUse(f"sources.{settings.name}.address: {error}") from None
    return SimulatedSource(settings.name, settings.topics, client)


def _postgres(settings: SourceSettings, database: PostgresSettings, seconds: float) -> Source:
    """The adapter of a PostgreSQL database; its packages are loaded only here."""
    key = f"sources.{settings.name}.postgres_{'env' if database.env else 'file'}"
    try:
        from sources.postgres.connecting import DatabaseConnections
        from sources.postgres.source import PostgresSource
    except ImportError as error:
        raise WrongUse(f"{key}: {error}; pip install 'viewsweep[postgres]'") from None
    address = address_of(settings.name, database)
    try:
        connections = DatabaseConnections(settings.name, address, seconds)
    except WrongUse as error:
        raise WrongUse(f"{key}: {error}") from None
    return PostgresSource(settings.name, settings.topics, connections, database.schema, seconds)


def address_of(source: str, database: PostgresSettings) -> str:
    """The address of a database, from where it stands; WrongUse if it does not."""
    try:
        if database.file is None:
            return _from_environment(str(database.env))
        return database.file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise WrongUse(
            f"sources.{source}.postgres_file: {database.file} cannot be read: {error}"
        ) from None
    except WrongUse as error:
        raise WrongUse(f"sources.{source}.postgres_env: {error}") from None


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
