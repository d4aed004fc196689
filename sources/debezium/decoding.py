"""From Debezium's JSON to events: BEGIN, END and changes of rows, in columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import orjson
import polars as pl
from numpy.typing import NDArray

from protocols.algebra.delta import COUNT
from protocols.errors import SourceViolation
from protocols.exchange.deliveries import Numbers
from protocols.views.catalog import Relation
from sources.debezium.layout import UNCHANGED, TableLayout
from sources.debezium.logform import LogForm

#: Kinds of events. CHANGE: a row of any table, or a message.
BEGIN, CHANGE, END = 0, 1, 2
#: The column that names the event of a row.
EVENT = "_event"
#: Operations: created, updated, deleted, read by a snapshot, truncated, message.
_ROW_OPS = {"c", "u", "d"}
#: The values of a row, its count, and its event.
_Row: TypeAlias = tuple[dict[str, Any], int, int]


class BadEvent(SourceViolation):
    """An invalid record; `record` is its place among the decoded ones."""

    def __init__(self, record: int, reason: str) -> None:
        super().__init__(reason)
        self.record, self.reason = record, reason


#: The head of an event: its kind; the number of its transaction at the database; the place in the
#: database's log, of an END that of the commit; its offset; of a change the place of the commit
#: before it, 0 if the connector does not know. Of an END also the time of the commit (ms), the
#: number of changes that it says there are, and whether one of them is of a table.
HEAD = np.dtype(
    [
        *(("kind", "i1"), ("tx", "i8"), ("lsn", "i8"), ("offset", "i8")),
        *(("before", "i8"), ("ts_ms", "i8"), ("count", "i8"), ("has_rows", "?")),
    ]
)


@dataclass(frozen=True, eq=False)
class Events:
    """Some events in their order."""

    heads: NDArray[Any]
    #: By this a change differs from another one of its transaction: its place in the log, table,
    #: operation and rows.
    identity: Sequence[tuple[Any, ...]]
    #: Relation → its signed rows, each with the number of its event.
    rows: Mapping[Relation, pl.DataFrame]

    def __len__(self) -> int:
        return len(self.heads)

    def __getitem__(self, field: str) -> NDArray[Any]:
        """One field of all heads."""
        found: NDArray[Any] = self.heads[field]
        return found

    def at(self, places: Numbers) -> "Events":
        """The events at these places, in this order."""
        back = np.full(len(self), -1, np.int64)
        back[places] = np.arange(len(places))
        rows = {
            relation: found.with_columns(pl.Series(EVENT, back[found.get_column(EVENT).to_numpy()]))
            .filter(pl.col(EVENT) >= 0)
            .sort(EVENT, maintain_order=True)
            for relation, found in self.rows.items()
        }
        return Events(self.heads[places], [self.identity[p] for p in places.tolist()], rows)

    def then(self, later: "Events") -> "Events":
        """These events and later ones."""
        if not len(self):
            return later
        moved = {
            relation: found.with_columns(pl.col(EVENT) + len(self))
            for relation, found in later.rows.items()
        }
        rows = {
            relation: pl.concat([each[relation] for each in (self.rows, moved) if relation in each])
            for relation in dict.fromkeys([*self.rows, *moved])
        }
        heads = np.concatenate([self.heads, later.heads])
        return Events(heads, [*self.identity, *later.identity], rows)


def changes_a_table(end: Mapping[str, Any], form: LogForm) -> bool:
    """Whether a transaction, by its END, changes more than what our marks do."""
    return any(not form.is_ours(each["data_collection"]) for each in end["data_collections"] or ())


def no_events() -> Events:
    """No events."""
    return Events(np.empty(0, HEAD), [], {})


def decode(
    values: pl.Series, offsets: Numbers, tables: Sequence[TableLayout], form: LogForm
) -> Events:
    """The events in these records, of which tombstones, heartbeats and snapshots are none.

    Rows of other tables are counted, and not read. An invalid record raises `BadEvent`.
    """
    found = _Found({layout.table: layout for layout in tables}, form)
    for record, value in enumerate(values):
        if value is None:
            continue
        try:
            found.take(value, int(offsets[record]))
        except (KeyError, TypeError, ValueError) as error:
            raise BadEvent(
                record, f"not a record of Debezium ({error!r}); {_WRONG_TOPIC}"
            ) from None
        except SourceViolation as error:
            raise BadEvent(record, str(error)) from None
        found.records += [record] * (len(found.heads) - len(found.records))
    return found.events()


_WRONG_TOPIC = "check that the configuration names the right topic, and that it has no other writer"


class _Found:
    """The events found so far."""

    def __init__(self, tables: Mapping[tuple[str, str], TableLayout], form: LogForm) -> None:
        self._tables, self._form = tables, form
        self.heads: list[tuple[int, int, int, int, int, int, int, bool]] = []
        #: Event → its record.
        self.records: list[int] = []
        self._identity: list[tuple[Any, ...]] = []
        self._rows: dict[tuple[str, str], list[_Row]] = {table: [] for table in tables}

    def take(self, value: bytes, offset: int) -> None:
        content = orjson.loads(value)
        if "schema" in content and "payload" in content:
            content = content["payload"]
        if "status" in content:
            self._mark(content, offset)
        elif "op" in content:
            self._change(content, offset)

    def _mark(self, content: dict[str, Any], offset: int) -> None:
        """A BEGIN or an END."""
        tx, lsn = self._form.transaction(content["id"])
        ends = content["status"] == "END"
        has_rows = ends and changes_a_table(content, self._form)
        count = content["event_count"] if ends else 0
        place = END if ends else BEGIN, tx, lsn, offset
        self.heads.append((*place, 0, content["ts_ms"], count, has_rows))
        self._identity.append(())

    def _change(self, content: dict[str, Any], offset: int) -> None:
        op, source = content["op"], content["source"]
        if op == "r":
            return
        table = self._form.table(source)
        if op == "t":
            raise SourceViolation(
                f"table {'.'.join(table)} was truncated, and a TRUNCATE record does not say which"
                " rows were deleted: recreate the views over it (remove their directories)"
            )
        if content.get("transaction") is None:
            raise SourceViolation(
                "the record does not name its transaction: set provide.transaction.metadata=true in"
                " the connector's configuration, and recreate the topic"
            )
        event, place = len(self.heads), self._form.place(source)
        before, after = content.get("before"), content.get("after")
        self.heads.append((CHANGE, place.tx, place.lsn, offset, place.before, 0, 0, False))
        self._identity.append((*place.within, table, op, before, after))
        layout = self._tables.get(table)
        if layout is not None and op in _ROW_OPS:
            self._rows[table] += _signed(layout, op, before, after, event)

    def events(self) -> Events:
        rows = {
            self._tables[table].relation: self._frame(self._tables[table], found)
            for table, found in self._rows.items()
            if found
        }
        return Events(np.array(self.heads, HEAD), self._identity, rows)

    def _frame(self, layout: TableLayout, found: list[_Row]) -> pl.DataFrame:
        """Rows of one table, in columns."""
        rows, counts, events = zip(*found, strict=True)
        cells = [self._cells(layout, name, rows, events) for name in layout.relation.column_names]
        return pl.DataFrame(
            [*cells, pl.Series(COUNT, counts, pl.Int64), pl.Series(EVENT, events, pl.Int64)]
        )

    def _cells(
        self,
        layout: TableLayout,
        name: str,
        rows: Sequence[dict[str, Any]],
        events: Sequence[int],
    ) -> pl.Series:
        """The cells of one column; BadEvent names the first row that has none of its type."""
        try:
            return layout.series(name, [row[name] for row in rows])
        except (KeyError, TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
            for row, event in zip(rows, events, strict=True):
                if (fault := _fault(layout, name, row)) is not None:
                    table = ".".join(layout.table)
                    raise BadEvent(
                        self.records[event],
                        f"the row of {table} {fault}. If the table was altered, recreate the views"
                        " over it",
                    ) from None
            raise


def _signed(
    layout: TableLayout,
    op: str,
    before: dict[str, Any] | None,
    after: dict[str, Any] | None,
    event: int,
) -> list[_Row]:
    """The rows that a change removes and adds."""
    if op != "c" and before is None:
        raise SourceViolation(
            f"the record does not say which row of {'.'.join(layout.table)} it changes: ALTER TABLE"
            f" {'.'.join(layout.table)} REPLICA IDENTITY FULL, then recreate the views over it"
        )
    if op == "u" and before is not None and after is not None and UNCHANGED in after.values():
        after = {name: before[name] if v == UNCHANGED else v for name, v in after.items()}
    rows = [(before, -1, event)] if before is not None and op != "c" else []
    return [*rows, (after, 1, event)] if after is not None else rows


def _fault(layout: TableLayout, name: str, row: dict[str, Any]) -> str | None:
    """The fault of one cell."""
    if name not in row:
        return f"has no column {name!r}"
    try:
        layout.series(name, [row[name]])
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
        type_ = layout.relation.type_of(name).name
        return f"has {str(row[name])[:60]!r} in column {name!r}, which is no {type_}"
    return None
