"""What `warehouse.toml` declares about relations beyond what their sources declare.

    [sources.shop.relations.desks]
    keys = [["room", "number"]]
    foreign_keys = [{columns = ["owner"], references = "people", to = ["name"]}]
    updates = ["owner"]

Keys and foreign keys are added to those of the source; `updates` takes the place of the source's.
They are believed: nothing tests whether the rows satisfy them.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from protocols.errors import WrongUse
from protocols.views.catalog import Catalog, Relation, relation_from_json
from streaming.settings.configuration import SourceSettings


def declared(catalog: Catalog, sources: Mapping[str, SourceSettings]) -> Catalog:
    """The catalog with what these sources' configuration declares; WrongUse if it is wrong.

    The catalog may have only some of the sources; foreign keys to the others are not checked.
    """
    known = [source for source in sources.values() if source.name in catalog.sources]
    for source in known:
        for name in source.relations:
            if catalog.find(source.name, name) is None:
                there = ", ".join(r.name for r in catalog if r.source == source.name)
                raise WrongUse(
                    f"{_place(source.name, name)}: source {source.name} has no relation {name!r};"
                    f" it has: {there}"
                )
    said = {(s.name, name): form for s in known for name, form in s.relations.items()}
    more = {place: _read(catalog, place, form) for place, form in said.items()}
    whole = Catalog(tuple(_with(relation, more) for relation in catalog), catalog.left_out)
    for place, relation in more.items():
        for reference in relation.references:
            with_place = _place(*place)
            _refuse_unconfigured(with_place, whole, reference.target, sources)
            try:
                whole.refuse_impossible(relation, reference, whole=False)
            except WrongUse as error:
                raise WrongUse(f"{with_place}: {error}") from None
    return whole


def _read(catalog: Catalog, place: tuple[str, str], form: Mapping[str, Any]) -> Relation:
    """The relation with only the declarations of the configuration."""
    held = next(r for r in catalog if (r.source, r.name) == place)
    try:
        return relation_from_json(*place, {**held.schema(), **form})
    except WrongUse as error:
        raise WrongUse(f"{_place(*place)}: {error}") from None


def _with(relation: Relation, more: Mapping[tuple[str, str], Relation]) -> Relation:
    said = more.get((relation.source, relation.name), relation)
    return replace(
        relation,
        further_keys=tuple(dict.fromkeys(relation.further_keys + said.further_keys)),
        references=tuple(dict.fromkeys(relation.references + said.references)),
        updates=relation.updates if said.updates is None else said.updates,
    )


def _refuse_unconfigured(
    place: str, catalog: Catalog, target: str, sources: Mapping[str, SourceSettings]
) -> None:
    configured = any(target.startswith(f"{name}.") for name in sources)
    if catalog.is_elsewhere(target) and not configured:
        raise WrongUse(
            f"{place}: {target!r} is not a relation of this source, nor of another configured one:"
            f" {', '.join(sources)}"
        )


def _place(source: str, relation: str) -> str:
    return f"sources.{source}.relations.{relation}"
