"""From a source's settings to its adapter: the only code that knows which adapters there are."""

import os

from protocols.errors import WrongUse
from sources.port import Source
from sources.simulated.source import SimulatedSource
from sources.wire.client import Limits, SourceClient
from streaming.settings.configuration import SourceSettings


def opened(settings: SourceSettings, answer_megabytes: int, answer_seconds: float) -> Source:
    """The adapter of a source; WrongUse if its settings lead nowhere. Nothing is asked yet."""
    limits = Limits(answer_megabytes, answer_seconds)
    token, roots = _token(settings), _roots(settings)
    try:
        client = SourceClient(settings.address, token, roots, settings.name, limits)
    except WrongUse as error:
        raise WrongUse(f"sources.{settings.name}.address: {error}") from None
    return SimulatedSource(settings.name, settings.topics, client)


def _token(settings: SourceSettings) -> str | None:
    if settings.token_env is None:
        return None
    token = os.environ.get(settings.token_env)
    if not token:
        raise WrongUse(
            f"sources.{settings.name}.token_env: the environment variable"
            f" {settings.token_env} is not set"
        )
    return token


def _roots(settings: SourceSettings) -> bytes | None:
    try:
        return None if settings.tls_roots is None else settings.tls_roots.read_bytes()
    except OSError as error:
        raise WrongUse(f"sources.{settings.name}.tls_roots: {error}") from None
