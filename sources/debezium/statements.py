"""The SQL that creates a source's tables in a real database, and commits its transactions there.

For demonstrations, measurements and tests: the warehouse itself only reads.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from protocols.algebra.types import ColumnType
from protocols.views.catalog import Catalog, Relation
from protocols.views.constraints import Reference
from sources.transaction import RowChange

Row: TypeAlias = tuple[Any, ...]
#: A statement with a `%s` for each of its parameters.
Statement: TypeAlias = tuple[str, Sequence[Any]]


class Statements(ABC):
    """The statements for one source's relations, in the SQL of one kind of database."""

    def __init__(self, catalog: Catalog, source: str) -> None:
        self._source, self._catalog = source, catalog
        self._relations = {each.name: each for each in catalog if each.source == source}

    # -- what each kind of database does in its own way ----------------------------------------

    @abstractmethod
    def prepare(self) -> Iterator[str]:
        """Makes a database with the tables ready for Debezium."""

    @abstractmethod
    def type_of(self, type_: ColumnType, is_key: bool) -> str:
        """The database's type for one of ours."""

    def without_key(self, relation: Relation, row: Row) -> Statement:
        """Deletes one of the equal rows of a relation without a key."""
        raise NotImplementedError(f"{relation.name} has no key, and {self._source} needs one")

    # -- tables --------------------------------------------------------------------------------

    def tables(self) -> Iterator[str]:
        """The statements that create its tables, those that are referenced first."""
        made: set[str] = set()
        while left := [each for each in self._relations.values() if each.name not in made]:
            ready = [each for each in left if self._targets(each) <= made | {each.name}]
            for relation in ready or left:
                yield self.table(relation)
                made.add(relation.name)

    def _targets(self, relation: Relation) -> set[str]:
        return {each.target for each in relation.references}

    def table(self, relation: Relation) -> str:
        """The statement that creates one table."""
        keys = {name for key in (relation.key, *relation.further_keys) for name in key}
        parts = [
            f"{name} {self.type_of(type_, name in keys)}"
            f"{' NOT NULL' if name in relation.never_null else ''}"
            for name, type_ in relation.columns
        ]
        parts += [f"PRIMARY KEY ({', '.join(relation.key)})"] if relation.key else []
        parts += [f"UNIQUE ({', '.join(key)})" for key in relation.further_keys]
        parts += [self._reference(each) for each in relation.references]
        return f"CREATE TABLE {relation.name} ({', '.join(parts)})"

    def _reference(self, key: Reference) -> str:
        target = self._catalog.find(self._source, key.target)
        assert target is not None
        to = ", ".join(key.to or target.key)
        return f"FOREIGN KEY ({', '.join(key.columns)}) REFERENCES {key.target} ({to})"

    # -- changes -------------------------------------------------------------------------------

    def changes(self, changes: Iterable[RowChange]) -> Iterator[Statement]:
        """Deletions, updates of rows that are replaced under their key, then insertions."""
        gone: dict[tuple[str, Row], Row] = {}
        new: dict[tuple[str, Row], Row] = {}
        added: list[RowChange] = []
        for each in changes:
            relation = self._relations[each.relation]
            if relation.key:
                of = gone if each.count < 0 else new
                of[each.relation, key_of(relation, each.row)] = each.row
            elif each.count > 0:
                added.append(each)
            else:
                yield from [self.without_key(relation, each.row)] * -each.count
        yield from (self._deletion(*place) for place in gone if place not in new)
        for (name, key), row in new.items():
            yield self._update(name, key, row) if (name, key) in gone else self.insertion(name, row)
        for each in added:
            yield from [self.insertion(each.relation, each.row)] * each.count

    def insertion(self, name: str, row: Row) -> Statement:
        """Inserts a row."""
        return f"INSERT INTO {name} VALUES ({', '.join(['%s'] * len(row))})", row

    def _deletion(self, name: str, key: Row) -> Statement:
        return f"DELETE FROM {name} WHERE {self._has_key(name)}", key

    def _update(self, name: str, key: Row, row: Row) -> Statement:
        values = ", ".join(f"{column} = %s" for column in self._relations[name].column_names)
        return f"UPDATE {name} SET {values} WHERE {self._has_key(name)}", (*row, *key)

    def _has_key(self, name: str) -> str:
        return " AND ".join(f"{column} = %s" for column in self._relations[name].key)


def key_of(relation: Relation, row: Row) -> Row:
    """The key of a row."""
    return tuple(row[relation.column_names.index(name)] for name in relation.key)


def all_of(rows: Mapping[str, Iterable[Row]]) -> list[RowChange]:
    """The changes that insert these rows."""
    return [RowChange(name, row, 1) for name, found in rows.items() for row in found]
