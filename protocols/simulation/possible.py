"""Checks that a database could hold given rows, and change them so: counts, keys, foreign keys."""

from collections.abc import Collection, Iterator, Mapping, Sequence

from protocols.algebra.bag import Bag, Row
from protocols.errors import WrongUse
from protocols.views.catalog import Catalog, ForeignKey, Relation


def refuse_impossible(relation: Relation, rows: Bag) -> None:
    """Raises WrongUse if no database could hold these rows of a relation."""
    missing = next((row for row, count in rows.counts.items() if count < 0), None)
    if missing is not None:
        raise WrongUse(
            f"{relation}: the row {list(missing)} is deleted, but the relation does not contain it"
        )
    for columns in relation.all_keys:
        for key, count in _selected(rows, columns).items():
            if None in key:
                raise WrongUse(f"{relation}: a key must not contain NULL, but {list(key)} does")
            if count > 1:
                raise WrongUse(
                    f"{relation} would hold the key {list(key)} {count} times"
                    f" ({', '.join(columns)}), in {_having(rows, columns, key)}"
                )
    for reference in relation.references:
        for values in _selected(rows, reference.columns) if reference.mandatory else ():
            if None in values:
                raise WrongUse(
                    f"{relation}: the foreign key {reference} is mandatory, but NULL in"
                    f" {_having(rows, reference.columns, values)}"
                )


def refuse_orphans(
    catalog: Catalog, contents: Mapping[Relation, Bag], changed: Collection[Relation]
) -> None:
    """Raises WrongUse for a row whose foreign key within a source references no row.

    Only foreign keys of changed relations are checked. Across sources there is no moment at which a
    foreign key would have to hold.
    """
    for key in catalog.foreign_keys:
        if key.within_source and (key.child in changed or key.parent in changed):
            for values in _orphans(key, contents):
                row = _having(contents[key.child], key.columns, values)
                raise WrongUse(
                    f"foreign key {key}: {key.child} would contain {row}, but {key.parent} would"
                    f" contain no row with {list(values)}"
                )


def refuse_other_modifications(relation: Relation, changes: Bag) -> None:
    """Raises WrongUse for a modification that changes columns outside the declared `updates`."""
    if relation.updates is None or not relation.key:
        return
    added = {_values(changes, relation.key, row): row for row, n in changes.counts.items() if n > 0}
    for old in (row for row, count in changes.counts.items() if count < 0):
        new = added.get(_values(changes, relation.key, old), old)
        for column, before, now in zip(changes.columns, old, new, strict=True):
            if before != now and column not in relation.modifiable:
                allowed = ", ".join(relation.updates) or "none"
                raise WrongUse(
                    f"{relation}: {list(old)} becomes {list(new)}, which changes {column!r}; the"
                    f' declared "updates" are: {allowed}'
                )


def _orphans(key: ForeignKey, contents: Mapping[Relation, Bag]) -> Iterator[Row]:
    there = _selected(contents[key.parent], key.parent_columns)
    for values in _selected(contents[key.child], key.columns):
        if None not in values and values not in there:
            yield values


def _selected(rows: Bag, columns: Sequence[str]) -> Mapping[Row, int]:
    return rows.select([(column, column) for column in columns]).counts


def _having(rows: Bag, columns: Sequence[str], values: Row) -> str:
    """The first rows with these values, two of them at most."""
    found = [row for row in rows.counts if _values(rows, columns, row) == values]
    return " and ".join(str(list(row)) for row in found[:2])


def _values(rows: Bag, columns: Sequence[str], row: Row) -> Row:
    return tuple(row[rows.columns.index(column)] for column in columns)
