"""What a transaction changes is what a reader of its records finds, whichever way they are read."""

import datetime
import decimal
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import orjson
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from protocols.views.catalog import Catalog, catalog_from_json
from sources.envelope import BadRecord, Records, decode, encode_transaction
from sources.envelope.byrecord import read_by_record
from sources.envelope.columns import read_in_columns
from sources.envelope.form import Batch
from sources.transaction import RowChange, Transaction

COLUMNS = {
    "id": "BIGINT",
    "weight": "DOUBLE",
    "price": "DECIMAL(9,2)",
    "wide": "DECIMAL(38,10)",
    'na"me\u00e9': "VARCHAR",
    "table": "VARCHAR",
    "good": "BOOLEAN",
    "day": "DATE",
    "moment": "TIMESTAMP",
}
CATALOG = catalog_from_json(
    {
        "s": {
            "relations": {
                "keyed": {"columns": COLUMNS, "key": ["id"]},
                "bag": {"columns": {"id": "VARCHAR", "link": "BIGINT"}},
            }
        }
    }
)
BATCH = Batch(CATALOG.relations)


def _decimals(digits: int, scale: int) -> st.SearchStrategy[decimal.Decimal]:
    largest = 10**digits - 1
    return st.integers(-largest, largest).map(
        lambda n: decimal.Decimal(n).scaleb(-scale, decimal.Context(prec=40))
    )


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    ["null", '"table":"bag"', '"link":null', "}\n{", "\x00", "\U0001f600"]
)
CELLS: dict[str, st.SearchStrategy[Any]] = {
    "BIGINT": st.integers(-(2**63), 2**63 - 1) | st.integers(0, 3),
    # -0.0 and 0.0 are one dictionary key.
    "DOUBLE": st.floats().map(lambda x: math.nan if math.isnan(x) else x + 0.0),
    "DECIMAL(9,2)": _decimals(9, 2),
    "DECIMAL(38,10)": _decimals(38, 10),
    "VARCHAR": TEXTS,
    "BOOLEAN": st.booleans(),
    "DATE": st.dates(),
    "TIMESTAMP": st.datetimes(),
}


def _row(relation: str) -> st.SearchStrategy[tuple[Any, ...]]:
    [form] = [each for each in CATALOG if each.name == relation]
    cells = [
        CELLS[type_.name] if name in form.key else st.none() | CELLS[type_.name]
        for name, type_ in form.columns
    ]
    return st.tuples(*cells)


CHANGES = st.one_of(
    st.builds(RowChange, st.just("keyed"), _row("keyed"), st.sampled_from([-1, 1])),
    st.builds(RowChange, st.just("bag"), _row("bag"), st.integers(-3, 3)),
)


@st.composite
def updates(draw: st.DrawFn) -> list[RowChange]:
    """The old and the new row of one key."""
    old, new = draw(_row("keyed")), draw(_row("keyed"))
    changes = [RowChange("keyed", old, -1), RowChange("keyed", (old[0], *new[1:]), 1)]
    return draw(st.permutations(changes))


TRANSACTIONS = st.lists(CHANGES.map(lambda change: [change]) | updates(), max_size=6).map(
    lambda groups: Transaction(tuple(change for group in groups for change in group))
)


def _records(transactions: list[Transaction]) -> pl.Series:
    encoded = [
        record
        for version, transaction in enumerate(transactions, 1)
        for record in encode_transaction("s", version, 1000 + version, transaction, CATALOG)
    ]
    return pl.Series(encoded, dtype=pl.Binary)


def _found(records: Records, version: int) -> Counter[tuple[str, tuple[Any, ...]]]:
    found: Counter[tuple[str, tuple[Any, ...]]] = Counter()
    for relation, rows in records.rows.items():
        for *row, count, of, _ in rows.iter_rows():
            if of == version:
                found[relation, _one_nan(row)] += count
    return Counter({row: count for row, count in found.items() if count})


def _one_nan(row: list[Any]) -> tuple[Any, ...]:
    return tuple(math.nan if cell != cell else cell for cell in row)


def _same(one: Records, other: Records) -> None:
    assert_frame_equal(one.heads, other.heads)
    assert one.rows.keys() == other.rows.keys()
    for relation, rows in one.rows.items():
        assert_frame_equal(rows, other.rows[relation])


@given(st.lists(TRANSACTIONS, min_size=1, max_size=4))
def test_what_is_read_is_what_was_committed(transactions: list[Transaction]) -> None:
    records = decode(_records(transactions), CATALOG.relations)
    for version, transaction in enumerate(transactions, 1):
        net = {(change.relation, change.row): change.count for change in transaction.net().changes}
        assert _found(records, version) == net


@given(TRANSACTIONS)
def test_a_transaction_is_numbered_through(transaction: Transaction) -> None:
    records = _records([transaction])
    heads = decode(records, CATALOG.relations).heads
    assert heads["order"].to_list() == list(range(1, len(records) + 1))
    assert set(heads["count"]) <= {len(records)}


@given(st.lists(TRANSACTIONS, min_size=1, max_size=4))
def test_both_ways_of_reading_agree(transactions: list[Transaction]) -> None:
    values = _records(transactions)
    in_columns = read_in_columns(values, BATCH)
    if in_columns is not None:
        _same(in_columns, read_by_record(values, BATCH))


def test_plain_records_are_read_in_columns() -> None:
    """The control of the test above: columns do not decline everything."""
    day, moment = datetime.date(2024, 2, 29), datetime.datetime(1, 1, 1, 0, 0, 0, 1)
    price, wide = decimal.Decimal("-0.50"), decimal.Decimal("1E-10")
    old = (1, 0.1, price, wide, 'q"\\', "bag", True, day, moment)
    new = (1, None, None, None, None, None, None, None, None)
    changes = (
        RowChange("keyed", old, -1),
        RowChange("keyed", new, 1),
        RowChange("bag", (None, None), -2),
    )
    values = _records([Transaction(changes)])
    # The tag of the other relation occurs in the first record, as a column of its own.
    for part in (values, values[1:], values[:1]):
        in_columns = read_in_columns(part, BATCH)
        if in_columns is not None:
            _same(in_columns, read_by_record(part, BATCH))
    assert read_in_columns(values[1:], BATCH) is not None


def _mutations() -> list[Callable[[dict[str, Any]], object]]:
    def setter(*path: str) -> list[Callable[[dict[str, Any]], object]]:
        def set_to(value: object) -> Callable[[dict[str, Any]], object]:
            def change(content: dict[str, Any]) -> None:
                for name in path[:-1]:
                    content = content[name]
                content[path[-1]] = value

            return change

        def drop(content: dict[str, Any]) -> None:
            for name in path[:-1]:
                content = content[name]
            content.pop(path[-1], None)

        strange: list[object] = [
            None,
            -1,
            0,
            1,
            2**63,
            1.5,
            True,
            "x",
            "bag",
            "c",
            "d",
            "u",
            "r",
            [],
            {},
        ]
        strange += ["NaN", "1.005", "1e2", "2024-01-02", "2024-01-02 10:00:00Z", "12:00"]
        return [drop, *(set_to(value) for value in strange)]

    places: list[tuple[str, ...]] = [
        ("op",),
        ("global",),
        ("before",),
        ("after",),
        ("source",),
        ("transaction",),
    ]
    places += [("source", name) for name in ("db", "table", "version", "ts_ms", "schema")]
    places += [("transaction", n) for n in ("id", "total_order", "event_count", "global")]
    places += [("after", name) for name in COLUMNS]
    return [mutation for place in places for mutation in setter(*place)]


@pytest.mark.parametrize("snapshot", [False, True])
def test_columns_never_accept_what_reading_by_record_refuses(snapshot: bool) -> None:
    """Every field of a good record is replaced by every strange value, one at a time."""
    row = (1, 0.5, decimal.Decimal(1), None, "a", "b", True, datetime.date(2024, 1, 2), None)
    [plain] = encode_transaction("s", 1, 5, Transaction((RowChange("keyed", row, 1),)), CATALOG)
    outcomes: Counter[str] = Counter()
    for mutate in _mutations():
        content = orjson.loads(plain)
        if snapshot:
            content["op"], content["source"]["version"] = "r", 0
        mutate(content)
        values = pl.Series([plain, orjson.dumps(content)], dtype=pl.Binary)
        outcomes[_outcome(values, CATALOG)] += 1
    assert not outcomes["accepted wrongly"]
    assert outcomes["both"] > 5
    assert outcomes["refused"] > 100


def _outcome(values: pl.Series, catalog: Catalog) -> str:
    in_columns = read_in_columns(values, BATCH)
    try:
        by_record = decode(values, catalog.relations)
    except BadRecord as error:
        return "refused" if error.record == 1 and in_columns is None else "accepted wrongly"
    if in_columns is None:
        return "declined"
    _same(in_columns, by_record)
    return "both"
