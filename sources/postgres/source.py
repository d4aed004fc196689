"""The adapter of PostgreSQL databases with Debezium: the port's `Source`."""

import time
from collections.abc import Mapping, Sequence

from protocols.algebra.frame import Frame
from protocols.errors import Unreachable
from protocols.exchange.inclusion import Inclusion
from protocols.exchange.questions import Query
from protocols.views.statistics import Statistics
from sources.debezium.layout import TableLayout
from sources.debezium.numbering import Numbered, Numbering
from sources.debezium.schema import DescribedSchema
from sources.debezium.source import SECONDS, DebeziumSource
from sources.postgres.connecting import DatabaseConnections
from sources.postgres.describing import PUBLICATION, describe
from sources.postgres.inclusion import inclusion
from sources.postgres.logform import PostgresLogForm
from sources.postgres.lookup import PostgresLookup
from sources.postgres.statistics import statistics

_MOMENT = 0.02


class PostgresSource(DebeziumSource):
    """One schema of one database; the mark of a question is a message in the log."""

    kind = "PostgreSQL"
    reads = "holes"
    _form = PostgresLogForm()

    def __init__(
        self,
        name: str,
        topics: Sequence[str],
        connections: DatabaseConnections,
        seconds: float,
        schema: str = "public",
        publication: str = PUBLICATION,
    ) -> None:
        super().__init__(name, topics, seconds)
        self._connections, self._schema = connections, schema
        self._publication = publication

    def _read_schema(self, seconds: float) -> DescribedSchema:
        with self._connections.plain(seconds) as cursor:
            return describe(cursor, self.name, self._schema, self._publication)

    def _marked(self, numbering: Numbering, seconds: float) -> Numbered:
        with self._connections.snapshot(seconds) as (_, snapshot):
            numbering.expect(snapshot.message)
        return numbering.passed(snapshot.message, seconds)

    def _wait_for_earlier(self) -> None:
        """Waits for the transactions that have not ended.

        One of them may stand in the topic before the beginning and not be visible yet.
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
                    f" within {self._seconds:g} s; views cannot begin until they have."
                    " Commit them, roll them back, or end their sessions (pg_stat_activity,"
                    " pg_prepared_xacts)"
                )
            time.sleep(_MOMENT)

    def _end_of_log(self) -> int:
        with self._connections.plain() as cursor:
            row = cursor.execute("SELECT pg_current_wal_lsn() - '0/0'").fetchone()
        assert row is not None
        return int(row[0])

    def _asked(self, layout: TableLayout, query: Query[Frame]) -> tuple[Frame, Inclusion]:
        name = layout.relation.name
        lookup = PostgresLookup(self._schema, layout.relation, self._known.types[name])
        with self._connections.snapshot() as (cursor, snapshot):
            rows = lookup.rows(cursor, query)
            self._numbers.expect(snapshot.message)
        last = self._numbers.passed(snapshot.message, self._seconds)
        return rows, inclusion(snapshot, self._numbers, last.version)

    def statistics(self, timeout: float = SECONDS) -> Mapping[str, Statistics]:
        """The sizes of its relations, as ANALYZE found them."""
        with self._connections.plain(timeout) as cursor:
            return statistics(cursor, self._schema, self._known.relations)

    def close(self) -> None:
        """Closes its connections."""
        super().close()
        self._connections.close()
