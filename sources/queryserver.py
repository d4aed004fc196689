"""The query server of a source: answers questions about its current state over Arrow Flight.

It answers `do_get` (wire.py has the form of a ticket) and two actions, `status` and `commit`; the
latter exists because the source is a simulated one. Whatever comes in is decoded into a question
and checked against the catalog before the database sees it, so a strange request ends in an error
for its sender and nothing else.

Every request runs in a thread of its own with a cursor of its own. DuckDB is told to use one thread
per query: questions are small and come many at once, and handing pieces of a 2 ms scan between
threads costs more than it saves as soon as two questions run together.
"""

import hmac
import ipaddress
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import orjson
import pyarrow as pa
from pyarrow import flight

from protocols.errors import ViewsweepError, WrongUse
from sources.database import SourceDatabase, TransactionRefused
from sources.joining import joined
from sources.lookup import lookup
from sources.terms import Sum
from sources.wire import (
    COMMIT,
    REFUSED,
    STATUS,
    answer_stream,
    check_token,
    decode_question,
    decode_transactions,
)

#: So many questions are worked on at the same time; the others wait. More threads than cores would
#: only take the interpreter from each other, and from the commits: with 16 clients asking without a
#: break, commits went from 19 to 63 per second, and answers from 460 to 520.
_AT_ONCE = max(2, os.cpu_count() or 2)


@dataclass(frozen=True)
class Endpoint:
    """Where a query server listens and how it is protected; off loopback it has to be."""

    host: str = "127.0.0.1"
    #: 0 lets the system choose.
    port: int = 0
    token: str | None = None
    tls_certificate: Path | None = None
    tls_key: Path | None = None

    def __post_init__(self) -> None:
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise WrongUse("TLS needs both a certificate (--tls-cert) and its key (--tls-key)")
        if self.token is not None:
            check_token(self.token)
        if is_loopback(self.host) or (self.encrypted and self.token):
            return
        raise WrongUse(
            f"{self.host} can be reached from other machines: a query server listens there only"
            " with TLS (--tls-cert, --tls-key) and a token (--token)"
        )

    @property
    def encrypted(self) -> bool:
        return self.tls_certificate is not None

    def location(self, port: int) -> str:
        """Its Flight address with this port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"grpc{'+tls' if self.encrypted else ''}://{host}:{port}"

    def certificates(self) -> list[tuple[bytes, bytes]]:
        """(certificate, key), as Flight wants them."""
        if self.tls_certificate is None or self.tls_key is None:
            return []
        try:
            return [(self.tls_certificate.read_bytes(), self.tls_key.read_bytes())]
        except OSError as error:
            raise WrongUse(f"TLS: cannot read {error.filename}: {error.strerror}") from None


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to the host; a name other than localhost may not be."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class QueryServer:
    """Serves one database from its construction to `stop`."""

    def __init__(
        self, database: SourceDatabase, endpoint: Endpoint | None = None, topic: str | None = None
    ) -> None:
        endpoint = endpoint or Endpoint()
        certificates = endpoint.certificates()
        database.use_threads_per_query(1)
        try:
            self._service = _Service(database, endpoint, topic or "", certificates)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise WrongUse(
                f"source {database.source}: cannot listen at {endpoint.location(endpoint.port)}:"
                f" {error}; is the port taken, and does TLS have the right files?"
            ) from None
        #: What clients connect to.
        self.address = endpoint.location(self._service.port)

    def stop(self) -> None:
        """Lets running questions finish and takes no more."""
        self._service.shutdown()


class _Service(flight.FlightServerBase):  # type: ignore[misc]
    def __init__(
        self,
        database: SourceDatabase,
        endpoint: Endpoint,
        topic: str,
        certificates: list[tuple[bytes, bytes]],
    ) -> None:
        middleware = {"token": _TokenCheck(endpoint.token)} if endpoint.token else None
        super().__init__(
            endpoint.location(endpoint.port),
            tls_certificates=certificates or None,
            middleware=middleware,
        )
        self._database = database
        self._topic = topic
        self._relations = {relation.name: relation for relation in database.catalog}
        #: Who holds one is being answered; the others wait.
        self._places = threading.Semaphore(_AT_ONCE)

    def do_get(self, _context: Any, ticket: Any) -> Any:
        with _reporting(self._database.source), self._places:
            question = decode_question(ticket.ticket)
            if isinstance(question, Sum):
                return flight.RecordBatchStream(answer_stream(*joined(self._database, question)))
            if question.source != self._database.source:
                raise WrongUse(
                    f"source {question.source} was asked, this is source"
                    f" {self._database.source}; check its address in the configuration"
                )
            return flight.RecordBatchStream(answer_stream(*lookup(self._database, question)))

    def do_action(self, _context: Any, action: Any) -> list[bytes]:
        with _reporting(self._database.source):
            if action.type == STATUS:
                return [orjson.dumps(status_of(self._database, self._topic))]
            if action.type == COMMIT:
                return [orjson.dumps(self._commit(action.body.to_pybytes()))]
            raise WrongUse(f"unknown action {action.type!r}; there are {STATUS} and {COMMIT}")

    def list_actions(self, _context: Any) -> list[tuple[str, str]]:
        return [
            (STATUS, "name, version, published version, topic, relations and indexed columns"),
            (COMMIT, "commits transactions, in order, up to the first one that is refused"),
        ]

    def _commit(self, body: bytes) -> dict[str, Any]:
        transactions = decode_transactions(body, self._relations)
        outcome = commit_until_refused(self._database, transactions)
        return {
            "version": outcome.version,
            "committed": outcome.committed,
            "refusal": outcome.refusal,
        }


@dataclass(frozen=True)
class Outcome:
    """How far a sequence of transactions got."""

    version: int
    #: How many were committed; the next one is the refused one, if any.
    committed: int
    refusal: str | None = None


def commit_until_refused(database: SourceDatabase, transactions: list[Any]) -> Outcome:
    """Commits transactions in order, as a group, and stops before the first one that is refused."""
    try:
        return Outcome(database.commit_many(transactions), len(transactions))
    except TransactionRefused as refused:
        good, refusal = transactions[: refused.index], str(refused)
    # Others may commit in between, so this can stop even earlier.
    outcome = commit_until_refused(database, good)
    return Outcome(outcome.version, outcome.committed, outcome.refusal or refusal)


def status_of(database: SourceDatabase, topic: str | None = None) -> dict[str, Any]:
    """What a source says about itself; where its file lies is nobody's business."""
    return {
        "source": database.source,
        "version": database.version,
        "published": database.published,
        "topic": topic,
        "relations": {relation.name: relation.to_json() for relation in database.catalog},
        "indexes": database.indexes,
    }


@contextmanager
def _reporting(source: str) -> Iterator[None]:
    """Errors in Flight's terms: the sender's fault is marked, the rest is 'not available'."""
    try:
        yield
    except WrongUse as error:
        raise flight.FlightServerError(str(error), extra_info=REFUSED) from None
    except ViewsweepError as error:
        raise flight.FlightUnavailableError(str(error)) from None
    except duckdb.Error as error:
        raise flight.FlightUnavailableError(f"source {source}: database: {error}") from None
    except Exception as error:
        # Asking again would not help. Without this, Flight would send our traceback as message.
        fault = f"source {source} failed: {type(error).__name__}: {error}"
        raise flight.FlightServerError(fault, extra_info=REFUSED) from None


class _TokenCheck(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Lets in who sends the token."""

    def __init__(self, token: str) -> None:
        self._expected = f"Bearer {token}".encode()

    def start_call(self, _info: Any, headers: dict[str, list[str | bytes]]) -> None:
        sent = [
            value
            for name, values in headers.items()
            if name.lower() == "authorization"
            for value in values
        ]
        given = sent[0] if sent else b""
        given = given.encode() if isinstance(given, str) else given
        # In constant time, or the answer's delay would give the token away byte by byte.
        if not hmac.compare_digest(given, self._expected):
            raise flight.FlightUnauthenticatedError("this source needs a token, or another one")
