"""The database of a source: commits, refusals, and the state after a crash."""

import datetime
import decimal
import math
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import polars as pl
import pytest

from protocols.errors import SourceViolation, WrongUse
from protocols.exchange.holdback import GlobalPart
from protocols.views.catalog import Catalog, Relation, catalog_from_json
from sources.simulated.admission import TransactionRefused
from sources.simulated.database import SourceDatabase
from sources.simulated.rows import table_name
from sources.transaction import RowChange, Transaction
from tests.harness.places import ROOT

CATALOG = catalog_from_json(
    {
        "shop": {
            "relations": {
                "item": {"columns": {"id": "BIGINT", "name": "VARCHAR"}, "key": ["id"]},
                "line": {
                    "columns": {"a": "BIGINT", "b": "VARCHAR", "n": "DOUBLE"},
                    "key": ["a", "b"],
                },
                "note": {"columns": {"text": "VARCHAR", "weight": "DOUBLE"}},
                "all": {
                    "columns": {
                        "id": "BIGINT",
                        "price": "DECIMAL(10,2)",
                        "ok": "BOOLEAN",
                        "day": "DATE",
                        "at": "TIMESTAMP",
                    },
                    "key": ["id"],
                },
            }
        }
    }
)
ITEMS = pl.DataFrame({"id": [1, 2], "name": ["pen", None]})


def changes(*signed: tuple[str, tuple[Any, ...], int]) -> Transaction:
    return Transaction(tuple(RowChange(*each) for each in signed))


def rows_of(database: SourceDatabase, name: str) -> Counter[tuple[Any, ...]]:
    with database.snapshot() as (cursor, _):
        table = table_name(database.relation(name))
        return Counter(cursor.execute(f"SELECT * FROM {table}").fetchall())


def replay(database: SourceDatabase, state: Counter[tuple[Any, ...]], name: str) -> None:
    """Applies the outbox records of one relation (of plain JSON types) to the state."""
    for _, record in database.outbox(0, 10**9):
        content = orjson.loads(record)
        if content["source"]["table"] == name:
            for image, sign in ((content["before"], -1), (content["after"], 1)):
                if image is not None:
                    state[tuple(image.values())] += sign
    assert not -state, "more was deleted than was there"


@pytest.fixture
def database(tmp_path: Path) -> Iterator[SourceDatabase]:
    with SourceDatabase.create(tmp_path / "shop.db", "shop", CATALOG, {"item": ITEMS}) as made:
        yield made


def test_the_initial_load_is_version_zero_with_an_empty_outbox(database: SourceDatabase) -> None:
    assert database.version == 0
    assert database.outbox(0, 10) == []
    assert rows_of(database, "item") == Counter([(1, "pen"), (2, None)])


def test_versions_are_dense_and_each_has_its_records(database: SourceDatabase) -> None:
    assert database.commit(changes(("item", (3, "cup"), 1), ("note", ("n", 1.0), 2))) == 1
    assert database.commit(changes(("item", (3, "cup"), -1), ("item", (3, "mug"), 1))) == 2
    assert [version for version, _ in database.outbox(0, 10)] == [1, 1, 1, 2]
    modified = orjson.loads(database.outbox(1, 10)[0][1])
    assert (modified["before"]["name"], modified["after"]["name"]) == ("cup", "mug")


def test_a_transaction_without_net_effect_commits_nothing(database: SourceDatabase) -> None:
    nothing = changes(("item", (3, "cup"), 1), ("item", (3, "cup"), -1))
    assert database.commit(nothing) == 0
    assert database.commit(Transaction(())) == 0
    assert database.outbox(0, 10) == []


def test_values_come_back_as_they_went_in(database: SourceDatabase) -> None:
    moment = datetime.datetime(2024, 2, 29, 23, 59, 59, 999999)
    row = (1, decimal.Decimal("-12.50"), False, datetime.date(1, 1, 1), moment)
    database.commit(changes(("all", row, 1), ("all", (2, None, None, None, None), 1)))
    assert rows_of(database, "all") == Counter([row, (2, None, None, None, None)])
    database.commit(changes(("all", row, -1), ("all", (2, None, None, None, None), -1)))
    assert not rows_of(database, "all")


def test_equal_rows_of_a_bag_are_counted(database: SourceDatabase) -> None:
    database.commit(changes(("note", ("x", None), 3)))
    database.commit(changes(("note", ("x", None), -2)))
    assert rows_of(database, "note") == Counter([("x", None)])


def test_not_a_number_and_null_are_values_that_can_be_deleted(database: SourceDatabase) -> None:
    database.commit(changes(("note", (None, math.nan), 2), ("line", (1, "x", float("nan")), 1)))
    database.commit(changes(("note", (None, float("nan")), -2), ("line", (1, "x", math.nan), -1)))
    assert not rows_of(database, "note")
    assert not rows_of(database, "line")


@pytest.mark.parametrize(
    ("refused", "reason"),
    [
        (changes(("thing", (1,), 1)), "no relation 'thing'; its relations are: item, line"),
        (changes(("item", (1,), 1)), "row (1) has 1 values, but the relation has 2 columns"),
        (changes(("item", ("1", "x"), 1)), "column id, row ('1', 'x'): '1' is not a BIGINT"),
        (changes(("item", (2**63, "x"), 1)), "is not a BIGINT"),
        (changes(("item", (7, "\ud800"), 1)), "column name"),
        (changes(("all", (1, decimal.Decimal("1.005"), None, None, None), 1)), "DECIMAL(10,2)"),
        (changes(("item", (None, "x"), 1)), "key column id is NULL"),
        (changes(("line", (1, None, 1.0), 1)), "key column b is NULL"),
        (changes(("item", (1, "pen"), 1)), "a row with this key (id) exists"),
        (changes(("item", (1, "other"), 1)), "a row with this key (id) exists"),
        (changes(("item", (7, "x"), 2)), "a row with this key (id) exists"),
        (changes(("item", (7, "x"), 1), ("item", (7, "y"), 1)), "a row with this key (id)"),
        (
            changes(("item", (1, "PEN"), -1)),
            "cannot delete row (1, 'PEN') 1 time(s), it exists 0",
        ),
        (changes(("item", (2, None), -2)), "it exists 1 time(s)"),
        (changes(("note", ("n", 1.0), -1)), "cannot delete row ('n', 1.0)"),
        (changes(("note", ("n", 1.0), 10**12)), "within ±1000000"),
        (changes(("note", ("n", 1.0), True)), "whole number"),
    ],
)
def test_a_transaction_that_breaks_a_rule_is_refused_whole(
    database: SourceDatabase, refused: Transaction, reason: str
) -> None:
    good = RowChange("note", ("good", 1.0), 1)
    before = rows_of(database, "item"), rows_of(database, "note")
    with pytest.raises(TransactionRefused) as caught:
        database.commit(Transaction((good, *refused.changes)))
    assert reason in str(caught.value)
    assert (rows_of(database, "item"), rows_of(database, "note")) == before
    assert (database.version, database.outbox(0, 10)) == (0, [])


def test_keys_may_be_exchanged_inside_one_transaction(database: SourceDatabase) -> None:
    swap = [(1, "pen", -1), (2, None, -1), (1, None, 1), (2, "pen", 1)]
    database.commit(changes(*(("item", (key, name), count) for key, name, count in swap)))
    assert rows_of(database, "item") == Counter([(1, None), (2, "pen")])


def test_a_group_is_judged_in_order_and_numbered_one_by_one(database: SourceDatabase) -> None:
    group = [
        changes(("item", (5, "a"), 1)),
        Transaction(()),
        changes(("item", (5, "a"), -1), ("item", (5, "b"), 1)),
        changes(("item", (5, "b"), -1)),
        changes(("note", ("n", 0.0), 2)),
        changes(("note", ("n", 0.0), -1)),
    ]
    assert database.commit_many(group) == 5
    assert [version for version, _ in database.outbox(0, 10)] == [1, 2, 3, 4, 4, 5]
    assert rows_of(database, "item") == Counter([(1, "pen"), (2, None)])
    assert rows_of(database, "note") == Counter([("n", 0.0)])


def test_a_group_that_would_only_be_right_at_its_end_is_refused(database: SourceDatabase) -> None:
    group = [
        changes(("item", (8, "x"), 1)),
        changes(("item", (8, "y"), 1)),
        changes(("item", (8, "x"), -1)),
    ]
    with pytest.raises(TransactionRefused) as caught:
        database.commit_many(group)
    assert caught.value.index == 1
    assert database.version == 0


def test_a_large_group_of_small_transactions_leaves_what_it_says(database: SourceDatabase) -> None:
    group = [changes(("item", (100 + n, f"i{n}"), 1)) for n in range(5000)]
    group += [
        changes(("item", (100 + n, f"i{n}"), -1), ("item", (100 + n, "new"), 1))
        for n in range(0, 5000, 2)
    ]
    assert database.commit_many(group) == 7500
    state = Counter([(1, "pen"), (2, None)])
    replay(database, state, "item")
    assert rows_of(database, "item") == state


def test_the_outbox_is_read_in_pieces_also_inside_a_transaction(database: SourceDatabase) -> None:
    for n in range(4):
        database.commit(changes(*(("note", (f"{n}{m}", 1.0), 1) for m in range(3))))
    assert [version for version, _ in database.outbox(0, 4)] == [1, 1, 1, 2]
    assert database.outbox(0, 2) + database.outbox(0, 5, skip=2) == database.outbox(0, 7)
    assert database.outbox(1, 9, skip=3) == database.outbox(2, 9)
    assert len(database.outbox(2, 100)) == 6
    assert database.outbox(4, 100) == []


def test_the_published_version_is_remembered_and_never_goes_back(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with SourceDatabase.create(path, "shop", CATALOG, {}) as database:
        database.commit_many([changes(("note", (f"{n}", 1.0), 1)) for n in range(3)], driven=True)
        database.mark_published(2)
        database.mark_published(1)
        with pytest.raises(SourceViolation, match="version 4 cannot be published"):
            database.mark_published(4)
    with SourceDatabase.open(path) as database:
        assert (database.version, database.published, database.driven) == (3, 2, 3)
        assert database.catalog == CATALOG


def test_who_waits_for_a_version_is_woken_by_its_commit(database: SourceDatabase) -> None:
    assert not database.wait_beyond(0, 0.01)
    commit = threading.Timer(0.05, database.commit, [changes(("note", ("n", 1.0), 1))])
    commit.start()
    assert database.wait_beyond(0, 60)
    commit.join()
    assert database.wait_beyond(0, 0)


def test_commits_of_many_threads_get_one_order(database: SourceDatabase) -> None:
    def work(worker: int) -> None:
        for n in range(20):
            database.commit(changes(("item", (1000 * worker + n, "w"), 1)))

    workers = [threading.Thread(target=work, args=(n,)) for n in range(1, 5)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert database.version == 80
    assert [version for version, _ in database.outbox(0, 100)] == list(range(1, 81))
    assert sum(rows_of(database, "item").values()) == 82


# --------------------------------------------------------------------------- files and crashes


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (pl.DataFrame({"id": [1, 1], "name": ["a", "b"]}), "2 initial rows have the same key"),
        (pl.DataFrame({"id": [1, None], "name": ["a", "b"]}), "key column id is NULL"),
        (pl.DataFrame({"id": ["1"], "name": ["a"]}), "but the declared columns are"),
        (pl.DataFrame({"id": [1]}), "but the declared columns are"),
    ],
)
def test_a_refused_initial_load_leaves_no_file(
    tmp_path: Path, rows: pl.DataFrame, reason: str
) -> None:
    with pytest.raises(WrongUse, match=reason):
        SourceDatabase.create(tmp_path / "shop.db", "shop", CATALOG, {"item": rows})
    assert list(tmp_path.iterdir()) == []


def test_nothing_that_exists_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    path.write_text("mine")
    with pytest.raises(WrongUse, match="already exists"):
        SourceDatabase.create(path, "shop", CATALOG, {})
    assert path.read_text() == "mine"


def test_a_file_with_the_name_of_a_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "Source.db"
    with pytest.raises(WrongUse, match=r"Source\.db: the file of a source cannot be called source"):
        SourceDatabase.create(path, "shop", CATALOG, {})
    SourceDatabase.create(tmp_path / "shop.db", "shop", CATALOG, {}).close()
    (tmp_path / "shop.db").rename(path)
    with pytest.raises(WrongUse, match="give it another name"):
        SourceDatabase.open(path)


def test_a_catalog_of_another_source_is_refused(tmp_path: Path) -> None:
    foreign = Catalog((Relation("other", "r", CATALOG.relations[0].columns),))
    with pytest.raises(WrongUse, match=r"cannot hold other\.r"):
        SourceDatabase.create(tmp_path / "shop.db", "shop", foreign, {})


def test_a_missing_a_foreign_and_a_locked_file_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match="there is no source database"):
        SourceDatabase.open(tmp_path / "missing.db")
    (tmp_path / "text.db").write_text("no database, but long enough to be looked at" * 1000)
    with pytest.raises(WrongUse, match=r"text\.db cannot be opened as a source database"):
        SourceDatabase.open(tmp_path / "text.db")
    make = "import duckdb, sys; duckdb.connect(sys.argv[1]).execute('CREATE TABLE t (x INT)')"
    subprocess.run([sys.executable, "-c", make, str(tmp_path / "duck.db")], check=True)
    with pytest.raises(WrongUse, match="not a source"):
        SourceDatabase.open(tmp_path / "duck.db")


def test_a_file_in_use_is_named_as_such(database: SourceDatabase) -> None:
    opening = (
        "import sys; from pathlib import Path\n"
        "from sources.simulated.database import SourceDatabase\n"
        "try: SourceDatabase.open(Path(sys.argv[1]))\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    run = subprocess.run(
        [sys.executable, "-c", opening, str(database.path)],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert run.stdout.startswith("WrongUse")
    assert "in use by another process" in run.stdout


COMMITTING = """
import itertools, sys
from pathlib import Path
from sources.simulated.database import SourceDatabase
from sources.transaction import RowChange, Transaction

database = SourceDatabase.open(Path(sys.argv[1]))
for n in itertools.count(database.version):
    key = n % 50
    old = [(key, f"v{n - 50}")] if n >= 50 else []
    changes = [RowChange("item", row, -1) for row in old]
    changes += [RowChange("item", (key, f"v{n}"), 1)]
    changes += [RowChange("note", (f"n{n}-{m}", 1.0), 1) for m in range(20)]
    print(database.commit(Transaction(tuple(changes))), flush=True)
"""


def test_after_kill_9_the_rows_are_the_initial_ones_plus_the_outbox(tmp_path: Path) -> None:
    """… and no acknowledged commit is missing."""
    path = tmp_path / "shop.db"
    SourceDatabase.create(path, "shop", CATALOG, {}).close()
    for lives in (1, 20, 3, 60, 11, 35):
        committing = subprocess.Popen(
            [sys.executable, "-c", COMMITTING, str(path)],
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )
        assert committing.stdout is not None
        with committing.stdout:
            told = [int(committing.stdout.readline()) for _ in range(lives)]
            os.kill(committing.pid, signal.SIGKILL)
            told += [int(line) for line in committing.stdout if line.endswith(b"\n")]
        committing.wait()
        with SourceDatabase.open(path) as database:
            assert told[-1] <= database.version <= told[-1] + 1
            outbox = database.outbox(0, 10**9)
            assert sorted({version for version, _ in outbox}) == list(
                range(1, database.version + 1)
            )
            for name in ("item", "note"):
                state: Counter[tuple[Any, ...]] = Counter()
                replay(database, state, name)
                assert rows_of(database, name) == +state


# ------------------------------------------------------------------------ global transactions


def part(*participants: str) -> GlobalPart:
    return GlobalPart("g7", frozenset(participants))


def test_every_record_of_a_part_names_the_whole(database: SourceDatabase) -> None:
    inserted = changes(("item", (7, "ink"), 1), ("note", ("n", 1.0), 1))
    version = database.commit(Transaction(inserted.changes, part("shop", "bank")))
    records = [orjson.loads(record) for v, record in database.outbox(0, 100) if v == version]
    assert len(records) == 2
    for record in records:
        expected = {"id": "g7", "participants": ["bank", "shop"]}
        assert record["transaction"]["global"] == expected


def test_a_part_that_nobody_would_hear_of_is_refused(database: SourceDatabase) -> None:
    nothing = (RowChange("item", (7, "ink"), 1), RowChange("item", (7, "ink"), -1))
    for transaction, reason in [
        (Transaction(nothing, part("shop", "bank")), "changes nothing at source shop"),
        (Transaction(nothing[:1], part("bank", "ledger")), "participants bank, ledger; this is"),
    ]:
        with pytest.raises(TransactionRefused, match=reason) as caught:
            database.commit_many([changes(("item", (8, "cap"), 1)), transaction])
        assert caught.value.index == 1
        assert database.version == 0
