"""Values of all types come as they were committed, in changes and in answers."""

from collections.abc import Iterator

import polars as pl

from protocols.algebra.delta import COUNT
from protocols.algebra.frame import Frame
from protocols.exchange.questions import Query
from sources.transaction import RowChange, Transaction
from tests.conformance.adapter import Database
from tests.conformance.committed import Rows, counted
from tests.conformance.reading import Reading, beginning, log_of
from tests.conformance.stage import Stage
from tests.conformance.story import TYPED_ROWS, TYPES, Row

_TYPED = TYPES.catalog.relations[0]


def survive(stage: Stage) -> Iterator[str]:
    """Each extreme and NULL, inserted, modified into another and deleted."""
    with stage.adapter.made(TYPES) as database:
        for row in TYPED_ROWS:
            database.commit(_change((row, 1)))
        yield from _other_answers(database, TYPED_ROWS)
        first, second, *_, last = TYPED_ROWS
        modified = (last[0], *first[1:])
        database.commit(_change((last, -1), (modified, 1), (second, -1)))
        yield from _other_answers(database, (first, *TYPED_ROWS[2:-1], modified))
        database.settle()
        log = log_of(database)
        kept = Reading(database.source, TYPES.catalog, beginning(log)).take_all(log).kept
        yield from kept.differences(database.committed, len(database.committed))


def _change(*rows: tuple[Row, int]) -> Transaction:
    return Transaction(tuple(RowChange(_TYPED.name, row, count) for row, count in rows))


def _other_answers(database: Database, held: tuple[Row, ...]) -> Iterator[str]:
    """Answers that are not the rows asked for: all rows, or those with a value in a column."""
    names = _TYPED.column_names
    found = database.source.ask(Query(_TYPED, names)).rows
    yield from _difference("all rows", found, counted((*row, 1) for row in held))
    for place, (name, type_) in enumerate(_TYPED.columns):
        values = pl.Series(name, [row[place] for row in held], type_.dtype).drop_nulls().unique()
        keys = Frame(pl.DataFrame([values]).with_columns(pl.lit(1, pl.Int64).alias(COUNT)))
        found = database.source.ask(Query(_TYPED, names, None, (keys,))).rows
        some = counted((*row, 1) for row in held if row[place] is not None)
        yield from _difference(f"rows by {type_.name}", found, some)


def _difference(what: str, found: Frame, expected: Rows) -> Iterator[str]:
    rows = counted(found.data.select(*_TYPED.column_names, COUNT).iter_rows())
    if rows != expected:
        yield f"{what}: {dict(rows - expected)} came instead of {dict(expected - rows)}"
