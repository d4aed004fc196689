"""The adapters of databases whose changes Debezium publishes: what they have in common.

Such a source has one topic, into which its connector routes all records. Its transactions are
numbered here, in the order of the topic. A question leaves a mark in the database's log; when the
mark has come through the topic, the numbers of all that the answer can contain are known.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import ClassVar

from protocols.algebra.frame import Frame
from protocols.errors import ProtocolBug, SourceViolation, WrongUse
from protocols.exchange.inclusion import Inclusion, Reads
from protocols.exchange.questions import Answer, Query, Question
from protocols.views.catalog import Relation
from protocols.views.statistics import Statistics
from sources.debezium.feed import DebeziumFeed
from sources.debezium.layout import TableLayout
from sources.debezium.logform import LogForm
from sources.debezium.numbering import Numbered, Numbering
from sources.debezium.schema import DescribedSchema
from sources.envelope.parts import PartsOfTopic
from sources.history import UNKNOWN
from sources.kafka import Kafka
from sources.partitions import Ends, Offsets, Partition, Token, offsets_in, token_of
from sources.port import Changes, Description, Known, Parts, Receiver

SECONDS = 10.0
#: A token has three numbers: the topic, the offset, the place of the last commit.
_TOKEN = 3


class DebeziumSource(ABC):
    """One schema of one database, and the topic of its connector: the port's `Source`."""

    #: The kind of database, for messages.
    kind: ClassVar[str]
    #: What its answers contain.
    reads: ClassVar[Reads]

    def __init__(self, name: str, topics: Sequence[str], seconds: float) -> None:
        self.name = name
        self.topics = tuple(topics)
        if len(self.topics) > 1:
            raise WrongUse(
                f"sources.{name}.topic: a {self.kind} source has one topic, into which its"
                " connector routes all records"
            )
        self._seconds = seconds
        self._lock = threading.Lock()
        self._numbering: Numbering | None = None
        self._described: DescribedSchema | None = None

    # -- what each kind of database does in its own way ----------------------------------------

    @property
    @abstractmethod
    def _form(self) -> LogForm:
        """How its records name transactions."""

    @abstractmethod
    def _read_schema(self, seconds: float) -> DescribedSchema:
        """Its relations."""

    @abstractmethod
    def _marked(self, numbering: Numbering, seconds: float) -> Numbered:
        """Leaves a mark in the database's log; the last transaction when that has come."""

    @abstractmethod
    def _wait_for_earlier(self) -> None:
        """Returns when every answer contains all that stands in the topic before the beginning."""

    @abstractmethod
    def _end_of_log(self) -> int:
        """The place at which the database's log ends."""

    @abstractmethod
    def _asked(self, layout: TableLayout, query: Query[Frame]) -> tuple[Frame, Inclusion]:
        """The rows that a question asks for, and the transactions in them."""

    # -- numbers -------------------------------------------------------------------------------

    def begin(self, kafka: Kafka, ends: Ends, known: Known | None) -> None:
        """Numbers transactions from the latest version that is known, or from now on."""
        if len(ends) != 1:
            raise WrongUse(
                f"source {self.name}: topic {self.topics[0]!r} has {len(ends)} partitions; a"
                " connector's topic must have exactly one, so that the order of the database's log"
                " is preserved"
            )
        if self._numbering is not None:
            self._numbering.close()
            self._numbering = None
        [(partition, (_, high))] = ends.items()
        if known is None:
            beginning = self._new_beginning(kafka, partition, high)
        else:
            version, token = known
            beginning = self._in_token(version, token, ends)
            self._refuse_an_earlier_log(beginning.committed)
        self._numbering = self._from(kafka, partition, beginning)
        self._wait_for_earlier()

    def _from(self, kafka: Kafka, partition: Partition, beginning: Numbered) -> Numbering:
        return Numbering(kafka, self.name, partition, self._form, beginning)

    def _in_token(self, version: int, token: Token, ends: Ends) -> Numbered:
        """The place in a token, checked against the topic."""
        [(partition, (low, high))] = ends.items()
        offsets = offsets_in(token, ends)
        if offsets is None or len(token) != _TOKEN:
            raise SourceViolation(
                f"source {self.name}: the views were kept up to date from a topic other than"
                f" {partition.topic!r}; configure the topic used before, or recreate the views"
                " (remove their directories)"
            )
        if self._numbering is not None:
            # The topic may have grown since its ends were asked for.
            high = max(high, self._numbering.last.offset)
        offset, committed = offsets[partition], token[-1]
        if not low <= offset <= high:
            raise SourceViolation(
                f"source {self.name}: {partition} has records from {low} up to {high}, but the"
                f" views resume at {offset}: the topic was recreated, or has lost records. Restore"
                " it, or recreate the views (remove their directories)"
            )
        return Numbered(version, offset, committed)

    def _new_beginning(self, kafka: Kafka, partition: Partition, high: int) -> Numbered:
        """The place of a mark of ours: before it, there is nothing that has a number."""
        numbering = self._from(kafka, partition, Numbered(0, high, 0))
        with closing(numbering):
            return replace(self._marked(numbering, self._seconds), version=0)

    def _refuse_an_earlier_log(self, committed: int) -> None:
        end = self._end_of_log()
        if end < committed:
            raise SourceViolation(
                f"source {self.name}: the log of its database ends at {end}, but the views have"
                f" seen a commit at {committed}: the database was restored from a backup, or is a"
                " different one. Restore the right one, or recreate the views (remove their"
                " directories)"
            )

    @property
    def _numbers(self) -> Numbering:
        if self._numbering is None:
            raise ProtocolBug(f"source {self.name} was asked before its numbers began")
        return self._numbering

    # -- the port ------------------------------------------------------------------------------

    def describe(self, timeout: float = SECONDS) -> Description:
        """Its relations; its version is that of a mark, once its numbers have begun."""
        if self._numbering is None:
            return self._description(self._known, Numbered(0, 0, 0))
        described = self._read_schema(timeout)
        last = self._marked(self._numbering, min(timeout, self._seconds))
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
            reads=self.reads,
            token=token_of({Partition(topic): last.offset}, last.committed),
            indexes=described.indexes,
            left_out=described.left_out,
        )

    @abstractmethod
    def statistics(self, timeout: float = SECONDS) -> Mapping[str, Statistics]:
        """The sizes of its relations, as the database estimates them."""

    def digests(self, versions: Sequence[int], _timeout: float = SECONDS) -> dict[int, int]:
        """Databases keep none."""
        return dict.fromkeys(versions, UNKNOWN)

    def ask(self, question: Question[Frame]) -> Answer[Frame]:
        """Asks the database, and waits until the numbers of what it answered are known."""
        if not isinstance(question, Query):
            raise WrongUse(
                f"source {self.name}: a PostgreSQL or MariaDB source cannot answer joint questions"
                " (joins evaluated at the source)"
            )
        name = question.relation.name
        layout = self._known.tables.get(name)
        if layout is None or layout.relation != question.relation:
            raise SourceViolation(
                f"source {self.name}: table {name} has changed since the view was created;"
                " recreate the view (remove its directory)"
            )
        rows, inclusion = self._asked(layout, question)
        return Answer(
            rows=rows, inclusion=inclusion, bytes_received=int(rows.data.estimated_size())
        )

    @property
    def _known(self) -> DescribedSchema:
        """The description; asked for if nobody has yet."""
        with self._lock:
            if self._described is None:
                self._described = self._read_schema(self._seconds)
            return self._described

    def changes(
        self,
        relations: Sequence[Relation],
        receiver: Receiver,
        offsets: Offsets,
        more: Sequence[int],
        _digest: int,
    ) -> Changes:
        """The changes of these relations, from a token on."""
        tables = [self._known.tables[relation.name] for relation in relations]
        return DebeziumFeed(self.name, tables, self._form, receiver, offsets, *more)

    def resumed(self, _kafka: Kafka, ends: Ends, version: int, token: Token, _digest: int) -> Token:
        """The token itself, checked against what the topic holds."""
        self._in_token(version, token, ends)
        return token

    def parts(self, _kafka: Kafka, ends: Ends, _upto: int) -> Parts:
        """None: no transaction of a database is a part of a global one."""
        return PartsOfTopic(self.name, ends, 0)

    def close(self) -> None:
        """Ends the numbering; an adapter closes its connections too."""
        if self._numbering is not None:
            self._numbering.close()
