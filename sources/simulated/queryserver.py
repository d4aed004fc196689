"""The query server of a source: answers questions about its current state over Arrow Flight.

It answers `do_get` (wire.py has the form of a ticket) and two actions, `status` and `commit`; the
latter exists because the source is a simulated one. Each request is decoded into a question and
checked against the catalog before the database sees it, so a malformed request only ends in an
error for its sender. Its cost is bounded: bounds.py has the limits, turns.py bounds concurrency and
time, connections.py the memory of gRPC.

Every request runs in its own thread with its own cursor. DuckDB uses one thread per query:
questions are small and many run at once, and sharing a 2 ms scan between threads costs more than it
saves as soon as two questions run together.
"""

import hmac
import ipaddress
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import orjson
import pyarrow as pa
from pyarrow import flight

from protocols.errors import SourceViolation, ViewsweepError, WrongUse
from protocols.failures import words_of
from sources.history import UNKNOWN, digest_to_text
from sources.simulated.admission import MOST_UNITS, TransactionRefused
from sources.simulated.connections import Connections
from sources.simulated.database import SourceDatabase
from sources.simulated.joining import joined
from sources.simulated.lookup import lookup
from sources.simulated.opening import altered
from sources.simulated.statistics import statistics
from sources.simulated.turns import Turn, Turns
from sources.wire.bounds import Bounds, check_commit
from sources.wire.messages import (
    COMMIT,
    REFUSED,
    STATISTICS,
    STATUS,
    answer_stream,
    check_token,
    decode_question,
    decode_status_question,
)
from sources.wire.terms import Sum
from sources.wire.transactions import decode_transactions

#: Questions that run at the same time; the others wait. More threads than cores would only compete
#: for the interpreter with each other and with commits: with 16 clients that ask without a break,
#: this bound raised commits from 19 to 63 per second, and answers from 460 to 520.
_AT_ONCE = max(2, os.cpu_count() or 2)
#: Seconds between two checks of the clients.
_LOOK = 0.1
#: gRPC sends an error in a header of limited size; the error may quote a question.
_LONGEST_ERROR = 2000


@dataclass(frozen=True)
class Endpoint:
    """The address of a query server and its protection, which only loopback does not need."""

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
        """The Flight address with this port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"grpc{'+tls' if self.encrypted else ''}://{host}:{port}"

    def certificates(self) -> list[tuple[bytes, bytes]]:
        """(certificate, key) in the form that Flight expects."""
        if self.tls_certificate is None or self.tls_key is None:
            return []
        try:
            return [(self.tls_certificate.read_bytes(), self.tls_key.read_bytes())]
        except OSError as error:
            raise WrongUse(f"TLS: cannot read {error.filename}: {error.strerror}") from None


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to the host; of names only localhost counts."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class QueryServer:
    """Serves one database from its construction to `stop`."""

    def __init__(
        self,
        database: SourceDatabase,
        endpoint: Endpoint | None = None,
        topic: str | None = None,
        bounds: Bounds | None = None,
    ) -> None:
        endpoint, bounds = endpoint or Endpoint(), bounds or Bounds()
        certificates = endpoint.certificates()
        database.use_threads_per_query(1)
        database.bound_memory(bounds.memory)
        try:
            self._service = _Service(database, endpoint, topic or "", certificates, bounds)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise WrongUse(
                f"source {database.source}: cannot listen at {endpoint.location(endpoint.port)}:"
                f" {error}; is the port taken, and does TLS have the right files?"
            ) from None
        #: The address that clients connect to.
        self.address = endpoint.location(self._service.port)

    def stop(self) -> None:
        """Lets running questions finish and accepts no more."""
        self._service.shutdown()
        self._service.stop_watching()


class _Service(flight.FlightServerBase):  # type: ignore[misc]
    def __init__(
        self,
        database: SourceDatabase,
        endpoint: Endpoint,
        topic: str,
        certificates: list[tuple[bytes, bytes]],
        bounds: Bounds,
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
        self._bounds = bounds
        self._questions = Turns(_AT_ONCE, bounds)
        #: One at a time, like the commits of the database.
        self._commits = Turns(1, bounds)
        self._connections = Connections(self.port, bounds)
        self._stopping = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="watching clients", daemon=True)
        self._watcher.start()

    def stop_watching(self) -> None:
        self._stopping.set()
        self._watcher.join()

    def _watch(self) -> None:
        while not self._stopping.wait(_LOOK):
            self._questions.look()
            self._commits.look()
            # It fails without a free file descriptor; the next look may succeed.
            with suppress(OSError):
                self._connections.look()

    def do_get(self, context: Any, ticket: Any) -> Any:
        content, peer = ticket.ticket, context.peer()
        with _reporting(self._database.source):
            self._connections.came(peer, len(content))
            with self._questions.turn(context.is_cancelled, len(content)) as turn:
                answer = self._answer(content, turn)
            return flight.RecordBatchStream(self._connections.sent(peer, answer))

    def _answer(self, ticket: bytes, turn: Turn) -> pa.Table:
        question = decode_question(ticket, self._bounds.question)
        if isinstance(question, Sum):
            return self._stamped(*joined(self._database, question, turn))
        if question.source != self._database.source:
            raise WrongUse(
                f"the question is for source {question.source}, but this is source"
                f" {self._database.source}; check its address in the configuration"
            )
        return self._stamped(*lookup(self._database, question, turn))

    def _stamped(self, rows: pa.Table, version: int) -> pa.Table:
        return answer_stream(rows, version, self._database.digest_at(version))

    def do_action(self, context: Any, action: Any) -> list[bytes]:
        size = len(action.body)
        with _reporting(self._database.source):
            self._connections.came(context.peer(), size)
            if action.type == STATUS:
                versions = decode_status_question(action.body.to_pybytes())
                return [orjson.dumps(status_of(self._database, self._topic, versions))]
            if action.type == COMMIT:
                with self._commits.turn(context.is_cancelled, size):
                    return [orjson.dumps(self._commit(memoryview(action.body)))]
            if action.type == STATISTICS:
                with self._questions.turn(context.is_cancelled, size):
                    return [orjson.dumps(statistics(self._database))]
            raise WrongUse(
                f"unknown action {action.type!r}; choose one of: {STATUS}, {STATISTICS}, {COMMIT}"
            )

    def list_actions(self, _context: Any) -> list[tuple[str, str]]:
        return [
            (
                STATUS,
                "name, identity, version, published version, history, topic, relations and"
                " indexed columns",
            ),
            (STATISTICS, "the sizes of its relations, and of their columns' sets of values"),
            (COMMIT, "commits transactions in order, up to the first one that is refused"),
        ]

    def _commit(self, body: memoryview) -> dict[str, Any]:
        text = check_commit(body, self._bounds.commit)
        transactions = decode_transactions(text, self._relations)
        units = sum(abs(change.count) for each in transactions for change in each.changes)
        if units > MOST_UNITS:
            raise WrongUse(
                f"the commit has {units} rows, but at most {MOST_UNITS} are accepted at once; split"
                " it"
            )
        outcome = commit_until_refused(self._database, transactions)
        return {
            "version": outcome.version,
            "committed": outcome.committed,
            "refusal": outcome.refusal,
        }


@dataclass(frozen=True)
class CommitOutcome:
    """The outcome of committing a sequence of transactions."""

    version: int
    #: The number committed; the next one is the refused one, if any.
    committed: int
    refusal: str | None = None


def commit_until_refused(database: SourceDatabase, transactions: list[Any]) -> CommitOutcome:
    """Commits transactions in order, as a group, up to the first one that is refused."""
    try:
        return CommitOutcome(database.commit_many(transactions), len(transactions))
    except TransactionRefused as refused:
        good, refusal = transactions[: refused.index], str(refused)
    # Other clients may commit in between, so this can stop even earlier.
    outcome = commit_until_refused(database, good)
    return CommitOutcome(outcome.version, outcome.committed, outcome.refusal or refusal)


def status_of(
    database: SourceDatabase, topic: str | None = None, versions: Sequence[int] = ()
) -> dict[str, Any]:
    """The public status of a source; the path of its file is not part of it.

    `histories` has the digests of its history up to these versions, as far as it knows them.
    """
    version, digest = database.standing
    digests = {each: database.digest_at(each) for each in versions}
    return {
        "source": database.source,
        "identity": database.identity,
        "version": version,
        "history": digest_to_text(digest),
        "histories": {str(v): digest_to_text(d) for v, d in digests.items() if d != UNKNOWN},
        "last_global": database.last_global,
        "published": database.published,
        "topic": topic,
        "relations": {relation.name: relation.to_json() for relation in database.catalog},
        "indexes": database.indexes,
        "reads": "versions",
    }


@contextmanager
def _reporting(source: str) -> Iterator[None]:
    """Turns errors into Flight's: the sender's faults are marked, others mean 'unavailable'."""
    try:
        yield
    except (WrongUse, SourceViolation) as error:
        raise flight.FlightServerError(_brief(error), extra_info=REFUSED) from None
    except ViewsweepError as error:
        raise flight.FlightUnavailableError(_brief(error)) from None
    except (duckdb.BinderException, duckdb.CatalogException) as error:
        fault = f"source {source}: {_brief(altered(error))}"
        raise flight.FlightServerError(fault, extra_info=REFUSED) from None
    except duckdb.Error as error:
        raise flight.FlightUnavailableError(f"source {source}: database: {_brief(error)}") from None
    except BaseException as error:
        # Asking again would not help. Otherwise Flight would send our traceback as the message.
        fault = f"source {source} failed: {_brief(words_of(error))}"
        raise flight.FlightServerError(fault, extra_info=REFUSED) from None


def _brief(error: object) -> str:
    text = str(error)
    return text if len(text) <= _LONGEST_ERROR else f"{text[:_LONGEST_ERROR]} …"


class _TokenCheck(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Admits requests that carry the token."""

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
        # In constant time, or the delay of the answer would reveal the token byte by byte.
        if not hmac.compare_digest(given, self._expected):
            raise flight.FlightUnauthenticatedError("this source needs a token, or a different one")
