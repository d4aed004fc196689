"""Both ways of reading records give the changes of the transaction."""

import datetime
import decimal
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import orjson
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from protocols.exchange.holdback import GlobalPart
from protocols.views.catalog import Catalog, Relation, catalog_from_json
from sources.envelope import BadRecord, Records, decode, encode_transaction, record_key
from sources.envelope.byrecord import read_by_record
from sources.envelope.columns import read_in_columns
from sources.envelope.form import RequestedRelations
from sources.envelope.ourlayout import in_our_layout
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
BATCH = RequestedRelations(CATALOG.relations)
#: No deadline on a busy machine.
LAW = settings(deadline=None)


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


@LAW
@given(st.lists(TRANSACTIONS, min_size=1, max_size=4))
def test_what_is_read_is_what_was_committed(transactions: list[Transaction]) -> None:
    records = decode(_records(transactions), CATALOG.relations)
    for version, transaction in enumerate(transactions, 1):
        net = {(change.relation, change.row): change.count for change in transaction.net().changes}
        assert _found(records, version) == net


@LAW
@given(TRANSACTIONS)
def test_a_transaction_is_numbered_through(transaction: Transaction) -> None:
    records = _records([transaction])
    heads = decode(records, CATALOG.relations).heads
    assert heads["order"].to_list() == list(range(1, len(records) + 1))
    assert set(heads["count"]) <= {len(records)}


@LAW
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
    """Replaces every field of a good record by every strange value, one at a time."""
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


# ------------------------------------------------------------------------ records as we write them


def _is_ordinary(transaction: Transaction) -> bool:
    """Whether its doubles are JSON numbers; others are written as text, which columns decline."""
    cells = [cell for change in transaction.changes for cell in change.row]
    return all(math.isfinite(cell) for cell in cells if isinstance(cell, float))


@LAW
@given(st.lists(TRANSACTIONS.filter(_is_ordinary), min_size=1, max_size=4))
def test_our_own_records_are_read_by_their_layout(transactions: list[Transaction]) -> None:
    values = _records(transactions)
    texts = pl.DataFrame({"record": range(len(values)), "json": values.cast(pl.String)})
    groups = in_our_layout(texts, BATCH)
    assert sum(group.fields.height for group in groups) == len(values)
    in_columns = read_in_columns(values, BATCH)
    assert in_columns is not None
    _same(in_columns, read_by_record(values, BATCH))


PLAIN = encode_transaction(
    "s",
    7,
    5,
    Transaction(
        (
            RowChange("keyed", (1, 0.5, decimal.Decimal(1), None, "ä", "b", True, None, None), -1),
            RowChange("keyed", (1, 1.5, None, None, "\n", "\\", None, None, None), 1),
            RowChange("bag", (None, None), 1),
            RowChange("bag", ("x", 12), -1),
        )
    ),
    CATALOG,
)
PIECES = st.sampled_from(
    [
        *(char.encode() for char in '"\\{},:01-. \n\x01'),
        *(b"", b"null", b"NaN", b"e5", b"[]", b"\xc3", b'"op":"c",', b'"op":"r"', b'"link":null,'),
        *(b',"link":null', b'"before":null,', b'"x":1,', b'"source":{},'),
        b'"global":{"id":"g","participants":["s"]},',
    ]
)


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(PLAIN), st.data())
def test_whatever_is_done_to_the_text_columns_accept_only_what_reading_by_record_does(
    plain: bytes, data: st.DataObject
) -> None:
    """Replaces stretches of a good record by other text, or by another stretch of it."""
    text = plain
    for _ in range(data.draw(st.integers(1, 2))):
        start = data.draw(st.integers(0, len(text)))
        stop = data.draw(st.integers(start, min(len(text), start + 30)))
        source = data.draw(st.integers(0, len(text)))
        piece = data.draw(PIECES | st.just(text[source : source + 20]))
        text = text[:start] + piece + text[stop:]
    _agree_or_decline(text)


def _agree_or_decline(text: bytes) -> None:
    values = pl.Series([PLAIN[-1], text], dtype=pl.Binary)
    in_columns = read_in_columns(values, BATCH)
    if in_columns is not None:
        _same(in_columns, read_by_record(values, BATCH))


TAMPERED = {
    "no member before the op": (b'"before":null,"after":{"id":null,"link":null}', b""),
    "a null that is missing": (b',"link":null', b""),
    "a null that is missing and one elsewhere": (
        b'{"id":null,"link":null}',
        b'{"id":null},"link":null',
    ),
    "a null elsewhere in an object": (
        b'{"id":null,"link":null}',
        b'{"id":null},"x":{"link":null}',
    ),
    "a column twice": (b'"link":null', b'"link":null,"link":null'),
    "a leading zero": (b'"version":7', b'"version":07'),
    "a sign": (b'"version":7', b'"version":-7'),
    "a version that is too long": (b'"version":7', b'"version":99999999999999999999'),
    "a control character": (b'"id":"s:7"', b'"id":"s:\n7"'),
    "a half escape": (b'"id":"s:7"', b'"id":"s:7\\"'),
    "a snapshot": (b'"op":"c"', b'"op":"r"'),
    "version 0": (b'"version":7', b'"version":0'),
    "an order beyond the count": (b'"total_order":2', b'"total_order":9'),
    "the order 0": (b'"total_order":2', b'"total_order":0'),
    "another op": (b'"op":"c"', b'"op":"d"'),
    "another schema": (b'"schema":"', b'"schema":"0'),
    "another table": (b'"table":"bag"', b'"table":"keyed"'),
    "a table that nobody asks for, with a bad image": (b'"table":"bag"', b'"table":"other"'),
    "text behind it": (b'"event_count":3}}', b'"event_count":3}}{}'),
    "a line end between": (b'"event_count":3}}', b'"event_count":3}}\n'),
    "two ops": (b'"before":null', b'"op":"d","before":null'),
    "a global one on top": (b'"before":null', b'"global":{"id":"g"},"before":null'),
    "a global one on top, behind": (b',"op":"c"', b',"global":"g","op":"c"'),
}


@pytest.mark.parametrize(("old", "new"), TAMPERED.values(), ids=TAMPERED.keys())
def test_a_tampered_record_is_read_alike_or_declined(old: bytes, new: bytes) -> None:
    [plain] = [each for each in PLAIN if b'"link":null' in each]
    assert old in plain
    _agree_or_decline(plain.replace(old, new))
    _agree_or_decline(plain.replace(old, new).replace(b'"ts_ms":', b'"ts_ms": '))


def test_records_of_both_layouts_and_of_a_global_transaction_keep_their_order() -> None:
    part = GlobalPart("g", frozenset("st"))
    change = RowChange("bag", ("y", None), 1)
    of_global = encode_transaction("s", 8, 5, Transaction((change,), part), CATALOG)
    foreign = [each.replace(b'"op":', b' "op" : ') for each in PLAIN]
    values = pl.Series([*foreign, *of_global, *PLAIN, *foreign], dtype=pl.Binary)
    in_columns = read_in_columns(values, BATCH)
    assert in_columns is not None
    assert in_columns.parts == {8: part}
    _same(in_columns, read_by_record(values, BATCH))


def test_a_version_is_not_of_a_global_transaction_in_one_record_only() -> None:
    part = GlobalPart("g", frozenset("st"))
    change = RowChange("bag", ("y", None), 1)
    other = encode_transaction("s", 7, 5, Transaction((change,), part), CATALOG)
    assert read_in_columns(pl.Series([*PLAIN, *other]), BATCH) is None


# ------------------------------------------------------------------------------- message keys

_NAMES = ["op", "source", "version", 'a","op":"', "before"]
TRICKY = catalog_from_json(
    {
        's","table":"': {
            "relations": {
                "source": {"columns": dict.fromkeys(_NAMES, "VARCHAR"), "key": _NAMES[:2]},
                'a","version":1': {"columns": dict.fromkeys(_NAMES, "VARCHAR"), "key": _NAMES[2:]},
            }
        }
    }
)
CELL = TEXTS | st.sampled_from([',"op":"c"', ',"source":{', '"}', ',"version":3'])


@LAW
@given(st.sampled_from(TRICKY.relations), st.tuples(*[CELL] * 5), st.sampled_from([-1, 1]), CELL)
def test_the_message_key_is_the_rows_key_as_the_whole_record_has_it(
    relation: Relation, row: tuple[str, ...], count: int, id_: str
) -> None:
    part = GlobalPart(id_, frozenset([relation.source]))
    change = RowChange(relation.name, row, count)
    [record] = encode_transaction(relation.source, 1, 5, Transaction((change,), part), TRICKY)
    content = orjson.loads(record)
    image = content["after"] or content["before"]
    key = record_key(record, TRICKY)
    assert key is not None
    assert orjson.loads(key) == {column: image[column] for column in relation.key}
