"""Values of all types come as they were committed, in changes and in answers."""

from collections.abc import Iterator, Sequence

import polars as pl

from protocols.algebra.delta import COUNT
from protocols.algebra.frame import Frame
from protocols.exchange.questions import Query
from protocols.views.catalog import Relation
from sources.transaction import RowChange, Transaction
from tests.conformance.adapter import Database
from tests.conformance.committed import Rows, counted
from tests.conformance.reading import Reading, beginning, log_of
from tests.conformance.stage import Stage
from tests.conformance.story import Row


def survive(stage: Stage) -> Iterator[str]:
    """Each extreme and NULL, inserted, modified into another and deleted."""
    story, rows = stage.adapter.types.story, stage.adapter.types.rows
    with stage.adapter.made(story) as database:
        [relation] = story.catalog.relations
        for row in rows:
            database.commit(_change((row, 1)))
        yield from _other_answers(database, relation, rows)
        first, second, *_, last = rows
        modified = (last[0], *first[1:])
        database.commit(_change((last, -1), (modified, 1), (second, -1)))
        yield from _other_answers(database, relation, (first, *rows[2:-1], modified))
        database.settle()
        log = log_of(database)
        kept = Reading(database.source, story.catalog, beginning(log)).take_all(log).kept
        yield from kept.differences(database.committed, len(database.committed))


def _change(*rows: tuple[Row, int]) -> Transaction:
    return Transaction(tuple(RowChange("typed", row, count) for row, count in rows))


def _other_answers(database: Database, relation: Relation, held: tuple[Row, ...]) -> Iterator[str]:
    """Answers that are not the rows asked for: all rows, or those with a value in a column."""
    names = relation.column_names
    found = database.source.ask(Query(relation, names)).rows
    yield from _difference("all rows", names, found, counted((*row, 1) for row in held))
    for place, (name, type_) in enumerate(relation.columns):
        values = pl.Series(name, [row[place] for row in held], type_.dtype).drop_nulls().unique()
        keys = Frame(pl.DataFrame([values]).with_columns(pl.lit(1, pl.Int64).alias(COUNT)))
        found = database.source.ask(Query(relation, names, None, (keys,))).rows
        some = counted((*row, 1) for row in held if row[place] is not None)
        yield from _difference(f"rows by {type_.name}", names, found, some)


def _difference(what: str, names: Sequence[str], found: Frame, expected: Rows) -> Iterator[str]:
    rows = counted(found.data.select(*names, COUNT).iter_rows())
    if rows != expected:
        yield f"{what}: {dict(rows - expected)} came instead of {dict(expected - rows)}"
