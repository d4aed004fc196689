"""Names of sources and relations are refused where they enter, if nobody could write them."""

from pathlib import Path

import pytest

from protocols.errors import WrongUse
from protocols.views.catalog import catalog_from_json, relation_from_json
from sources.loading import load_relation

FORM = {"columns": {"id": "BIGINT"}}
BLANK = ["", " ", " a", "a ", "a\nb", "a\tb", "a\x00", "a\x7fb", "a\u200bb"]
BAD = [*BLANK, "a/b", "../a", "a\\b"]


@pytest.mark.parametrize("name", BAD)
def test_a_bad_name_of_a_source_is_refused_with_the_way_out(name: str) -> None:
    for sources in ({name: {"relations": {"r": FORM}}}, {name: {"relations": {}}}):
        with pytest.raises(WrongUse, match="a name has at least one") as refused:
            catalog_from_json(sources)
        assert str(refused.value).startswith(f"source {name!r}: ")
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", BLANK)
def test_a_bad_name_of_a_relation_is_refused(name: str) -> None:
    with pytest.raises(WrongUse, match=r"source shop: relation .*: a name has at least one"):
        relation_from_json("shop", name, FORM)


@pytest.mark.parametrize("name", ["", "a\nb", "a/b"])
def test_a_source_is_not_made_from_files_under_a_bad_name(tmp_path: Path, name: str) -> None:
    (tmp_path / "r.csv").write_text("id\n1\n")
    with pytest.raises(WrongUse, match="a name has at least one"):
        load_relation(name, "r", tmp_path / "r.csv", ())


@pytest.mark.parametrize(
    "name", ["shop", "Shop-2_eu", "straße", "Order Details", "a.b", "it's", '5"']
)
def test_names_that_somebody_may_have_are_taken(name: str) -> None:
    assert relation_from_json(name, name, FORM).name == name


def test_a_relation_may_have_the_name_that_its_database_gave_it() -> None:
    assert relation_from_json("shop", 'odd "u"/v', FORM).name == 'odd "u"/v'
