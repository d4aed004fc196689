"""The examples of docs/sources.md and of the databases' pages are what the code reads."""

import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from protocols.algebra.delta import COUNT
from protocols.algebra.expressions import Column, Comparison, Literal
from protocols.algebra.expressions_wire import to_json
from protocols.algebra.frame import Frame
from protocols.algebra.types import BIGINT
from protocols.exchange.questions import Query
from protocols.views.catalog import Relation, catalog_from_json, relation_from_json
from protocols.views.sql import parse_view
from sources.envelope import decode
from sources.wire.messages import encode_query
from streaming.settings.configuration import read_configuration
from tests.harness.places import ROOT

_PAGE = (ROOT / "docs" / "sources.md").read_text()
_RECORD, _STATUS, _RELATION, _TICKET = re.findall(r"```json\n(.*?)```", _PAGE, re.DOTALL)


def _item() -> Relation:
    return relation_from_json("shop", "item", json.loads(_STATUS)["relations"]["item"])


def test_the_record_on_the_page_is_read_as_the_page_says() -> None:
    lines = pl.Series([_RECORD.replace("\n", "").encode()], dtype=pl.Binary)
    records = decode(lines, [_item()])
    rows = records.rows["item"].select("id", "name", "price", COUNT).rows()
    assert rows == [(1, "pen", 150, -1), (1, "pen", 160, 1)]
    assert records.heads.select("version", "order", "count").rows() == [(7, 1, 1)]


def test_the_relation_on_the_page_declares_what_the_page_says() -> None:
    form = json.loads(_RELATION)
    relation = relation_from_json("trade", "stock", form)
    assert relation.to_json() == form
    assert relation.all_keys == (("id",), ("shop", "shelf"))
    assert [str(each) for each in relation.references] == ["(shop) -> shops(id)"]
    assert relation.references[0].mandatory


def test_the_ticket_on_the_page_is_one_that_we_send() -> None:
    item = _item()
    condition = Comparison(Column("price"), "<", Literal(200, BIGINT))
    keys = Frame(pl.DataFrame({"id": [1, 2], COUNT: [1, 1]}))
    sent = encode_query(Query(item, ("id", "price"), condition, (keys,))).split(b"\n")[0]
    shown: dict[str, Any] = json.loads(
        _TICKET.replace("{…}", json.dumps(item.to_json()["columns"]))
    )
    assert shown["condition"] == to_json(condition)
    ours = json.loads(sent)
    assert len(shown.pop("keys")) == len(ours.pop("keys"))
    assert ours == shown


@pytest.mark.parametrize("page", ["postgres", "mariadb"])
def test_the_configuration_on_a_database_s_page_is_complete(page: str, tmp_path: Path) -> None:
    text = (ROOT / "docs" / f"{page}.md").read_text()
    [configuration] = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    (tmp_path / "warehouse.toml").write_text(configuration)
    view = re.findall(r"```sql\n(SELECT.*?)```", text, re.DOTALL)[0]
    (tmp_path / "items.sql").write_text(view)
    found = read_configuration(tmp_path / "warehouse.toml")
    database = found.sources["shop"].database
    assert database is not None
    assert database.kind == page
    columns = {
        "orders": {"id": "BIGINT", "item_id": "BIGINT"},
        "item": {"id": "BIGINT", "name": "VARCHAR", "price": "DECIMAL(10,2)"},
    }
    forms = {name: {"columns": each, "key": ["id"]} for name, each in columns.items()}
    catalog = catalog_from_json({"shop": {"relations": forms}})
    assert parse_view("items", found.views["items"].sql, catalog).sources == ("shop",)
