"""How Debezium names PostgreSQL's transactions and places in its log."""

from base64 import b64decode
from collections.abc import Mapping
from typing import Any

import orjson

from sources.debezium.logform import Place

_MESSAGES = "LogicalDecodingMessage"


class PostgresLogForm:
    """Transactions are named "number:LSN"; an LSN is a place in the log."""

    of_marks = b'"op":"m"'
    has_silent_ends = False
    without_end = ""

    def transaction(self, name: str) -> tuple[int, int]:
        """The number of a transaction, and the place of its commit if this is from its END."""
        number, _, lsn = name.partition(":")
        return int(number), int(lsn)

    def place(self, source: Mapping[str, Any]) -> Place:
        """The place of a change; the rows of one COPY share it."""
        commit, _ = orjson.loads(source["sequence"])
        lsn = source["lsn"]
        return Place(source["txId"], lsn, int(commit or 0), (lsn,))

    def table(self, source: Mapping[str, Any]) -> tuple[str, str]:
        """Schema and name."""
        return source["schema"], source["table"]

    def mark(self, record: Mapping[str, Any]) -> str | None:
        """The content of a message."""
        if record.get("op") != "m":
            return None
        return b64decode(record["message"]["content"]).decode(errors="replace")

    def is_ours(self, collection: str) -> bool:
        """Whether they are messages, which change no table."""
        return _MESSAGES in collection
