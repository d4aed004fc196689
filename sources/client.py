"""The other end of a query server: asks one source, and turns what comes back into frames.

Who cannot be reached is `Unreachable` (worth trying again), who refuses a question or answers
something else than it was asked is a `SourceViolation` (not worth it).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import orjson
import polars as pl
import pyarrow as pa
from pyarrow import flight

from protocols.algebra.delta import COUNT
from protocols.algebra.frame import Frame
from protocols.errors import SourceViolation, Unreachable, ViewsweepError, WrongUse
from protocols.maintenance.questions import Answer, Joint, Question
from protocols.views.catalog import Relation, relation_from_json
from sources.transaction import Transaction
from sources.wire import (
    COMMIT,
    REFUSED,
    STATUS,
    VERSION,
    check_token,
    counted,
    encode_question,
    encode_transactions,
)

#: gRPC backs off for up to two minutes on its own; whoever asks again wants an answer earlier.
#: The least pause is for gRPC also what one attempt may take, and a busy machine takes its time.
#: A pool of its own keeps a broken connection from being shared with a later client.
_CHANNEL = [
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 2_000),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.use_local_subchannel_pool", 1),
]
#: How many transactions go out in one request.
_GROUP = 1000


class SourceClient:
    """A connection to the query server of one source; threads may share it."""

    def __init__(
        self,
        address: str,
        token: str | None = None,
        tls_roots: bytes | None = None,
        source: str | None = None,
    ) -> None:
        self.address = address
        #: The source's name as far as it is known: for messages.
        self._source = source or "?"
        if token is not None:
            check_token(token)
        self._headers = [(b"authorization", f"Bearer {token}".encode())] if token else []
        roots = {} if tls_roots is None else {"tls_root_certs": tls_roots}
        try:
            self._client = flight.FlightClient(address, generic_options=_CHANNEL, **roots)
        except (pa.ArrowInvalid, flight.FlightError, ValueError) as error:
            raise WrongUse(
                f"{address!r} is no address of a query server,"
                f" which looks like grpc://host:port or grpc+tls://host:port: {_first_line(error)}"
            ) from None

    def close(self) -> None:
        self._client.close()

    def __enter__(self) -> "SourceClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, question: Question[Frame], timeout: float = 30.0) -> Answer[Frame]:
        """The rows that are asked for, and the version of the source they belong to."""
        self._source = question.source
        ticket = encode_question(question)
        with self._failing(SourceViolation):
            reader = self._client.do_get(flight.Ticket(ticket), self._options(timeout))
            rows = reader.read_all()
        return Answer(
            rows=self._frame(question, rows),
            version=self._version(rows),
            bytes_sent=len(ticket),
            bytes_received=rows.nbytes,
        )

    def status(self, timeout: float = 10.0) -> dict[str, Any]:
        """Name, version, published version, topic, relations (in JSON form) and indexed columns."""
        status = self._act(STATUS, b"", timeout)
        self._source = str(status.get("source"))
        return status

    def relations(self, timeout: float = 10.0) -> dict[str, Relation]:
        """The relations that the source holds, by name."""
        forms = self.status(timeout)["relations"]
        return {name: relation_from_json(self._source, name, form) for name, form in forms.items()}

    def commit(self, transactions: Sequence[Transaction], timeout: float = 60.0) -> int:
        """Commits them in order and returns the last version; stops at the first one refused."""
        relations = self.relations()
        version = 0
        for start in range(0, len(transactions), _GROUP):
            group = list(transactions[start : start + _GROUP])
            try:
                outcome = self._act(COMMIT, encode_transactions(group, relations), timeout)
            except Unreachable as error:
                raise Unreachable(
                    f"{error}; {start} transactions are committed and the next {len(group)} are"
                    " all committed or none of them: 'sources status' shows the version"
                ) from None
            version = outcome["version"]
            if outcome["refusal"] is not None:
                committed = start + outcome["committed"]
                raise CommitStopped(committed, version, outcome["refusal"])
        return version

    def _act(self, action: str, body: bytes, timeout: float) -> dict[str, Any]:
        with self._failing(WrongUse):
            results = self._client.do_action((action, body), self._options(timeout))
            [result] = list(results)
        form: dict[str, Any] = orjson.loads(result.body.to_pybytes())
        return form

    def _options(self, timeout: float) -> Any:
        return flight.FlightCallOptions(timeout=timeout, headers=self._headers)

    def _version(self, rows: pa.Table) -> int:
        metadata = rows.schema.metadata or {}
        if VERSION not in metadata:
            raise SourceViolation(f"{self._place()}: an answer without a version")
        return int(metadata[VERSION])

    def _frame(self, question: Question[Frame], rows: pa.Table) -> Frame:
        frame = counted(rows)
        if isinstance(question, Joint):
            what, types = f"view {question.view.name}", question.view.schema
        else:
            relation = question.relation
            what, types = f"relation {relation}", {n: relation.type_of(n) for n in question.columns}
        expected = {name: type_.dtype for name, type_ in types.items()}
        if dict(frame.data.schema) != {**expected, COUNT: pl.Int64()}:
            raise SourceViolation(
                f"{self._place()}: {what} came as {dict(frame.data.schema)},"
                f" expected was {expected}; was it altered?"
            )
        return frame

    def _place(self) -> str:
        return f"source {self._source} at {self.address}"

    @contextmanager
    def _failing(self, refused: type[ViewsweepError]) -> Iterator[None]:
        """Errors of Flight in our terms."""
        try:
            yield
        except flight.FlightUnauthenticatedError as error:
            raise WrongUse(f"{self._place()}: {_first_line(error)}") from None
        except flight.FlightError as error:
            if error.extra_info == REFUSED:
                raise refused(f"{self._place()}: {_first_line(error)}") from None
            raise Unreachable(f"{self._place()} does not answer: {_first_line(error)}") from None
        except (pa.ArrowException, OSError) as error:
            raise Unreachable(f"{self._place()} does not answer: {_first_line(error)}") from None


class CommitStopped(WrongUse):
    """A transaction was refused; the `committed` ones before it stay committed."""

    def __init__(self, committed: int, version: int, reason: str) -> None:
        super().__init__(f"transaction {committed} was refused: {reason}")
        self.committed = committed
        self.version = version
        self.reason = reason


def _first_line(error: Exception) -> str:
    """Flight's message without what gRPC wraps around it."""
    text = str(error).partition(". Detail: ")[0].partition(" gRPC client debug context")[0]
    return text.rpartition("with message: ")[2].rstrip(" .")
