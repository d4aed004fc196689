"""The adapter of PostgreSQL databases with Debezium: the port's `Source`."""

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace

from protocols.algebra.frame import Frame
from protocols.errors import ProtocolBug, SourceViolation, Unreachable, WrongUse
from protocols.exchange.questions import Answer, Joint, Question
from protocols.views.catalog import Relation
from protocols.views.statistics import Statistics
from sources.debezium.feed import DebeziumFeed
from sources.debezium.numbering import Numbered, Numbering
from sources.envelope.parts import PartsOfTopic
from sources.history import UNKNOWN
from sources.partitions import Ends, Offsets, Partition, Token, offsets_in, token_of
from sources.port import Changes, Description, Known, Parts, Receiver
from sources.postgres.connecting import DatabaseConnections
from sources.postgres.describing import DescribedSchema, describe
from sources.postgres.inclusion import inclusion
from sources.postgres.lookup import Lookup
from sources.postgres.statistics import statistics

_SECONDS = 10.0
_MOMENT = 0.02
#: A token has three numbers: the topic, the offset, the place of the last commit.
_TOKEN = 3


class PostgresSource:
    """One schema of one database, and the topic of its connector."""

    def __init__(
        self,
        name: str,
        topics: Sequence[str],
        connections: DatabaseConnections,
        schema: str,
        seconds: float,
    ) -> None:
        self.name = name
        self.topics = tuple(topics)
        if len(self.topics) > 1:
            raise WrongUse(
                f"sources.{name}.topic: a PostgreSQL source has one topic, into which its connector"
                " routes all records"
            )
        self._connections, self._schema, self._seconds = connections, schema, seconds
        self._lock = threading.Lock()
        self._numbering: Numbering | None = None
        self._described: DescribedSchema | None = None

    # -- numbers -------------------------------------------------------------------------------

    def begin(self, bootstrap: str, ends: Ends, known: Known | None) -> None:
        if len(ends) != 1:
            raise WrongUse(
                f"source {self.name}: topic {self.topics[0]!r} has {len(ends)} partitions; a"
                " connector's topic needs one, which keeps the order of the database's log"
            )
        [(partition, (_, high))] = ends.items()
        if known is None:
            beginning = self._new_beginning(bootstrap, partition, high)
        else:
            version, token = known
            beginning = self._in_token(version, token, ends)
            self._refuse_an_earlier_log(beginning.committed)
        if self._numbering is not None:
            self._numbering.close()
        self._numbering = Numbering(bootstrap, self.name, partition, beginning)
        self._wait_for_the_running()

    def _in_token(self, version: int, token: Token, ends: Ends) -> Numbered:
        """The place in a token, checked against the topic."""
        [(partition, (low, high))] = ends.items()
        offsets = offsets_in(token, ends)
        if offsets is None or len(token) != _TOKEN:
            raise SourceViolation(
                f"source {self.name}: the views were kept from another topic than"
                f" {partition.topic!r}; name the same one, or recreate the views (remove their"
                " directories)"
            )
        offset, committed = offsets[partition], token[-1]
        if not low <= offset <= high:
            raise SourceViolation(
                f"source {self.name}: {partition} has records from {low} up to {high}, and the"
                f" views go on at {offset}: the topic was recreated, or has lost records. Restore"
                " it, or recreate the views (remove their directories)"
            )
        return Numbered(version, offset, committed)

    def _new_beginning(self, bootstrap: str, partition: Partition, high: int) -> Numbered:
        """The place of a message of ours: before it, there is nothing that has a number."""
        numbering = Numbering(bootstrap, self.name, partition, Numbered(0, high, 0))
        with closing(numbering):
            found = self._passed(numbering, self._seconds)
            return replace(found, version=0)

    def _passed(self, numbering: Numbering, seconds: float) -> Numbered:
        """Writes a message, and waits for it in the topic."""
        with self._connections.snapshot() as (_, snapshot):
            numbering.expect(snapshot.message)
        return numbering.passed(snapshot.message, seconds)

    def _wait_for_the_running(self) -> None:
        """Waits for the transactions that have not ended.

        One of them may stand in the topic before the beginning and not be visible yet. From now on
        every answer contains all that stand there.
        """
        deadline = time.monotonic() + self._seconds
        waiting: frozenset[int] | None = None
        while True:
            with self._connections.snapshot() as (_, snapshot):
                now = snapshot.running
            waiting = now if waiting is None else waiting & now
            if not waiting:
                return
            if time.monotonic() > deadline:
                numbers = ", ".join(map(str, sorted(waiting)[:5]))
                raise Unreachable(
                    f"source {self.name}: transactions {numbers} of its database have not ended"
                    f" for {self._seconds:g} s; views begin when they have. Commit them, roll them"
                    " back, or end their sessions (pg_stat_activity, pg_prepared_xacts)"
                )
            time.sleep(_MOMENT)

    @property
    def _numbers(self) -> Numbering:
        if self._numbering is None:
            raise ProtocolBug(f"source {self.name} was asked before its numbers began")
        return self._numbering

    # -- the port ------------------------------------------------------------------------------

    def describe(self, timeout: float = _SECONDS) -> Description:
        if self._numbering is None:
            # Somebody asks for its relations only.
            return self._description(self._known, Numbered(0, 0, 0))
        with self._connections.snapshot(timeout) as (cursor, snapshot):
            described = describe(cursor, self.name, self._schema)
            self._numbers.expect(snapshot.message)
        last = self._numbers.passed(snapshot.message, min(timeout, self._seconds))
        with self._lock:
            self._described = described
        return self._description(described, last)

    def _description(self, described: DescribedSchema, last: Numbered) -> Description:
        [topic] = self.topics
        return Description(
            source=self.name,
            version=last.version,
            relations=described.relations,
            published=last.version,
            last_global=0,
            reads="holes",
            token=token_of({Partition(topic): last.offset}, last.committed),
            indexes=described.indexes,
            left_out=described.left_out,
        )

    def statistics(self, timeout: float = _SECONDS) -> Mapping[str, Statistics]:
        with self._connections.plain(timeout) as cursor:
            return statistics(cursor, self._schema, self._known.relations)

    def digests(self, versions: Sequence[int], _timeout: float = _SECONDS) -> dict[int, int]:
        return dict.fromkeys(versions, UNKNOWN)

    def ask(self, question: Question[Frame]) -> Answer[Frame]:
        if isinstance(question, Joint):
            raise WrongUse(f"source {self.name}: a database answers no joint questions")
        name = question.relation.name
        layout = self._known.tables.get(name)
        if layout is None or layout.relation != question.relation:
            raise SourceViolation(
                f"source {self.name}: table {name} is not what it was when the view was created;"
                " recreate the view (remove its directory)"
            )
        lookup = Lookup(self._schema, layout.relation, self._known.types[name])
        with self._connections.snapshot() as (cursor, snapshot):
            rows = lookup.rows(cursor, question)
            self._numbers.expect(snapshot.message)
        last = self._numbers.passed(snapshot.message, self._seconds)
        return Answer(
            rows=rows,
            inclusion=inclusion(snapshot, self._numbers, last.version),
            bytes_received=int(rows.data.estimated_size()),
        )

    @property
    def _known(self) -> DescribedSchema:
        """The description; asked for if nobody has yet."""
        with self._lock:
            if self._described is None:
                with self._connections.plain() as cursor:
                    self._described = describe(cursor, self.name, self._schema)
            return self._described

    def changes(
        self,
        relations: Sequence[Relation],
        receiver: Receiver,
        offsets: Offsets,
        more: Sequence[int],
        _digest: int,
    ) -> Changes:
        tables = [self._known.tables[relation.name] for relation in relations]
        return DebeziumFeed(self.name, tables, receiver, offsets, *more)

    def resumed(
        self, _bootstrap: str, ends: Ends, version: int, token: Token, _digest: int
    ) -> Token:
        self._in_token(version, token, ends)
        return token

    def _refuse_an_earlier_log(self, committed: int) -> None:
        with self._connections.plain() as cursor:
            row = cursor.execute("SELECT pg_current_wal_lsn() - '0/0'").fetchone()
        assert row is not None
        if int(row[0]) < committed:
            raise SourceViolation(
                f"source {self.name}: the log of its database ends at {int(row[0])}, and the views"
                f" have seen a commit at {committed}: it was restored from a backup, or is another"
                " database. Restore the right one, or recreate the views (remove their directories)"
            )

    def parts(self, _bootstrap: str, ends: Ends, _upto: int) -> Parts:
        return PartsOfTopic(self.name, ends, 0)

    def close(self) -> None:
        if self._numbering is not None:
            self._numbering.close()
        self._connections.close()
