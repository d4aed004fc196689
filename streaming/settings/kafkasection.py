"""The section `[kafka]` of `warehouse.toml`: the addresses of a cluster, and what lets us in.

A message never repeats a value that may be a secret.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn, get_args

from protocols.errors import WrongUse
from sources.kafka import Kafka, Mechanism, Security, checked_bootstrap

_FILES = ("ca_file", "certificate_file", "key_file", "password_file")
_VARIABLES = ("user_env", "password_env")
KEYS = {"bootstrap", "security", "sasl", "token_url", "scope", *_FILES, *_VARIABLES}
#: A key with such a word in it, if it is none of ours, has a secret for its value.
_SECRET_WORDS = ("password", "secret", "token", "jaas", "private")
_TLS_FILES = _FILES[:3]
_OF_SASL = ("sasl", "user_env", "password_env", "password_file", "token_url", "scope")
_OF_TOKENS = ("token_url", "scope")


def kafka_in(table: Mapping[str, Any], broker: str | None, beside: Callable[[str], Path]) -> Kafka:
    """The cluster that the section describes; WrongUse names the key that is wrong.

    `broker`: the address in VIEWSWEEP_BROKER, which goes before the section's. `beside`: a path as
    it counts from the configuration's directory.
    """
    for key in table:
        if key not in KEYS:
            _refuse_key(key)
    bootstrap = broker or _text(table, "bootstrap")
    security: Security = _one_of(table, "security", get_args(Security)) or "PLAINTEXT"
    sasl: Mechanism | None = _one_of(table, "sasl", get_args(Mechanism))
    _refuse_misfits(table, security, sasl)
    key = "VIEWSWEEP_BROKER, instead of kafka.bootstrap," if broker else "kafka.bootstrap"
    try:
        checked_bootstrap(bootstrap, security)
    except WrongUse as error:
        raise WrongUse(f"{key} {error}") from None
    files = {key: beside(_text(table, key)) for key in _FILES if key in table}
    texts = {key: _text(table, key) for key in (*_VARIABLES, *_OF_TOKENS) if key in table}
    more: dict[str, Any] = {**files, **texts}
    return Kafka(bootstrap, security, sasl, **more)


def _refuse_misfits(table: Mapping[str, Any], security: Security, sasl: Mechanism | None) -> None:
    """WrongUse for keys that do not belong together, or of which one is missing."""
    with_sasl, with_tls = security.startswith("SASL"), security.endswith("SSL")
    for key in () if with_tls else _TLS_FILES:
        if key in table:
            _refuse(key, f"belongs to TLS, and kafka.security is {security}: {_way_to('SSL')}")
    for key in () if with_sasl else _OF_SASL:
        if key in table:
            _refuse(key, f"belongs to SASL, and kafka.security is {security}: {_way_to('SASL')}")
    for key, other in (("certificate_file", "key_file"), ("key_file", "certificate_file")):
        if key in table and other not in table:
            _refuse(other, f"is missing: kafka.{key} is of no use without it")
    if not with_sasl:
        return
    if sasl is None:
        _refuse("sasl", f"is missing: it is one of {', '.join(get_args(Mechanism))}")
    if "user_env" not in table:
        _refuse("user_env", "is missing: the environment variable with the user's name")
    given = [key for key in ("password_env", "password_file") if key in table]
    if not given:
        _refuse("password_env", "is missing: the environment variable with the password")
    if len(given) > 1:
        _refuse("password_env", "and kafka.password_file exclude each other")
    if sasl == "OAUTHBEARER" and "token_url" not in table:
        _refuse("token_url", "is missing: where OAUTHBEARER gets its tokens (https://…)")
    for key in () if sasl == "OAUTHBEARER" else _OF_TOKENS:
        if key in table:
            _refuse(key, f"belongs to OAUTHBEARER, and kafka.sasl is {sasl}")


def _way_to(word: str) -> str:
    names = " or ".join(f'"{each}"' for each in get_args(Security) if word in each.split("_"))
    return f"set it to {names}, or remove the key"


def _refuse_key(key: str) -> NoReturn:
    if any(word in key.lower() for word in _SECRET_WORDS):
        _refuse(
            key,
            "is refused: a secret does not belong into this file, which is copied, committed and"
            " shown. Put it into an environment variable and name that in kafka.password_env, or"
            " into a file and name that in kafka.password_file",
        )
    _refuse(key, f"is not known here; there are: {', '.join(sorted(KEYS))}")


def _one_of(table: Mapping[str, Any], key: str, words: tuple[Any, ...]) -> Any:
    value = table.get(key)
    if value is not None and value not in words:
        _refuse(key, f"has to be one of {', '.join(words)}, not {value!r}")
    return value


def _text(table: Mapping[str, Any], key: str) -> str:
    value = table.get(key)
    if not isinstance(value, str) or not value:
        shown = f", not {value!r}" if key == "bootstrap" else ""
        _refuse(key, f"has to be a text{shown}" if key in table else "is missing")
    return value


def _refuse(key: str, problem: str) -> NoReturn:
    raise WrongUse(f"kafka.{key} {problem}")
