"""What a source says of itself agrees with its relations and with what was committed."""

from collections.abc import Iterator

from sources.history import UNKNOWN
from tests.conformance.committed import Oracle
from tests.conformance.stage import Stage

#: How far an estimate may be off.
_NEAR = 0.2


def relations(stage: Stage) -> Iterator[str]:
    """Relations with all their keys and foreign keys, the version, what is published, indexes."""
    told = stage.told
    found = told.source.describe()
    if found.source != told.source.name:
        yield f"its name is {found.source}, not {told.source.name}"
    forms = {name: relation.to_json() for name, relation in found.relations.items()}
    expected = {relation.name: relation.to_json() for relation in told.database.story.catalog}
    if forms != expected:
        yield f"its relations are {forms}, not {expected}"
    if (found.version, found.published) != (told.last, told.last):
        yield f"version {found.version}, published {found.published}: both are {told.last}"
    digest = told.source.digests([told.last])[told.last]
    if UNKNOWN not in (digest, found.digest) and digest != found.digest:
        yield f"its digest is not that of version {told.last}"
    for relation, columns in told.database.story.indexes.items():
        if missing := set(columns) - set(found.indexes.get(relation, ())):
            yield f"relation {relation} has an index on {missing}"


def statistics(stage: Stage) -> Iterator[str]:
    """The numbers of rows and of different values, about."""
    told = stage.told
    found, oracle = told.source.statistics(), Oracle(told.database.story, told.database.committed)
    for relation in told.database.story.catalog:
        names = relation.column_names
        rows, *distinct = oracle.sizes(told.last, relation.name, names)
        claimed = found[relation.name]
        yield from _off(f"rows of {relation}", claimed.rows, rows)
        for name, number in zip(names, distinct, strict=True):
            if name not in claimed.distinct and not stage.adapter.counts_all_columns:
                continue
            yield from _off(f"values of {relation}.{name}", claimed.distinct[name], number)
    for name, columns in told.database.story.indexes.items():
        if missing := set(columns) - set(found[name].distinct):
            yield f"nothing is said of the values of {name}.{missing}, which has an index"
    oracle.close()


def _off(what: str, claimed: int, number: int) -> Iterator[str]:
    if abs(claimed - number) > _NEAR * number:
        yield f"{number} {what} are said to be {claimed}"
