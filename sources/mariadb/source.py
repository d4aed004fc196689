"""The adapter of MariaDB databases with Debezium: the port's `Source`."""

import secrets
from collections.abc import Mapping, Sequence

from protocols.algebra.frame import Frame
from protocols.errors import WrongUse
from protocols.exchange.correction import widened
from protocols.exchange.inclusion import Inclusion, Window
from protocols.exchange.questions import Query
from protocols.views.statistics import Statistics
from sources.debezium.layout import TableLayout
from sources.debezium.numbering import Numbered, Numbering
from sources.debezium.schema import DescribedSchema
from sources.debezium.source import SECONDS, DebeziumSource
from sources.mariadb.connecting import DatabaseConnections
from sources.mariadb.describing import describe
from sources.mariadb.logform import MariaDBLogForm, number_of
from sources.mariadb.lookup import MariaDBLookup
from sources.mariadb.statistics import statistics

MARKS = "viewsweep_marks"
_BITS = 63


class MariaDBSource(DebeziumSource):
    """One database; the marks of a question are rows that it writes before and after it."""

    kind = "MariaDB"
    reads = "windows"

    def __init__(
        self,
        name: str,
        topics: Sequence[str],
        connections: DatabaseConnections,
        seconds: float,
        marks: str = MARKS,
    ) -> None:
        super().__init__(name, topics, seconds)
        self._connections, self._marks = connections, marks

    @property
    def _form(self) -> MariaDBLogForm:
        return MariaDBLogForm(self._connections.database, self._marks)

    def _read_schema(self, seconds: float) -> DescribedSchema:
        with self._connections.plain(seconds) as cursor:
            return describe(cursor, self.name, self._connections.database, self._marks)

    def _marked(self, numbering: Numbering, seconds: float) -> Numbered:
        with self._connections.marking(seconds) as marking:
            mark = _new_mark(numbering)
            marking.leave(mark)
        return numbering.passed(mark, seconds)

    def _wait_for_earlier(self) -> None:
        """Nothing to wait for: a mark's commit returns after all that its log has before it."""

    def _end_of_log(self) -> int:
        with self._connections.plain() as cursor:
            cursor.execute("SELECT @@gtid_binlog_pos")
            [[position]] = cursor.fetchall()
        if "," in position:
            raise WrongUse(
                f"source {self.name}: its database has several GTID domains ({position}), between"
                " which there is no order: views need a database with one"
            )
        return number_of(position) if position else 0

    def _asked(self, layout: TableLayout, query: Query[Frame]) -> tuple[Frame, Inclusion]:
        name = layout.relation.name
        lookup = MariaDBLookup(self._connections.database, layout.relation, self._known.types[name])
        numbers, first = self._numbers, None
        with self._connections.marking() as marking:
            low = marking.connection.recent
            if low is None:
                first = _new_mark(numbers)
                marking.leave(first)
            rows = lookup.rows(marking.cursor, widened(query))
            second = _new_mark(numbers)
            at = marking.leave(second)
        high = numbers.passed(second, self._seconds)
        if first is not None:
            low = numbers.passed(first, self._seconds)
        marking.connection.known = at, high
        assert low is not None
        return rows, Window(low.version, high.version)

    def statistics(self, timeout: float = SECONDS) -> Mapping[str, Statistics]:
        """The sizes of its relations, as the database estimates them."""
        with self._connections.plain(timeout) as cursor:
            return statistics(cursor, self._connections.database, self._known.relations)

    def close(self) -> None:
        """Closes its connections."""
        super().close()
        self._connections.close()


def _new_mark(numbering: Numbering) -> str:
    """A mark that nobody else leaves, and that is waited for from now on."""
    mark = str(secrets.randbits(_BITS))
    numbering.expect(mark)
    return mark
