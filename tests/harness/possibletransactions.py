"""Random rows and transactions that keys, foreign keys and `updates` allow.

Keys are small numbers, so that a key comes back after its row was deleted. A transaction may insert
rows that reference one another in a circle. What it leaves without a parent it deletes as well.
"""

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, TypeAlias

from protocols.views.catalog import Catalog, ForeignKey, Relation
from tests.harness.selfmaintained import Net, Row

#: The rows of each relation, by their keys.
Contents: TypeAlias = dict[Relation, dict[Row, Row]]

_NUMBERS = (0, 1, 2, 3)
_VALUES = {
    "state": ("CA", "CA", "NY"),
    "category": ("toy", "toy", "book"),
    "year": (1996, 1996, 1995),
}


class Possible:
    """Draws contents and transactions for a catalog."""

    def __init__(
        self, catalog: Catalog, dice: Random, keys: int = 12, orphans: bool = False
    ) -> None:
        self._catalog = catalog
        self._dice = dice
        #: The number of different keys.
        self.keys = keys
        #: Whether foreign keys are broken: by parents that go, or that come after their children.
        self._orphans = orphans

    def contents(self) -> Contents:
        """The rows to begin with."""
        empty: Contents = {relation: {} for relation in self._catalog}
        found = empty
        for _ in range(self._dice.randrange(4, 13)):
            found = self._insertions(found, found)
        return self._repaired(found)

    def transaction(self, before: Contents, most: int = 8) -> tuple[Contents, dict[Relation, Net]]:
        """The rows after a transaction of at most so many steps, and its net changes."""
        after = {relation: dict(rows) for relation, rows in before.items()}
        for _ in range(self._dice.randint(1, most)):
            step = self._dice.choice((self._insertions, self._deletion, self._update, self._update))
            after = step(after, before)
        after = self._repaired(after)
        return after, dict(_net(before, after))

    def allows(self, contents: Contents) -> bool:
        """Whether no row lacks a parent."""
        return not any(self._orphans_of(key, contents) for key in self._catalog.foreign_keys)

    def values(self, relation: Relation, column: str) -> Sequence[Any]:
        """The values that a column may have, beside NULL."""
        if any(column in key.columns for key in self.references(relation)):
            return range(1, self.keys + 1)
        if column in relation.key:
            return ()
        texts = ("x", "y", "z")
        of_type = texts if relation.type_of(column).name == "VARCHAR" else _NUMBERS
        return _VALUES.get(column, of_type)

    def _insertions(self, now: Contents, before: Contents) -> Contents:
        """Inserts a row into each of some relations, at once."""
        share = self._dice.choice((0.3, 1.0))
        chosen = [relation for relation in self._catalog if self._dice.random() < share]
        keys = {r: self._new_key(r, now, before) for r in chosen}
        for relation, key in keys.items():
            if key is not None:
                row = self._row(relation, key, now, keys)
                if not _breaks_further_key(relation, row, now[relation].values()):
                    now[relation][key] = row
        return now

    def _deletion(self, now: Contents, _: Contents) -> Contents:
        relation = self._dice.choice(self._catalog.relations)
        if now[relation]:
            del now[relation][self._dice.choice(sorted(now[relation]))]
        return now

    def _update(self, now: Contents, before: Contents) -> Contents:
        relation = self._dice.choice(self._catalog.relations)
        known = sorted(now[relation].keys() & before[relation].keys())
        if known and relation.modifiable:
            key = self._dice.choice(known)
            drawn = self._row(relation, key, now, {})
            pairs = zip(relation.column_names, now[relation][key], drawn, strict=True)
            row = tuple(new if c in relation.modifiable else old for c, old, new in pairs)
            others = [each for k, each in now[relation].items() if k != key]
            if not _breaks_further_key(relation, row, others):
                now[relation][key] = row
        return now

    def _new_key(self, relation: Relation, now: Contents, before: Contents) -> Row | None:
        taken = now[relation].keys() | before[relation].keys()
        for _ in range(5):
            key = tuple(self._dice.randint(1, self.keys) for _ in relation.key)
            if key not in taken:
                return key
        return None

    def _row(
        self, relation: Relation, key: Row, now: Contents, new: dict[Relation, Row | None]
    ) -> Row:
        values = {
            name: self._dice.choice(self.values(relation, name) or (0,))
            for name in relation.column_names
        }
        values.update(zip(relation.key, key, strict=True))
        for reference in self.references(relation):
            candidates = [tuple(_part(reference, row)) for row in now[reference.parent].values()]
            fresh = new.get(reference.parent)
            if fresh is not None and reference.parent_columns == reference.parent.key:
                candidates += [fresh] * 3
            if self._orphans or not candidates:
                candidates.append((self._dice.randint(1, self.keys),) * len(reference.columns))
            chosen = self._dice.choice(candidates)
            if not set(reference.columns) & relation.never_null and self._dice.random() < 0.2:
                chosen = (None,) * len(reference.columns)
            for column, value in zip(reference.columns, chosen, strict=True):
                if column not in relation.key:
                    values[column] = value
        return tuple(values[name] for name in relation.column_names)

    def references(self, relation: Relation) -> list[ForeignKey]:
        """The foreign keys of a relation."""
        return [key for key in self._catalog.foreign_keys if key.child == relation]

    def _repaired(self, contents: Contents) -> Contents:
        """Deletes rows without a parent until there are none."""
        keys = () if self._orphans else self._catalog.foreign_keys
        while any(self._delete_orphans(key, contents) for key in keys):
            pass
        return contents

    def _delete_orphans(self, key: ForeignKey, contents: Contents) -> bool:
        orphans = self._orphans_of(key, contents)
        for own in orphans:
            del contents[key.child][own]
        return bool(orphans)

    def _orphans_of(self, key: ForeignKey, contents: Contents) -> list[Row]:
        there = {tuple(_part(key, row)) for row in contents[key.parent].values()}
        places = [key.child.column_names.index(column) for column in key.columns]
        return [
            own
            for own, row in contents[key.child].items()
            if None not in (values := tuple(row[place] for place in places)) and values not in there
        ]


def _part(key: ForeignKey, row: Row) -> Iterator[Any]:
    """The referenced values of a parent's row."""
    return (row[key.parent.column_names.index(column)] for column in key.parent_columns)


def _breaks_further_key(relation: Relation, row: Row, others: Any) -> bool:
    for columns in relation.further_keys:
        places = [relation.column_names.index(column) for column in columns]
        values = tuple(row[place] for place in places)
        if None in values or any(tuple(o[place] for place in places) == values for o in others):
            return True
    return False


def _net(before: Contents, after: Contents) -> Iterator[tuple[Relation, Net]]:
    for relation, rows in after.items():
        old = before[relation]
        yield (
            relation,
            Net(
                tuple(row for key, row in old.items() if key not in rows),
                tuple((old[k], row) for k, row in rows.items() if k in old and old[k] != row),
                tuple(row for key, row in rows.items() if key not in old),
            ),
        )
