"""Whether a cluster lets us in, asked before anything else is asked of it.

Kafka's clients try for ever, whatever hinders them, and say why in a callback or in their log only.
So one client asks for the cluster's brokers while we read along. What will not get better by
waiting is a message with the key in `[kafka]` at once: a wrong password, an authority that did not
sign the broker's certificate, TLS on one side only. All else has the time that the caller gives it.
"""

import logging
import socket
import ssl
import time
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from protocols.errors import Unreachable, WrongUse
from sources.kafka import Kafka

_MOMENT = 0.02
_PROBE_SECONDS = 3.0
_LAST_SECONDS = 1.0
#: A broker that starts or stops closes a connection or two; one that is asked in the wrong way
#: closes all of them.
_CLOSED_AGAIN = 3
_CLOSED = "closed by peer"
_NO_TLS_THERE = "connecting to a PLAINTEXT broker listener"
_WANTS_CERTIFICATE = ("alert bad certificate", "alert certificate required")
_NO_SASL_THERE = "Request not valid in current SASL state"
_NO_TOKEN = "Failed to acquire SASL OAUTHBEARER token"
_NOBODY_THERE = f"{_NO_TOKEN}: Failed to connect to"
_UNKNOWN_MECHANISM = "Unsupported SASL mechanism"


@dataclass
class _Heard:
    """The messages of a client since it began."""

    errors: list[KafkaError] = field(default_factory=list)
    #: How often a broker closed the connection without a word.
    closed: int = 0

    def logger(self) -> logging.Logger:
        """A logger of its own, which no other part of the process sees."""
        found = logging.Logger("access", logging.DEBUG)
        handler = logging.Handler()
        handler.emit = self._note  # type: ignore[method-assign]
        found.addHandler(handler)
        return found

    def _note(self, record: logging.LogRecord) -> None:
        self.closed += _CLOSED in record.getMessage()

    @property
    def last(self) -> str:
        """The last thing that hindered it; empty if there was none."""
        of_one = [e for e in self.errors if e.code() != KafkaError._ALL_BROKERS_DOWN]
        return of_one[-1].str() if of_one else ""


def let_in(kafka: Kafka, seconds: float) -> None:
    """Returns when a broker answers us; WrongUse if it never will, Unreachable if it does not."""
    heard = _Heard()
    client = admin(kafka, heard.logger(), {"error_cb": heard.errors.append})
    deadline = time.monotonic() + seconds
    asked = client.describe_cluster(request_timeout=seconds)
    probed = False
    while not asked.done() and time.monotonic() < deadline:
        client.poll(_MOMENT)
        for error in heard.errors:
            _refuse(kafka, error)
        if heard.closed >= _CLOSED_AGAIN and not probed:
            _refuse_tls(kafka)
            probed = True
    if _has_answered(asked, client, heard):
        return
    reason = heard.last or f"no answer for {seconds:g} s"
    if heard.closed >= _CLOSED_AGAIN:
        reason = (
            "it closes every connection: perhaps it is no broker, or it wants another"
            f" kafka.security than {kafka.security}"
        )
    raise Unreachable(
        f"no Kafka broker answers at {kafka.bootstrap} ({reason}); start it, or correct"
        " kafka.bootstrap"
    )


def _has_answered(asked: "Future[object]", client: AdminClient, heard: _Heard) -> bool:
    """Whether it answered this question, or another one that needs no controller: a proxy in front
    of brokers may name none."""
    if asked.done() and asked.exception() is None:
        return True
    with suppress(KafkaException):
        return not heard.last and bool(client.list_topics(timeout=_LAST_SECONDS).brokers)
    return False


def admin(
    kafka: Kafka, logger: logging.Logger, more: dict[str, object] | None = None
) -> AdminClient:
    """An admin client; WrongUse if its files do not belong together."""
    try:
        return AdminClient(kafka.client() | (more or {}), logger=logger)
    except KafkaException as error:
        raise _unusable(error) from None


def _unusable(error: KafkaException) -> WrongUse:
    """The error of a client that could not even be made."""
    reason = error.args[0].str()
    keys = {"ssl.ca": "ca_file", "ssl.certificate": "certificate_file", "ssl.key": "key_file"}
    key = next((ours for theirs, ours in keys.items() if theirs in reason), "security")
    if "key values mismatch" in reason:
        return WrongUse(
            "kafka.key_file is not the key of kafka.certificate_file; name the two that belong"
            " together"
        )
    return WrongUse(f"kafka.{key} cannot be used: {reason}")


def _refuse(kafka: Kafka, error: KafkaError) -> None:
    """WrongUse for an error that no waiting mends."""
    said, at = error.str(), f"the broker at {kafka.bootstrap}"
    if _NO_TLS_THERE in said:
        plain = "SASL_PLAINTEXT" if kafka.sasl else "PLAINTEXT"
        raise WrongUse(
            f"{at} does not speak TLS, and kafka.security is {kafka.security}: name its TLS port in"
            f' kafka.bootstrap, or set kafka.security = "{plain}"'
        )
    if any(alert in said for alert in _WANTS_CERTIFICATE):
        if kafka.certificate_file is None:
            raise WrongUse(
                f"{at} wants a certificate of ours: set kafka.certificate_file and kafka.key_file"
            )
        raise WrongUse(
            f"{at} does not accept the certificate in kafka.certificate_file; use one from an"
            " authority that it trusts, and that has not expired"
        )
    if error.code() == KafkaError._SSL and "certificate verify failed" in said:
        trusted = f"kafka.ca_file ({kafka.ca_file})" if kafka.ca_file else "the system, since"
        raise WrongUse(
            f"the certificate of {at} is not from an authority of {trusted}"
            f"{'' if kafka.ca_file else ' kafka.ca_file is not set'}, or it is for another host"
            " name, or it has expired: name the right authority in kafka.ca_file, and in"
            " kafka.bootstrap the host that the certificate names"
        )
    if error.code() == KafkaError._AUTHENTICATION:
        _refuse_user(kafka, said, at)


def _refuse_user(kafka: Kafka, said: str, at: str) -> None:
    if _NO_SASL_THERE in said:
        plain = "SSL" if kafka.security == "SASL_SSL" else "PLAINTEXT"
        raise WrongUse(
            f"{at} has no SASL at this port, and kafka.security is {kafka.security}: set"
            f' kafka.security = "{plain}", or name its SASL port in kafka.bootstrap'
        )
    if _UNKNOWN_MECHANISM in said:
        offered = said.partition("supported mechanisms:")[2].partition("(after")[0].strip()
        raise WrongUse(
            f"{at} does not offer {kafka.sasl}, which kafka.sasl names; it offers: {offered}"
        )
    if _NO_TOKEN in said:
        # What the address answered is left out: it may repeat what it was sent.
        if _NOBODY_THERE not in said:
            raise WrongUse(
                f"kafka.token_url ({kafka.token_url}) gives no token for what kafka.user_env and"
                f" {_password(kafka)} hold: correct them, kafka.scope or the address"
            )
        return
    if kafka.sasl == "OAUTHBEARER":
        raise WrongUse(
            f"{at} does not accept the token that kafka.token_url gives: correct kafka.scope, or"
            " let the broker trust that address and the user in its tokens"
        )
    raise WrongUse(
        f"{at} does not accept user and password (kafka.sasl = {kafka.sasl}): correct what"
        f" kafka.user_env and {_password(kafka)} hold, or create the user at the broker"
    )


def _password(kafka: Kafka) -> str:
    return "kafka.password_file" if kafka.password_file else "kafka.password_env"


def _refuse_tls(kafka: Kafka) -> None:
    """WrongUse if a broker that hangs up on plain text speaks TLS."""
    if kafka.security not in ("PLAINTEXT", "SASL_PLAINTEXT"):
        return
    if any(_speaks_tls(address) for address in kafka.bootstrap.split(",")):
        guarded = "SASL_SSL" if kafka.sasl else 'SSL" or "SASL_SSL'
        raise WrongUse(
            f"the broker at {kafka.bootstrap} speaks TLS, and kafka.security is {kafka.security}:"
            f' set kafka.security = "{guarded}", or name its plain port in kafka.bootstrap'
        )


def _speaks_tls(address: str) -> bool:
    host, _, port = address.strip().rpartition("://")[2].rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Nothing is sent: only the kind of the port is of interest.
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with (
            socket.create_connection((host.strip("[]"), int(port)), _PROBE_SECONDS) as plain,
            context.wrap_socket(plain),
        ):
            return True
    except (OSError, ValueError):
        return False
