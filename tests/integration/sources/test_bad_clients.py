"""One client's questions do not harm the others: bounds, places, and the connections themselves."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pytest

from bench.attacks import AttackSettings
from bench.attacks.clients import UNPROTECTED, outcomes
from protocols.algebra.delta import COUNT
from protocols.algebra.expressions import And, Column, Comparison, Literal
from protocols.algebra.frame import Frame
from protocols.algebra.types import column_type
from protocols.errors import Unreachable, WrongUse
from protocols.exchange.questions import Query
from protocols.views.catalog import catalog_from_json
from protocols.views.view import Atom, Link, OutputColumn, View
from sources.simulated.connections import Connections
from sources.simulated.database import SourceDatabase
from sources.simulated.joining import check, joined
from sources.simulated.lookup import lookup
from sources.simulated.turns import Turn, Turns
from sources.wire.bounds import MB, Bounds
from sources.wire.terms import Sum, Terms
from sources.wire.unpacking import unpacked

CATALOG = catalog_from_json(
    {"a": {"relations": {"r": {"columns": {"id": "BIGINT", "same": "BIGINT"}, "key": ["id"]}}}}
)
[R] = CATALOG.relations
BIGINT = column_type("BIGINT")
ROWS = 30_000


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SourceDatabase]:
    path = tmp_path_factory.mktemp("source") / "a.db"
    rows = pl.DataFrame({"id": range(ROWS), "same": [1] * ROWS}, {"id": pl.Int64, "same": pl.Int64})
    with SourceDatabase.create(path, "a", CATALOG, {"r": rows}) as made:
        made.use_threads_per_query(1)
        yield made


def keys(*ids: int) -> Frame:
    columns = {"id": list(ids), COUNT: [1] * len(ids)}
    return Frame(pl.DataFrame(columns, schema={"id": pl.Int64(), COUNT: pl.Int64()}))


def pairs(link: str | None) -> Sum:
    """r joined with itself, on a column or without a link."""
    atoms = tuple(Atom(n, f"a{n}", R, ("id", "same"), None) for n in range(2))
    links = (Link((0, link), (1, link)),) if link else ()
    outputs = (OutputColumn("x", "a0.id", BIGINT), OutputColumn("y", "a1.id", BIGINT))
    return Sum(View("", "", atoms, links, (), outputs), (Terms(1, {}),))


def look(turns: Turns, until: threading.Event) -> None:
    while not until.wait(0.05):
        turns.look()


def test_a_joint_question_without_links_is_refused(database: SourceDatabase) -> None:
    with pytest.raises(WrongUse, match="no link leads from a0 to a1"):
        check(pairs(None), database)
    check(pairs("id"), database)


def test_a_question_of_whom_the_client_has_gone_is_interrupted(database: SourceDatabase) -> None:
    gone = threading.Event()
    turns = Turns(1, Bounds())
    with turns.turn(lambda: True, 1) as turn:
        looking = threading.Thread(target=look, args=(turns, gone))
        looking.start()
        with pytest.raises(Unreachable, match="the client stopped waiting"):
            joined(database, pairs("same"), turn)
        gone.set()
        looking.join()
    with turns.turn(lambda: False, 1) as turn:
        assert lookup(database, Query(R, ("id",), None, (keys(3),)), turn)[0].num_rows == 1


def test_a_question_that_takes_too_long_is_ended_with_its_bound(database: SourceDatabase) -> None:
    turns = Turns(1, Bounds(seconds=0.01))
    with turns.turn(lambda: False, 1) as turn:
        time.sleep(0.02)
        turns.look()
        with pytest.raises(WrongUse, match=r"more than 0.01 s.*--seconds"):
            joined(database, pairs("same"), turn)


def test_an_answer_that_is_too_large_is_refused_before_it_is_there(
    database: SourceDatabase,
) -> None:
    with pytest.raises(WrongUse, match=r"more than 0 MB.*--largest-answer"):
        lookup(database, Query(R, ("id",)), Turn(Bounds(answer=1000)))


def test_who_waits_for_a_place_in_vain_makes_room_for_the_next_and_a_full_queue_is_busy() -> None:
    turns = Turns(1, Bounds(waiting=1))
    gone, ends = threading.Event(), []

    def wait() -> None:
        try:
            with turns.turn(gone.is_set, 1):
                ends.append("answered")
        except Unreachable as error:
            ends.append(str(error))

    with turns.turn(lambda: False, 1):
        waiting = threading.Thread(target=wait)
        waiting.start()
        while not turns._waiting:
            time.sleep(0.001)
        with pytest.raises(
            Unreachable, match="busy: 1 questions are being answered and 1 are waiting"
        ):
            turns._enter(Turn(Bounds()))
        gone.set()
        turns.look()
        waiting.join()
    assert ends == ["the client stopped waiting for the answer"]
    with turns.turn(lambda: False, 1):
        pass


def test_a_row_that_matches_many_key_sets_comes_once(database: SourceDatabase) -> None:
    for number in (1, 2, 3, 64):
        found, _ = lookup(database, Query(R, ("id",), None, (keys(7, 8),) * number))
        assert sorted(found["id"].to_pylist()) == [7, 8]


def test_thousands_of_conditions_are_one_value_to_the_database(database: SourceDatabase) -> None:
    parts = tuple(Comparison(Column("id"), "<>", Literal(n, BIGINT)) for n in range(3000))
    found, _ = lookup(database, Query(R, ("id",), And(parts)))
    assert found.num_rows == ROWS - 3000


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (pa.table({"id": pa.array([0] * 400_000)}), "more than 1048576 bytes unpacked"),
        (pa.table({"id": pa.nulls(11_000_000)}), "one key set has 11000000 keys"),
        (pa.table({"id": pa.array(["x"] * 9).dictionary_encode()}), "plain values"),
        (pa.table({"id": [[1]]}), "not a type that a column can have"),
    ],
)
def test_keys_that_would_unpack_to_much_are_refused(table: pa.Table, reason: str) -> None:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=8_000_000)
    stream = memoryview(sink.getvalue())
    assert len(stream) < 5000
    with pytest.raises(WrongUse, match=reason):
        unpacked([stream], MB)


def test_answers_that_are_not_fetched_are_counted_until_they_are_dropped() -> None:
    connections = Connections(1, Bounds(answer=MB))
    table = pa.table({"x": pa.array(range(100_000))})
    held = [connections.sent(f"ipv4:127.0.0.1:{n}", table) for n in range(2)]
    with pytest.raises(Unreachable, match="busy: 1 MB of answers have not been fetched"):
        connections.sent("ipv4:127.0.0.1:3", table)
    assert held.pop().read_all().num_rows == 100_000
    assert connections.sent("ipv4:127.0.0.1:3", table).read_all().num_rows == 100_000


def test_a_column_called_rowid_is_refused(tmp_path: Path) -> None:
    form = {"a": {"relations": {"r": {"columns": {"RowID": "BIGINT"}}}}}
    with pytest.raises(WrongUse, match=r"a\.r has a column named rowid"):
        SourceDatabase.create(tmp_path / "a.db", "a", catalog_from_json(form), {})


def test_what_is_served_spills_nothing(tmp_path: Path) -> None:
    with SourceDatabase.create(tmp_path / "a.db", "a", CATALOG, {}) as made:
        made.bound_memory(64 * MB)
        with made.snapshot() as (cursor, _), pytest.raises(duckdb.OutOfMemoryException):
            cursor.sql("SELECT i, count(*) FROM range(50000000) t(i) GROUP BY i").fetchall()


def test_control_an_unprotected_server_is_reported(tmp_path: Path) -> None:
    [bad] = outcomes(AttackSettings(tmp_path, short=True), UNPROTECTED, "that unpack to")
    assert not bad.good
