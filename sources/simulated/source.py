"""The adapter of the simulated sources: a query server asked over Arrow Flight, and records of our
own envelope in a topic. Any database behind such a server and such a topic is one.
"""

from collections.abc import Mapping, Sequence

from protocols.algebra.frame import Frame
from protocols.errors import Unreachable, WrongUse
from protocols.exchange.questions import Answer, Question
from protocols.views.catalog import Relation, relation_from_json
from protocols.views.statistics import Statistics
from sources.envelope.feed import Feed
from sources.envelope.parts import PartsOfTopic
from sources.envelope.resuming import Resuming
from sources.history import digest_from_text
from sources.kafka import Kafka
from sources.partitions import Ends, Offsets, Token
from sources.port import Changes, Description, Known, Parts, Receiver
from sources.topics import ends_of
from sources.wire.client import SourceClient

#: How long a description may take; a busy source answers later than one that is asked for rows.
_SECONDS = 10.0


class SimulatedSource:
    """One source: its query server and its topics."""

    def __init__(self, name: str, topics: Sequence[str], client: SourceClient) -> None:
        self.name = name
        self.topics = tuple(topics)
        self._client = client

    def begin(self, kafka: Kafka, ends: Ends, known: Known | None) -> None:
        """Does nothing: the records have numbers."""

    def describe(self, timeout: float = _SECONDS) -> Description:
        status = self._client.status(timeout)
        if status["source"] != self.name:
            raise WrongUse(
                f"sources.{self.name}.address: the source there calls itself {status['source']!r}"
            )
        return Description(
            source=self.name,
            version=status["version"],
            relations={
                name: relation_from_json(self.name, name, form)
                for name, form in status["relations"].items()
            },
            digest=digest_from_text(status["history"]),
            published=status["published"],
            last_global=status.get("last_global"),
            reads=status["reads"],
            indexes=status["indexes"],
        )

    def statistics(self, timeout: float = _SECONDS) -> Mapping[str, Statistics]:
        try:
            found = self._client.statistics(timeout)
        except WrongUse:
            # A query server need not keep any.
            return {}
        return {name: Statistics(form["rows"], form["distinct"]) for name, form in found.items()}

    def digests(self, versions: Sequence[int], timeout: float = _SECONDS) -> dict[int, int]:
        return self._client.digests(versions, timeout)

    def ask(self, question: Question[Frame]) -> Answer[Frame]:
        return self._client.ask(question)

    def changes(
        self,
        relations: Sequence[Relation],
        receiver: Receiver,
        offsets: Offsets,
        _more: Sequence[int],
        digest: int,
    ) -> Changes:
        return Feed(self.name, relations, receiver, offsets, digest)

    def resumed(self, kafka: Kafka, ends: Ends, version: int, token: Token, digest: int) -> Token:
        def digest_at(earlier: int) -> int:
            return self.digests([earlier])[earlier]

        return Resuming(kafka, self.name, ends, digest_at).token(version, token, digest)

    def parts(self, kafka: Kafka, ends: Ends, upto: int) -> Parts:
        if len(ends) == 1 or not upto:
            return PartsOfTopic(self.name, ends, upto)
        # One partition ends with its last version; several end together when all is published.
        published = self.describe().published
        if published < upto:
            raise Unreachable(
                f"source {self.name} has published versions only up to {published}, but version"
                f" {upto} is needed: are its publisher and the broker running?"
            )
        return PartsOfTopic(self.name, ends_of(kafka, {self.name: self.topics})[self.name], upto)

    def close(self) -> None:
        self._client.close()
