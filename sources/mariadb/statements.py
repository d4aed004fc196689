"""The SQL that creates and changes a source's tables in MariaDB."""

from collections.abc import Iterator

from protocols.algebra.types import ColumnType
from sources.debezium.statements import Statements
from sources.mariadb.source import MARKS

_TYPES = {"BOOLEAN": "bit(1)", "TIMESTAMP": "datetime(6)"}


class MariaDBStatements(Statements):
    """Every relation has a key."""

    def prepare(self) -> Iterator[str]:
        """The table of marks, as the documentation has it."""
        yield f"CREATE TABLE {MARKS} (id INT PRIMARY KEY, n BIGINT NOT NULL)"

    def type_of(self, type_: ColumnType, is_key: bool) -> str:
        """The type; a text in a key has a length."""
        if type_.name == "VARCHAR":
            return "varchar(100)" if is_key else "text"
        return _TYPES.get(type_.name, type_.name)
