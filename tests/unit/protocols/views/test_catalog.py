"""Names of sources and relations that SQL cannot express are refused where they enter."""

from pathlib import Path
from typing import Any

import pytest

from protocols.errors import ViewRefused, WrongUse
from protocols.views.catalog import Catalog, Relation, catalog_from_json, relation_from_json
from protocols.views.sql import parse_view
from protocols.views.statistics import Statistics, statistics_in
from sources.simulated.loading import load_relation

FORM = {"columns": {"id": "BIGINT"}}
BLANK = ["", " ", " a", "a ", "a\nb", "a\tb", "a\x00", "a\x7fb", "a\u200bb"]
BAD = [*BLANK, "a/b", "../a", "a\\b"]


@pytest.mark.parametrize("name", BAD)
def test_a_bad_name_of_a_source_is_refused_with_the_way_out(name: str) -> None:
    relations: dict[str, Any]
    for relations in ({"r": FORM}, {}):
        with pytest.raises(WrongUse, match="a name must have at least one") as refused:
            catalog_from_json({name: {"relations": relations}})
        assert str(refused.value).startswith(f"source {name!r}: ")
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", BLANK)
def test_a_bad_name_of_a_relation_is_refused(name: str) -> None:
    with pytest.raises(WrongUse, match=r"source shop: relation .*: a name must have at least one"):
        relation_from_json("shop", name, FORM)


@pytest.mark.parametrize("name", ["", "a\nb", "a/b"])
def test_a_source_is_not_made_from_files_under_a_bad_name(tmp_path: Path, name: str) -> None:
    (tmp_path / "r.csv").write_text("id\n1\n")
    with pytest.raises(WrongUse, match="a name must have at least one"):
        load_relation(name, "r", tmp_path / "r.csv")


@pytest.mark.parametrize(
    "name", ["shop", "Shop-2_eu", "straße", "Order Details", "a.b", "it's", '5"']
)
def test_names_that_somebody_may_have_are_taken(name: str) -> None:
    assert relation_from_json(name, name, FORM).name == name


def test_a_relation_may_have_the_name_that_its_database_gave_it() -> None:
    assert relation_from_json("shop", 'odd "u"/v', FORM).name == 'odd "u"/v'


# -- keys and foreign keys -------------------------------------------------------------------------

SHOPS = {
    "columns": {"id": "BIGINT", "town": "VARCHAR", "number": "BIGINT"},
    "key": ["id"],
    "keys": [["town", "number"]],
}
STOCK = {"columns": {"id": "BIGINT", "shop": "BIGINT", "town": "VARCHAR", "x": "DOUBLE"}}
BAG = {"columns": {"id": "BIGINT"}}


def sources(*foreign_keys: Any, **further: Any) -> dict[str, Any]:
    """Shops and their stock at one source, a bag at another; stock declares these keys."""
    stock = {**STOCK, "foreign_keys": list(foreign_keys), **further}
    return {
        "trade": {"relations": {"shops": SHOPS, "stock": stock}},
        "else": {"relations": {"bag": BAG, "shops": SHOPS}},
    }


def test_keys_and_foreign_keys_are_read_and_written() -> None:
    form = {
        **STOCK,
        "key": ["id"],
        "keys": [["shop", "town"]],
        "foreign_keys": [
            {"columns": ["shop"], "references": "shops", "mandatory": True},
            {"columns": ["town", "id"], "references": "else.shops", "to": ["town", "number"]},
        ],
    }
    relation = relation_from_json("trade", "stock", form)
    assert relation.to_json() == form
    assert relation.schema() == {"columns": STOCK["columns"], "key": ["id"]}
    assert relation.all_keys == (("id",), ("shop", "town"))
    assert relation.never_null == {"id", "shop", "town"}


def test_a_form_without_them_is_what_it_was() -> None:
    relation = relation_from_json("trade", "r", {"columns": {"id": "BIGINT"}, "key": ["id"]})
    assert relation.to_json() == {"columns": {"id": "BIGINT"}, "key": ["id"]}
    assert relation_from_json("trade", "bag", BAG).to_json() == BAG


def test_who_knows_less_of_a_relation_asks_about_the_same_one() -> None:
    form = {**SHOPS, "foreign_keys": [{"columns": ["number"], "references": "else.shops"}]}
    relation = relation_from_json("trade", "shops", form)
    assert relation == relation_from_json("trade", "shops", relation.schema())
    assert relation != relation_from_json("trade", "shops", {**form, "key": ["number"]})


def test_a_foreign_key_leads_to_a_relation_of_its_source_first() -> None:
    near = {"columns": ["shop"], "references": "shops"}
    far = {"columns": ["town", "id"], "references": "else.shops", "to": ["town", "number"]}
    catalog = catalog_from_json(sources(near, far))
    within, across = catalog.foreign_keys
    assert str(within) == "trade.stock(shop) -> trade.shops(id)"
    assert str(across) == "trade.stock(town, id) -> else.shops(town, number)"
    assert (within.within_source, across.within_source) == (True, False)


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        (
            {"columns": ["shop"], "references": "shop"},
            "no relation 'shop'; choose one of: trade.shops",
        ),
        ({"columns": ["shop"], "references": "far.shops"}, "no relation 'far.shops'; choose one"),
        ({"columns": ["shoe"], "references": "shops"}, "foreign key column 'shoe' is not among"),
        ({"columns": [], "references": "shops"}, "its foreign key must be a list of column names"),
        ({"columns": ["shop", "shop"], "references": "shops"}, "names column 'shop' twice"),
        ({"columns": ["shop"]}, '"references" must be the name of a relation, not None'),
        ({"columns": ["shop"], "references": "shops", "on": "id"}, "unknown field 'on'"),
        (
            {"columns": ["shop"], "references": "shops", "mandatory": 1},
            '"mandatory" must be true or',
        ),
        (
            {"columns": ["shop"], "references": "shops", "to": ["ids"]},
            "has no column 'ids'; its columns are",
        ),
        ({"columns": ["shop"], "references": "shops", "to": ["number"]}, "has to reference a key"),
        ({"columns": ["shop"], "references": "else.bag"}, "a key; else.bag has none"),
        ({"columns": ["shop", "id"], "references": "shops"}, "one column for each of .id. of"),
        ({"columns": ["town"], "references": "shops"}, "town is VARCHAR, and id of trade.shops is"),
        (["shop"], r"foreign_keys\[0\] must be an object"),
    ],
)
def test_a_foreign_key_that_cannot_be_is_refused(declared: Any, message: str) -> None:
    with pytest.raises(WrongUse, match=message) as refused:
        catalog_from_json(sources(declared))
    assert str(refused.value).startswith("relation trade.stock: foreign")


@pytest.mark.parametrize(
    ("further", "message"),
    [
        ({"keys": ["shop"]}, "its further key must be a list of column names, not 'shop'"),
        ({"keys": "shop"}, '"keys" must be a list of lists of column names'),
        ({"keys": [["shoe"]]}, "further key column 'shoe' is not among its columns: id, shop"),
        ({"keys": [[]]}, "its further key must be a list of column names, not "),
        ({"key": "id"}, "its key must be a list of column names, not 'id'"),
        ({"key": ["id", "id"]}, "its key names column 'id' twice"),
        ({"foreign_keys": "shop"}, '"foreign_keys" must be a list of objects'),
        ({"updates": "shop"}, "its updates must be a list of column names, not 'shop'"),
        ({"updates": ["shoe"]}, "updates column 'shoe' is not among its columns: id, shop"),
        ({"statistics": 7}, "statistics: must be an object with"),
        ({"statistics": {}}, "statistics: rows must be a whole number of at least 0, not None"),
        ({"statistics": {"rows": -1}}, "rows must be a whole number of at least 0, not -1"),
        ({"statistics": {"rows": 1, "sizes": {}}}, "unknown field 'sizes'"),
        ({"statistics": {"rows": 1, "distinct": []}}, "must map each column to its number"),
        ({"statistics": {"rows": 1, "distinct": {"shoe": 1}}}, "there is no column 'shoe'"),
        ({"statistics": {"rows": 1, "distinct": {"shop": "x"}}}, "distinct.shop must be a whole"),
        ({"foreign_key": []}, "unknown field 'foreign_key'; known fields: columns, key"),
    ],
)
def test_keys_that_cannot_be_are_refused(further: dict[str, Any], message: str) -> None:
    with pytest.raises(WrongUse, match=message) as refused:
        catalog_from_json(sources(**further))
    assert str(refused.value).startswith("relation trade.stock: ")


def test_updates_are_read_and_written() -> None:
    def relation(**said: Any) -> Relation:
        return relation_from_json("trade", "stock", {**STOCK, "key": ["id"], **said})

    said: dict[str, Any]
    for said in ({}, {"updates": []}, {"updates": ["x", "town"]}):
        assert relation(**said).to_json() == {**STOCK, "key": ["id"], **said}
    assert relation().modifiable == {"shop", "town", "x"}
    assert relation(updates=[]).modifiable == frozenset()
    assert relation(updates=["id", "x"]).modifiable == {"x"}, "another key is another row"


def test_statistics_stand_beside_the_relations() -> None:
    form = sources(statistics={"rows": 80, "distinct": {"shop": 4}})
    assert catalog_from_json(form) == catalog_from_json(sources())
    assert statistics_in(form) == {"trade.stock": Statistics(80, {"shop": 4})}


def test_what_no_relation_is_refused_with_its_place() -> None:
    with pytest.raises(WrongUse, match=r"source a: unknown field 'rows'"):
        catalog_from_json({"a": {"relations": {}, "rows": []}})
    with pytest.raises(WrongUse, match=r"relation a.r has to be an object"):
        catalog_from_json({"a": {"relations": {"r": ["id"]}}})
    body: Any
    for body in ([], {}, {"relations": []}):
        with pytest.raises(WrongUse, match=r"source a: .relations. has to map names"):
            catalog_from_json({"a": body})


def test_in_a_part_of_a_catalog_a_foreign_key_may_lead_elsewhere() -> None:
    far = {"columns": ["shop"], "references": "far.shops"}
    assert catalog_from_json(sources(far), whole=False).foreign_keys == ()
    for here in ("shop", "else.shop", "trade.shop"):
        with pytest.raises(WrongUse, match="there is no relation"):
            catalog_from_json(sources({**far, "references": here}), whole=False)


def test_narrow_types_are_kept_in_wider_ones() -> None:
    """INTEGER is what most columns of most databases are."""
    declared = {"a": "INTEGER", "b": "smallint", "c": "REAL", "d": "varchar(20)", "e": "int4"}
    declared |= {"f": "character varying (3)", "g": "TIMESTAMP WITHOUT TIME ZONE"}
    relation = relation_from_json("s", "r", {"columns": declared})
    kept = ["BIGINT", "BIGINT", "DOUBLE", "VARCHAR", "BIGINT", "VARCHAR", "TIMESTAMP"]
    assert [type_.name for _, type_ in relation.columns] == kept
    # A view that casts means the narrow type, with its overflow.
    with pytest.raises(ViewRefused, match="unknown type"):
        parse_view("v", "SELECT CAST(a AS SMALLINT) AS x FROM s.r", Catalog((relation,)))
