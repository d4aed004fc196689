"""Each fault of a record has its own message, with its place."""

import math
from collections.abc import Sequence
from typing import Any

import orjson
import polars as pl
import pytest

from protocols.exchange.holdback import GlobalPart
from protocols.views.catalog import Catalog, Relation, catalog_from_json
from sources.envelope import (
    BadRecord,
    Records,
    decode,
    encode_transaction,
    record_key,
    schema_digest,
)
from sources.envelope.columns import read_in_columns
from sources.envelope.form import RequestedRelations
from sources.transaction import RowChange, Transaction


def _catalog(**orders: str) -> Catalog:
    columns = orders or {"id": "BIGINT", "customer": "BIGINT", "amount": "DECIMAL(9,2)"}
    relations = {
        "orders": {"columns": columns, "key": ["id"]},
        "clicks": {"columns": {"page": "VARCHAR"}},
    }
    return catalog_from_json({"sales": {"relations": relations}})


CATALOG = _catalog()
ORDERS, CLICKS = CATALOG.relations


def _encoded(*changes: tuple[str, tuple[Any, ...], int], version: int = 1) -> list[bytes]:
    transaction = Transaction(tuple(RowChange(*change) for change in changes))
    return encode_transaction("sales", version, 1700, transaction, CATALOG)


def _decode(values: Sequence[bytes | None], *relations: Relation) -> Records:
    return decode(pl.Series(values, dtype=pl.Binary), relations or CATALOG.relations)


def _order(**changed: Any) -> dict[str, Any]:
    """A good record as an object, with changes."""
    [record] = _encoded(("orders", (1, None, None), 1))
    return {**orjson.loads(record), **changed}


def _source(**changed: Any) -> dict[str, Any]:
    return _order(source={**_order()["source"], **changed})


def _transaction(**changed: Any) -> dict[str, Any]:
    return _order(transaction={**_order()["transaction"], **changed})


def _global(form: Any) -> dict[str, Any]:
    return _transaction(**{"global": form})


def _row(**changed: Any) -> dict[str, Any]:
    return _order(after={**_order()["after"], **changed})


def _full(end: bytes) -> bytes:
    """A record without NULLs and with another end: columns would not check it again."""
    return orjson.dumps(_row(customer=2, amount="1.00"))[:-1] + end


def _nested(content: dict[str, Any]) -> bytes:
    """Replaces @ by nested arrays, deeper than orjson can write them."""
    return orjson.dumps(content).replace(b'"@"', b"[" * 900 + b"]" * 900)


def test_an_insertion_is_written_as_the_design_says() -> None:
    [record] = _encoded(("orders", (1, None, None), 1), version=7)
    assert orjson.loads(record) == {
        "before": None,
        "after": {"id": 1, "customer": None, "amount": None},
        "op": "c",
        "ts_ms": 1700,
        "source": {
            "db": "sales",
            "table": "orders",
            "version": 7,
            "ts_ms": 1700,
            "schema": schema_digest(ORDERS),
        },
        "transaction": {"id": "sales:7", "total_order": 1, "event_count": 1},
    }


def test_old_and_new_row_of_one_key_are_one_record() -> None:
    records = _encoded(("orders", (1, 2, None), 1), ("orders", (1, 3, None), -1))
    rows = _decode(list(records)).rows["orders"]
    assert len(records) == 1
    assert rows["_count"].to_list() == [-1, 1]
    assert rows["customer"].to_list() == [3, 2]
    assert rows["_record"].to_list() == [0, 0]


def test_a_changed_key_is_a_deletion_and_an_insertion() -> None:
    records = _encoded(("orders", (1, 2, None), -1), ("orders", (2, 2, None), 1))
    assert [orjson.loads(record)["op"] for record in records] == ["d", "c"]


def test_in_a_bag_each_unit_is_a_record() -> None:
    records = _encoded(("clicks", ("/",), 3), ("clicks", ("/x",), -1))
    assert [orjson.loads(record)["op"] for record in records] == ["c", "c", "c", "d"]
    heads = _decode(list(records)).heads
    assert heads["order"].to_list() == [1, 2, 3, 4]
    assert heads["count"].to_list() == [4, 4, 4, 4]


def test_a_transaction_that_cancels_out_has_no_records() -> None:
    assert _encoded(("clicks", ("/",), 1), ("clicks", ("/",), -1)) == []


def test_the_message_key_is_the_key_of_the_row() -> None:
    [created] = _encoded(("orders", (1, 2, None), 1))
    [deleted] = _encoded(("orders", (1, 2, None), -1))
    [click] = _encoded(("clicks", ("/",), 1))
    assert [record_key(each, CATALOG) for each in (created, deleted)] == [b'{"id":1}'] * 2
    assert record_key(click, CATALOG) is None


def test_tombstones_are_skipped() -> None:
    [record] = _encoded(("clicks", ("/",), 1))
    records = _decode([None, record, None])
    assert records.heads["record"].to_list() == [1]
    assert records.rows["clicks"]["_record"].to_list() == [1]


def test_nothing_is_decoded_to_typed_empty_frames() -> None:
    records = _decode([None])
    assert records.heads.is_empty()
    assert records.rows["orders"].schema["amount"] == pl.Decimal(9, 2)


@pytest.mark.parametrize("copies", [1, 2000])
def test_relations_not_asked_for_still_have_their_heads(copies: int) -> None:
    values: list[bytes | None] = [*_encoded(("orders", (1, 2, None), 1), ("clicks", ("/",), 1))]
    records = _decode(values * copies, CLICKS)
    assert records.heads["table"].to_list() == ["orders", "clicks"] * copies
    assert list(records.rows) == ["clicks"]


@pytest.mark.parametrize("copies", [1, 2000])
def test_snapshot_records_have_heads_but_no_rows(copies: int) -> None:
    snapshot = orjson.dumps({**_source(version=0), "op": "r"})
    records = _decode([snapshot] * copies)
    assert records.heads["version"].to_list() == [0] * copies
    assert records.rows["orders"].is_empty()


@pytest.mark.parametrize("copies", [1, 2000])
def test_a_foreign_producer_may_leave_the_digest_out(copies: int) -> None:
    record = _source()
    del record["source"]["schema"]
    assert _decode([orjson.dumps(record)] * copies).rows["orders"].height == copies


@pytest.mark.parametrize("others", [0, 2000])
def test_parts_of_global_transactions_are_told_by_version(others: int) -> None:
    """Both readers; one transaction in two relations, and one of a relation not requested."""
    part = GlobalPart("transfer ü", frozenset(["sales", "stock", "a b"]))
    changes = (RowChange("orders", (1, None, None), 1), RowChange("clicks", ("p",), 1))
    values = encode_transaction("sales", 1, 5, Transaction(changes, part), CATALOG)
    for version in range(2, 2 + others):
        values += _encoded(("clicks", ("q",), 1), version=version)
    last = Transaction((RowChange("clicks", ("p",), -1),), GlobalPart("h", frozenset(["sales"])))
    values += encode_transaction("sales", 2 + others, 5, last, CATALOG)
    for relations in (CATALOG.relations, (ORDERS,)):
        assert _decode(values, *relations).parts == {1: part, 2 + others: last.part}
    in_columns = read_in_columns(pl.Series(values), RequestedRelations([CLICKS]))
    assert in_columns is not None
    assert in_columns.parts == {1: part, 2 + others: last.part}


def test_columns_of_one_name_may_differ_in_type_between_relations() -> None:
    catalog = catalog_from_json(
        {
            "s": {
                "relations": {
                    "r": {"columns": {"x": "BIGINT"}},
                    "t": {"columns": {"x": "VARCHAR"}},
                }
            }
        }
    )
    transaction = Transaction((RowChange("r", (1,), 1500), RowChange("t", ("a",), 1500)))
    values = pl.Series(encode_transaction("s", 1, 0, transaction, catalog), dtype=pl.Binary)
    rows = decode(values, catalog.relations).rows
    assert (rows["r"]["x"].sum(), rows["t"]["x"].unique().to_list()) == (1500, ["a"])


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (b"{", "not JSON"),
        (b"", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[1]", "JSON, but not an object"),
        (_order(op="x"), 'unknown op "x"'),
        (_order(op=None), '"op" is null and should be a string'),
        (_order(source=3), '"source" is 3 and should be an object'),
        (_order(transaction=None), '"transaction" is null and should be an object'),
        (_source(db="stock"), 'comes from source "stock"'),
        (_source(table=1), '"source.table" is 1 and should be a string'),
        (_source(version="1"), '"source.version" is "1" and should be a whole number'),
        (_source(version=True), '"source.version" is true and should be a whole number'),
        (_source(version=0), "version 0 is the initial load"),
        (_order(op="r"), "version 0 is the initial load"),
        (_source(ts_ms=-1), '"source.ts_ms" is -1 and should be a whole number'),
        (_source(ts_ms=10**18), '"source.ts_ms" is 1000000000000000000 and should be a whole'),
        (_source(ts_ms=253402300800000), "whole number up to 253402300799999"),
        (_source(schema="00000000"), "its schema of sales.orders is"),
        (_transaction(total_order=2), "number 2 of 1 of its transaction"),
        (_transaction(event_count=None), '"transaction.event_count" is null'),
        (_order(**{"global": "g"}), '"global" belongs in "transaction"'),
        (_order(**{"global": {"id": "g"}}), '"global" belongs in "transaction"'),
        (_global("g"), '"transaction.global" is "g" and should be an object'),
        (_global({}), '"transaction.global.id" is missing'),
        (_global({"id": 1, "participants": ["sales"]}), '"transaction.global.id" is 1'),
        (_global({"id": "g"}), '"transaction.global.participants" should name sources'),
        (_global({"id": "g", "participants": ["a", "b"]}), "sources, sales among them"),
        (_global({"id": "g", "participants": ["sales", None]}), "sources, sales among them"),
        (_global({"id": "g", "participants": "sales"}), "sources, sales among them"),
        (_global({"id": "g", "participants": ["sales"]}), "global transaction differs from"),
        (_order(op="u"), 'op "u" of sales.orders needs "before" as an object'),
        (_order(op="d"), 'op "d" of sales.orders needs "before" as an object'),
        (_order(after=None), 'op "c" of sales.orders needs "after" as an object'),
        (_order(before={"id": 1}), 'op "c" of sales.orders needs "before" as null'),
        (_order(after={"id": 1}), '"after" lacks column "customer" of sales.orders'),
        (_row(id="1"), "column \"id\": '1' is not a BIGINT"),
        (_row(id=None), '"after" of sales.orders has NULL in key column "id"'),
        (_row(amount="1.005"), "column \"amount\": '1.005' is not a DECIMAL(9,2)"),
        (_row(amount=1.5), 'column "amount": 1.5 is not a DECIMAL(9,2)'),
        (_row(amount="1e-77"), "column \"amount\": '1e-77' is not a DECIMAL(9,2)"),
        (_full(b',"more":' + b"[" * 1100 + b"]" * 1100 + b"}"), "not JSON"),
        (_full(b',"more":' + b"[" * 100_000 + b"]" * 100_000 + b"}"), "not JSON"),
        (_full(b',"more":NaN}'), "not JSON"),
        (_full(b',"more":-Infinity}'), "not JSON"),
        (_full(b',"more":1e400}'), "not JSON"),
        (_full(b',"more":' + b"1" * 400 + b"}"), "not JSON"),
        (_nested(_order(op="@")), '"op" is an array and should be a string'),
        (_nested(_source(version="@")), '"source.version" is an array and should be a whole'),
        (_nested(_row(amount="@")), "is not a DECIMAL(9,2)"),
    ],
)
@pytest.mark.parametrize("before_it", [3, 2000])
def test_a_bad_record_is_named_with_its_place(
    bad: bytes | dict[str, Any], message: str, before_it: int
) -> None:
    good = orjson.dumps(_order())
    spoilt = bad if isinstance(bad, bytes) else orjson.dumps(bad)
    # With an invalid record after it, and alone, where columns could accept it.
    for behind in ([good, b"worse"], [good]):
        with pytest.raises(BadRecord) as caught:
            _decode([good] * before_it + [spoilt, *behind])
        assert caught.value.record == before_it
        assert message in caught.value.reason
        assert "source sales" in str(caught.value)


@pytest.mark.parametrize("before_it", [3, 2000])
@pytest.mark.parametrize(
    ("type_", "text"),
    [
        ("DATE", "0000-01-01"),
        ("DATE", "2024-W01-1"),
        ("TIMESTAMP", "0000-01-01 00:00:00"),
        ("TIMESTAMP", "2024-01-02 00:00:00.1234567"),
        ("DECIMAL(38,10)", "1000000011990990009900199000090000119"),
    ],
)
def test_a_text_that_is_no_value_is_refused_among_few_and_many(
    type_: str, text: str, before_it: int
) -> None:
    [relation] = catalog_from_json({"s": {"relations": {"r": {"columns": {"x": type_}}}}})
    record = _order(before=None, after={"x": None})
    record["source"] = {"db": "s", "table": "r", "version": 1, "ts_ms": 5}
    good, bad = orjson.dumps(record), orjson.dumps({**record, "after": {"x": text}})
    with pytest.raises(BadRecord, match=f"column \"x\": '{text}' is no") as caught:
        _decode([good] * before_it + [bad], relation)
    assert caught.value.record == before_it


def test_a_whole_zero_with_a_sign_is_read_alike_by_both() -> None:
    [relation] = catalog_from_json({"s": {"relations": {"r": {"columns": {"x": "DOUBLE"}}}}})
    [record] = encode_transaction(
        "s", 1, 5, Transaction((RowChange("r", (-0.0,), 1),)), Catalog((relation,))
    )
    for text, sign in ((b"-0", 1.0), (b"-0.0", -1.0)):
        values = [record.replace(b"-0.0", text)]
        for copies in (1, 600):
            cell = _decode(values * copies, relation).rows["r"]["x"][0]
            assert math.copysign(1, cell) == sign


def test_hostile_words_are_shown_by_their_beginning() -> None:
    for bad in (_order(op="\x1b" * 9999), _source(db="x\n" * 9999), _row(amount="9" * 9999)):
        with pytest.raises(BadRecord) as caught:
            _decode([orjson.dumps(bad)])
        assert len(caught.value.reason) < 400
        assert caught.value.reason.isprintable()


def test_images_of_relations_not_asked_for_have_to_be_json_and_hide_nothing() -> None:
    [record] = _encoded(("orders", (1, 2, None), 1))
    for old, new in ((b'"after":{', b'"after":{1'), (b'"after":', b'"global":{},"after":')):
        with pytest.raises(BadRecord) as caught:
            _decode([record] * 600 + [record.replace(old, new)], CLICKS)
        assert caught.value.record == 600


def test_two_values_in_one_record_cannot_hide_behind_an_empty_one() -> None:
    good = orjson.dumps(_order())
    with pytest.raises(BadRecord) as caught:
        _decode([good] * 2000 + [good + good, b"{}"])
    assert caught.value.record == 2000


@pytest.mark.parametrize(
    "columns",
    [
        {"id": "BIGINT", "customer": "BIGINT"},
        {"id": "BIGINT", "customer": "BIGINT", "amount": "DECIMAL(9,3)"},
        {"id": "BIGINT", "amount": "DECIMAL(9,2)", "customer": "BIGINT"},
        {"id": "BIGINT", "client": "BIGINT", "amount": "DECIMAL(9,2)"},
    ],
)
def test_any_change_of_the_columns_changes_the_digest(columns: dict[str, str]) -> None:
    changed = _catalog(**columns).find("sales", "orders")
    assert changed is not None
    assert schema_digest(changed) != schema_digest(ORDERS)


def test_records_of_two_sources_are_not_decoded_at_once() -> None:
    with pytest.raises(ValueError, match="records of several sources"):
        _decode([], ORDERS, Relation("stock", "products", ORDERS.columns))
