"""The client of a query server: asks one source and turns its answers into frames.

A server that does not respond raises `Unreachable` (worth trying again). A server that refuses a
question, or whose answer does not fit it, raises `SourceViolation` (not worth trying again).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import flight

from protocols.algebra.delta import COUNT
from protocols.algebra.frame import Frame
from protocols.errors import SourceViolation, Unreachable, ViewsweepError, WrongUse
from protocols.exchange.correction import widened
from protocols.exchange.inclusion import Inclusion, Prefix, Window
from protocols.exchange.questions import Answer, Joint, Query, Question
from protocols.views.catalog import Relation, relation_from_json
from sources.history import digest_from_text
from sources.transaction import Transaction
from sources.wire.answers import fault, most_rows, schema_fault, subject
from sources.wire.inclusions import INCLUSION, NoInclusion, decode_inclusion
from sources.wire.messages import (
    COMMIT,
    HISTORY,
    REFUSED,
    STATISTICS,
    STATUS,
    VERSION,
    check_token,
    counted,
    encode_question,
    encode_status_question,
)
from sources.wire.status import (
    checked_outcome,
    checked_statistics,
    checked_status,
    object_in,
)
from sources.wire.transactions import encode_transactions

#: By default gRPC backs off for up to two minutes; retries need an answer sooner. gRPC uses the
#: shortest pause also as the time limit of one attempt, and a busy machine may need that long. A
#: separate connection pool keeps a later client from getting a broken connection.
_CHANNEL = [
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 2_000),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.use_local_subchannel_pool", 1),
]
#: The most transactions in one request.
_GROUP = 1000
#: The most rows that the transactions of one request change together.
_GROUP_ROWS = 100_000
_MEGABYTE = 2**20
#: The smallest size of a row: the count that it is given here if it has none.
_ROW_BYTES = 8
#: The largest version that a column of 64 bits holds, and its number of digits.
_LAST_VERSION, _DIGITS = 2**63 - 1, 19


@dataclass(frozen=True)
class Limits:
    """Bounds on one answer."""

    megabytes: int = 256
    seconds: float = 30.0


class SourceClient:
    """A connection to the query server of one source; threads may share it."""

    def __init__(
        self,
        address: str,
        token: str | None = None,
        tls_roots: bytes | None = None,
        source: str | None = None,
        limits: Limits = Limits(),
    ) -> None:
        self.address = address
        self._limits = limits
        #: The source's name for messages, if known.
        self._source = source or ""
        if token is not None:
            check_token(token)
        self._headers = [(b"authorization", f"Bearer {token}".encode())] if token else []
        roots = {} if tls_roots is None else {"tls_root_certs": tls_roots}
        try:
            channel = [*_CHANNEL, ("grpc.max_receive_message_length", self._most_in_one)]
            self._client = flight.FlightClient(address, generic_options=channel, **roots)
        except (pa.ArrowException, OSError, ValueError, KeyError) as error:
            raise WrongUse(
                f"{address!r} is not the address of a query server,"
                f" which looks like grpc://host:port or grpc+tls://host:port: {_first_line(error)}"
            ) from None

    def close(self) -> None:
        self._client.close()

    def __enter__(self) -> "SourceClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, question: Question[Frame], timeout: float | None = None) -> Answer[Frame]:
        """Asks a question; the answer has its rows and the source's version that they belong to.

        SourceViolation if the answer does not fit the question.
        """
        self._source = question.source
        ticket = encode_question(question)
        options = self._options(timeout or self._limits.seconds)
        with self._failing(SourceViolation):
            reader = self._client.do_get(flight.Ticket(ticket), options)
            metadata = reader.schema.metadata or {}
            version, digest = self._version(question, metadata), self._digest(question, metadata)
            inclusion = self._inclusion(question, version, metadata)
            told = question
            if isinstance(inclusion, Window) and isinstance(question, Query):
                # A source that reads row by row sends the keys as well.
                told = widened(question)
            self._refuse(question, schema_fault(told, reader.schema))
            table = self._received(told, reader, once=told is question)
        rows = counted(table)
        self._refuse(question, fault(told, rows, once=told is question), version)
        self._refuse_copies(question, rows)
        return Answer(
            rows=rows,
            inclusion=inclusion,
            digest=digest,
            bytes_sent=len(ticket),
            bytes_received=table.nbytes,
        )

    def _received(
        self, question: Question[Frame], reader: flight.FlightStreamReader, once: bool
    ) -> pa.Table:
        """Reads the rows batch by batch; stops as soon as a bound is exceeded."""
        batches, rows, size, most = [], 0, 0, most_rows(question) if once else None
        for chunk in reader:
            if chunk.data is None:
                continue
            rows, size = rows + chunk.data.num_rows, size + chunk.data.nbytes
            if most is not None and rows > most:
                reader.cancel()
                self._refuse(question, f"has {rows:,} rows or more; at most {most:,} are possible")
            if size + rows * _ROW_BYTES > self._most_bytes:
                reader.cancel()
                self._refuse_size(question, rows)
            batches.append(chunk.data)
        # Metadata of fields is dropped: it is not needed, and Polars would interpret it.
        plain = pa.schema([field.remove_metadata() for field in reader.schema])
        table = pa.Table.from_batches(batches, plain)
        try:
            table.validate(full=True)
        except pa.ArrowInvalid as error:
            self._refuse(question, f"has values that its types do not allow: {_first_line(error)}")
        return table

    def _refuse_copies(self, question: Question[Frame], rows: Frame) -> None:
        """Refuses an answer whose counts add up to too many rows."""
        # As floats: the sum of 2^62 and 2^62 would overflow 64 bits.
        copies = np.abs(rows.data.get_column(COUNT).to_numpy().astype(np.float64)).sum()
        if copies > self._most_bytes // _ROW_BYTES:
            self._refuse_size(question, int(copies))

    def _refuse_size(self, question: Question[Frame], rows: int) -> None:
        raise SourceViolation(
            f"{self._place()}: the answer about {subject(question)} is larger than"
            f" {self._limits.megabytes} MB: it has {rows:,} rows or more. It was discarded."
            " If that many are expected, raise job.answer_megabytes; otherwise repair the query"
            " server. Then run the same command again to resume"
        )

    def _refuse(
        self, question: Question[Frame], fault: str | None, version: int | None = None
    ) -> None:
        if fault is None:
            return
        when = "" if version is None else f", version {version},"
        raise SourceViolation(
            f"{self._place()}: the answer about {subject(question)}{when} {fault}. It was"
            " discarded. Repair the query server, or correct its address in the configuration; then"
            " run the same command again, and it resumes"
        )

    def status(self, timeout: float = 10.0, body: bytes = b"") -> dict[str, Any]:
        """Name, version, published version, topic, relations (in JSON form) and indexed columns."""
        status = checked_status(self._place(), self._act(STATUS, body, timeout))
        self._source = status["source"]
        return status

    def digests(self, versions: Sequence[int], timeout: float = 10.0) -> dict[int, int]:
        """Version → digest of the source's history up to it, for the versions that it knows."""
        histories = self.status(timeout, encode_status_question(versions))["histories"]
        return {each: digest_from_text(histories.get(str(each))) for each in versions}

    def statistics(self, timeout: float = 10.0) -> dict[str, dict[str, Any]]:
        """Relation → its number of rows, and of different values by column."""
        return checked_statistics(self._place(), self._act(STATISTICS, b"", timeout))

    def relations(self, timeout: float = 10.0) -> dict[str, Relation]:
        """The relations that the source holds, by name."""
        forms = self.status(timeout)["relations"]
        return {name: relation_from_json(self._source, name, form) for name, form in forms.items()}

    def commit(self, transactions: Sequence[Transaction], timeout: float = 60.0) -> int:
        """Commits transactions in order until one is refused; returns the last version."""
        relations = self.relations()
        version = 0
        start = 0
        while start < len(transactions):
            group = _together(transactions, start)
            try:
                request = encode_transactions(group, relations)
                outcome = checked_outcome(self._place(), self._act(COMMIT, request, timeout))
            except Unreachable as error:
                raise Unreachable(
                    f"{error}; {start} transactions are committed, and either all or none of the"
                    f" next {len(group)}: 'sources status' shows the version"
                ) from None
            version = outcome["version"]
            if outcome["refusal"] is not None:
                committed = start + outcome["committed"]
                raise CommitStopped(committed, version, outcome["refusal"])
            start += len(group)
        return version

    def _act(self, action: str, body: bytes, timeout: float) -> dict[str, Any]:
        with self._failing(WrongUse):
            results = self._client.do_action((action, body), self._options(timeout))
            bodies = [result.body.to_pybytes() for result in results]
        return object_in(self._place(), bodies)

    def _options(self, timeout: float) -> Any:
        return flight.FlightCallOptions(timeout=timeout, headers=self._headers)

    @property
    def _most_bytes(self) -> int:
        return self._limits.megabytes * _MEGABYTE

    @property
    def _most_in_one(self) -> int:
        """The largest gRPC message to accept: a whole answer with its overhead."""
        return min(self._most_bytes + _MEGABYTE, 2**31 - 1)

    def _version(self, question: Question[Frame], metadata: dict[bytes, bytes]) -> int:
        text = metadata.get(VERSION, b"")
        if not text.isdigit() or len(text) > _DIGITS or int(text) > _LAST_VERSION:
            self._refuse(question, f"has the version {text[:40]!r}, which is not a commit number")
        return int(text)

    def _inclusion(
        self, question: Question[Frame], version: int, metadata: dict[bytes, bytes]
    ) -> Inclusion:
        """The transactions that the answer contains."""
        try:
            found = decode_inclusion(version, metadata.get(INCLUSION))
        except NoInclusion as why:
            self._refuse(question, f"has a description of its transactions that {why}")
            raise
        if found != Prefix(version) and isinstance(question, Joint):
            self._refuse(question, "was not read from one version of the source")
        if isinstance(found, Window) and isinstance(question, Query) and not question.relation.key:
            self._refuse(question, "was read row by row, and the relation has no key")
        return found

    def _digest(self, question: Question[Frame], metadata: dict[bytes, bytes]) -> int:
        """The digest of the source's history up to the answer's version."""
        text = metadata.get(HISTORY)
        try:
            return digest_from_text(None if text is None else text.decode())
        except ValueError:
            self._refuse(question, f"has the history {text!r}, which is not a digest")
            raise

    def _place(self) -> str:
        return f"source {self._source} at {self.address}" if self._source else self.address

    @contextmanager
    def _failing(self, refused: type[ViewsweepError]) -> Iterator[None]:
        """Turns errors of Flight into ours."""
        try:
            yield
        except flight.FlightUnauthenticatedError as error:
            raise WrongUse(f"{self._place()}: {_first_line(error)}") from None
        except flight.FlightCancelledError:
            raise Unreachable(
                f"{self._place()}: an answer was cut off; that happens if a single message is"
                f" larger than {self._limits.megabytes} MB; if that many rows are expected, raise"
                " job.answer_megabytes"
            ) from None
        except flight.FlightError as error:
            if error.extra_info == REFUSED:
                raise refused(f"{self._place()}: {_first_line(error)}") from None
            raise Unreachable(f"{self._place()} does not answer: {_first_line(error)}") from None
        except (pa.ArrowException, OSError) as error:
            raise Unreachable(f"{self._place()} does not answer: {_first_line(error)}") from None


class CommitStopped(WrongUse):
    """A transaction was refused; the `committed` transactions before it stay committed."""

    def __init__(self, committed: int, version: int, reason: str) -> None:
        super().__init__(f"transaction {committed} was refused: {reason}")
        self.committed = committed
        self.version = version
        self.reason = reason


def _together(transactions: Sequence[Transaction], start: int) -> list[Transaction]:
    """The transactions of the next request: one, or several within the bounds."""
    group, rows = [transactions[start]], 0
    for each in transactions[start : start + _GROUP]:
        rows += sum(abs(change.count) for change in each.changes)
        if rows > _GROUP_ROWS:
            break
        group.append(each)
    return group[1:] or group


def _first_line(error: Exception) -> str:
    """The message of Flight without the text that gRPC adds."""
    text = str(error).partition(". Detail: ")[0].partition(" gRPC client debug context")[0]
    return text.rpartition("with message: ")[2].rstrip(" .")
