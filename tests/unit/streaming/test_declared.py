"""Keys, foreign keys and updates from `warehouse.toml`: beside those of the sources, or refused."""

from collections.abc import Mapping
from typing import Any

import pytest

from protocols.errors import WrongUse
from protocols.views.catalog import Catalog, relation_from_json
from sources.port import Description
from streaming.intake.asking import catalog_in
from streaming.settings.configuration import SourceSettings
from streaming.settings.declared import declared

PEOPLE = {"columns": {"id": "BIGINT", "name": "VARCHAR", "boss": "BIGINT"}, "key": ["id"]}
DESKS = {"columns": {"room": "VARCHAR", "owner": "VARCHAR", "by": "BIGINT"}}
TOWNS = {"columns": {"name": "VARCHAR"}, "key": ["name"]}


def described(**sources: Mapping[str, Any]) -> dict[str, Description]:
    """Descriptions of sources that hold these relations."""
    return {
        source: Description(
            source,
            0,
            {name: relation_from_json(source, name, each) for name, each in forms.items()},
        )
        for source, forms in sources.items()
    }


SOURCES = described(shop={"people": PEOPLE, "desks": DESKS}, map={"towns": TOWNS})


def settings(shop: Mapping[str, Any]) -> dict[str, SourceSettings]:
    """Three sources, of which one is not asked; the first has these tables `relations.NAME`."""
    return {
        name: SourceSettings(name, "grpc://127.0.0.1:1", (name,), None, None, relations=relations)
        for name, relations in (("shop", shop), ("map", {}), ("elsewhere", {"x": {"keys": [[]]}}))
    }


def merged(**shop: Any) -> Catalog:
    return declared(catalog_in(SOURCES), settings(shop))


def test_what_the_configuration_says_is_added() -> None:
    owner = {"columns": ["owner"], "references": "people", "to": ["name"]}
    room = {"columns": ["room"], "references": "map.towns"}
    far = {"columns": ["by"], "references": "elsewhere.rooms"}
    catalog = merged(
        people={
            "keys": [["name"]],
            "foreign_keys": [{"columns": ["boss"], "references": "people"}],
        },
        desks={"keys": [["room", "by"]], "foreign_keys": [owner, room, far]},
    )
    people, desks, _ = catalog
    assert people.all_keys == (("id",), ("name",))
    assert (desks.key, desks.all_keys) == ((), (("room", "by"),))
    assert [str(key) for key in catalog.foreign_keys] == [
        "shop.people(boss) -> shop.people(id)",
        "shop.desks(owner) -> shop.people(name)",
        "shop.desks(room) -> map.towns(name)",
    ]


def test_what_the_source_says_as_well_is_there_once() -> None:
    boss = {"columns": ["boss"], "references": "people"}
    says = {**PEOPLE, "keys": [["name"]], "foreign_keys": [boss]}
    catalog = catalog_in(described(shop={"people": says}))
    same = declared(catalog, settings({"people": {"keys": [["name"]], "foreign_keys": [boss]}}))
    assert [relation.to_json() for relation in same] == [says]


def test_the_updates_of_the_configuration_take_the_place_of_the_source_s() -> None:
    catalog = catalog_in(described(shop={"people": {**PEOPLE, "updates": ["name"]}}))
    for said, updates in ({}, ("name",)), ({"updates": []}, ()), ({"updates": ["boss"]}, ("boss",)):
        (people,) = declared(catalog, settings({"people": said}))
        assert people.updates == updates


@pytest.mark.parametrize(
    ("relation", "said", "complaint"),
    [
        ("peopel", {"keys": []}, "source shop has no relation 'peopel'; it has: people, desks"),
        ("people", {"keys": [["nam"]]}, "further key column 'nam' is not among its columns"),
        ("people", {"keys": "name"}, '"keys" must be a list of lists'),
        (
            "people",
            {"foreign_keys": [{"columns": ["name"], "references": "people"}]},
            "name is VARCHAR, and id of shop.people is BIGINT",
        ),
        (
            "desks",
            {"foreign_keys": [{"columns": ["owner"], "references": "people", "to": ["name"]}]},
            "it has to reference a key; the keys of shop.people are (id)",
        ),
        (
            "desks",
            {"foreign_keys": [{"columns": ["owner"], "references": "persons"}]},
            "there is no relation 'persons'; choose one of: shop.people, shop.desks, map.towns",
        ),
        (
            "desks",
            {"foreign_keys": [{"columns": ["owner"], "references": "mop.towns"}]},
            "nor of another configured one: shop, map, elsewhere",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(
    relation: str, said: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(WrongUse) as refused:
        merged(**{relation: said})
    assert str(refused.value).startswith(f"sources.shop.relations.{relation}: ")
    assert complaint in str(refused.value)


def test_a_source_whose_own_foreign_keys_do_not_fit_is_refused() -> None:
    wrong = {**PEOPLE, "foreign_keys": [{"columns": ["boss"], "references": "bosses"}]}
    with pytest.raises(WrongUse, match=r"relation shop.people: .* no relation 'bosses'"):
        catalog_in(described(shop={"people": wrong}))
    far = {**PEOPLE, "foreign_keys": [{"columns": ["boss"], "references": "far.bosses"}]}
    assert catalog_in(described(shop={"people": far})).foreign_keys == ()
