"""Transactions in JSON form: how they are read, and the messages for malformed ones."""

import datetime
import decimal
import math
from typing import Any

import orjson
import pytest

from protocols.errors import WrongUse
from protocols.exchange.holdback import GlobalPart
from protocols.views.catalog import relation_from_json
from sources.transaction import RowChange, Transaction
from sources.wire.transactions import (
    decode_transactions,
    encode_transactions,
    transaction_from_json,
)

RELATIONS = {
    "line": relation_from_json("a", "line", {"columns": {"x": "BIGINT", "y": "DOUBLE"}}),
    "item": relation_from_json(
        "a", "item", {"columns": {"p": "DECIMAL(9,2)", "d": "DATE", "m": "TIMESTAMP"}}
    ),
}


def test_a_transaction_is_the_same_after_its_json_form() -> None:
    moment = datetime.datetime(2024, 2, 29, 1, 2, 3, 4)
    row = (decimal.Decimal("1.50"), datetime.date(2024, 2, 29), moment)
    transaction = Transaction(
        (
            RowChange("line", (2**63 - 1, math.nan), 2),
            RowChange("line", (None, -math.inf), -1),
            RowChange("item", row, 1),
        )
    )
    part = Transaction(transaction.changes, GlobalPart("g", frozenset(["a", "b"])))
    body = encode_transactions([transaction, Transaction(()), part], RELATIONS)
    assert decode_transactions(body, RELATIONS) == [transaction, Transaction(()), part]


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        (5, "here: needs the form"),
        ([], "here: needs the form"),
        ({}, "here: needs the form"),
        ({"changes": {}}, "here: needs the form"),
        ({"changes": [], "global": "g1"}, 'here: "global" needs the form'),
        ({"changes": [], "global": {"id": "g1"}}, 'here: "global" needs the form'),
        ({"changes": [], "global": {"id": "", "participants": ["a"]}}, '"global" needs the form'),
        ({"changes": [], "global": {"id": "g", "participants": [1]}}, '"global" needs the form'),
        ({"changes": [], "at": 1}, "here: unknown field 'at'"),
        ({"changes": [5]}, "here, change 0: needs the form"),
        ({"changes": [{"relation": "line"}]}, "here, change 0: needs the form"),
        ({"changes": [{"relation": "zz", "row": [], "count": 1}]}, "no relation 'zz'; choose one"),
        ({"changes": [{"relation": "line", "row": [1], "count": 1}]}, "1 values were given"),
        ({"changes": [{"relation": "line", "row": [1, "2"], "count": 1}]}, "'2' is not a DOUBLE"),
        ({"changes": [{"relation": "line", "row": [1, 2], "count": True}]}, "needs the form"),
        ({"changes": [{"relation": "line", "row": [1, 2], "count": 1.5}]}, "needs the form"),
        ({"changes": [{"relation": "line", "row": [1, 2], "count": 1, "z": 1}]}, "needs the form"),
    ],
)
def test_a_form_that_is_no_transaction_is_refused_with_its_place(form: Any, reason: str) -> None:
    with pytest.raises(WrongUse) as caught:
        transaction_from_json(form, "here", RELATIONS)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"{", "not JSON"),
        (b"{}", "must be a JSON array"),
        (orjson.dumps([{"changes": []}, 5]), "transaction 1: needs the form"),
    ],
)
def test_a_body_that_is_none_is_refused(body: bytes, reason: str) -> None:
    with pytest.raises(WrongUse, match=reason):
        decode_transactions(body, RELATIONS)
