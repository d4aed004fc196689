"""Serves the page in a thread of its own, beside a job or alone."""

import contextlib
import os
import socket
import ssl
import threading
from collections.abc import Iterator
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from page.guard import guarded
from protocols.errors import Unreachable, WrongUse
from streaming.settings.pagesection import PageSettings

#: Open pages wait for news all the time; a job that ends does not wait for them.
_GRACE_SECONDS = 0
_END_SECONDS = 1.0


@contextlib.contextmanager
def serving(app: ASGIApp, settings: PageSettings) -> Iterator[str]:
    """Serves the app inside; yields its address."""
    token = token_of(settings)
    with contextlib.closing(_listening(settings)) as listening:
        here = _with_port(settings, listening.getsockname()[1])
        server = uvicorn.Server(
            uvicorn.Config(
                guarded(app, here, token),
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=_GRACE_SECONDS,
                **_tls(settings),
            )
        )
        thread = threading.Thread(target=server.run, args=([listening],), name="page", daemon=True)
        thread.start()
        try:
            yield here.url
        finally:
            server.should_exit = True
            thread.join(_END_SECONDS)


def token_of(settings: PageSettings) -> str | None:
    """The token that its readers need; None if it needs none."""
    if settings.token_env is None:
        return None
    token = os.environ.get(settings.token_env)
    if not token:
        raise WrongUse(
            f"page.token_env: the environment variable {settings.token_env} is not set; put the"
            " page's token there"
        )
    return token


def _listening(settings: PageSettings) -> socket.socket:
    """A socket at the address; bound here, so that an error is one of the command."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    found = socket.socket(family)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((settings.host, settings.port))
        found.listen(128)
    except OSError as error:
        found.close()
        raise Unreachable(
            f"page.listen: cannot listen on {settings.host}:{settings.port}:"
            f" {error.strerror or error}. If a job shows its page there already, look at that one;"
            " else choose another port"
        ) from None
    return found


def _with_port(settings: PageSettings, port: int) -> PageSettings:
    return PageSettings(
        settings.host, port, settings.token_env, settings.certificate_file, settings.key_file
    )


def _tls(settings: PageSettings) -> dict[str, Any]:
    if settings.certificate_file is None:
        return {}
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(settings.certificate_file, settings.key_file)
    except (OSError, ssl.SSLError) as error:
        raise WrongUse(
            f"page.certificate_file and page.key_file cannot be used: {error.strerror or error}"
        ) from None
    return {"ssl_certfile": settings.certificate_file, "ssl_keyfile": settings.key_file}
