"""The section `[page]` of `warehouse.toml`: where a job shows itself, and who may look.

Off loopback a page needs a token and TLS. No secret stands here: the token is in an environment
variable, the key in a file.
"""

import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from protocols.errors import WrongUse

_FILES = ("certificate_file", "key_file")
KEYS = {"listen", "token_env", *_FILES}
#: The lowest and the highest port; 0 lets the system choose one.
_PORTS = range(65536)


@dataclass(frozen=True)
class PageSettings:
    """The address of a page and its protection, which only loopback does not need."""

    host: str
    port: int
    #: The name of the environment variable that holds the token.
    token_env: str | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None

    @property
    def encrypted(self) -> bool:
        """Whether it is reached by https."""
        return self.certificate_file is not None

    @property
    def url(self) -> str:
        """Its address for a browser on this machine."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.encrypted else 'http'}://{host}:{self.port}"

    def at(self, listen: str) -> "PageSettings":
        """The same protection at another address; WrongUse if that one needs more."""
        host, port = _address(listen, "--listen")
        return checked(
            PageSettings(host, port, self.token_env, self.certificate_file, self.key_file)
        )


def page_in(table: Mapping[str, Any], beside: Callable[[str], Path]) -> PageSettings:
    """The page that the section describes.

    `beside`: a path as it counts from the configuration's directory.
    """
    for key in table:
        if key not in KEYS:
            _refuse(key, f"is not known here; there are: {', '.join(sorted(KEYS))}")
    host, port = _address(_text(table, "listen"), "page.listen")
    given = [key for key in _FILES if key in table]
    if len(given) == 1:
        other = next(key for key in _FILES if key not in table)
        _refuse(other, f"is missing: page.{given[0]} is of no use without it")
    files = {key: beside(_text(table, key)) for key in given}
    token = _text(table, "token_env") if "token_env" in table else None
    return checked(PageSettings(host, port, token, **files))


def checked(settings: PageSettings) -> PageSettings:
    """The settings; WrongUse if others could read along or look without a token."""
    lacks = [
        words
        for words, there in (
            ("a token (page.token_env)", settings.token_env),
            ("TLS (page.certificate_file and page.key_file)", settings.certificate_file),
        )
        if not there
    ]
    if lacks and not is_loopback(settings.host):
        raise WrongUse(
            f"page.listen: {settings.host} can be reached from other machines, so the page needs"
            f" {' and '.join(lacks)}; or let it listen on 127.0.0.1"
        )
    return settings


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _address(text: str, key: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit():
        raise WrongUse(f'{key} has to be HOST:PORT, such as "127.0.0.1:8090", not {text!r}')
    if int(port) not in _PORTS:
        raise WrongUse(f"{key}: there is no port {port}")
    return host, int(port)


def _text(table: Mapping[str, Any], key: str) -> str:
    value = table.get(key)
    if not isinstance(value, str) or not value:
        _refuse(key, "is missing" if key not in table else f"has to be a text, not {value!r}")
    return value


def _refuse(key: str, problem: str) -> NoReturn:
    raise WrongUse(f"page.{key} {problem}")
