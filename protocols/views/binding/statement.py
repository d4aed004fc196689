"""The text of a view, and places in it."""

from typing import Any, NoReturn

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError

from protocols.errors import ViewRefused


class Text:
    """A view's SQL; whoever refuses something in it says where it stands."""

    def __init__(self, sql: str) -> None:
        self.sql = sql

    def query(self) -> exp.Query:
        """The one statement that it has to be."""
        try:
            statements = [s for s in sqlglot.parse(self.sql, read="duckdb") if s is not None]
        except ParseError as error:
            first = error.errors[0]
            # sqlglot's description names its own classes; what stands at the place says more.
            near = first.get("highlight") or "the end"
            raise ViewRefused(
                f"this is not SQL: something is missing or misplaced near {near!r}",
                first.get("line") or 1,
                first.get("col") or 1,
            ) from None
        except SqlglotError:
            raise ViewRefused(
                "this is not SQL: a quote or a comment is not closed", *self._end()
            ) from None
        if not statements:
            raise ViewRefused("there is no SELECT in it")
        if len(statements) > 1:
            self.refuse(statements[1], "a view is one SELECT; here a second statement begins")
        statement = statements[0]
        if not isinstance(statement, exp.Query):
            self.refuse(statement, f"a view is one SELECT; this is {self.sql.split(None, 1)[0]} …")
        return statement

    def refuse(self, node: Any, reason: str) -> NoReturn:
        """ViewRefused, at the place of the first word of a node."""
        nodes = node.walk() if isinstance(node, exp.Expr) else ()
        starts = [n.meta["start"] for n in nodes if "start" in n.meta]
        raise ViewRefused(reason, *self._place(min(starts, default=0)))

    def _place(self, offset: int) -> tuple[int, int]:
        before = self.sql[:offset]
        return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1

    def _end(self) -> tuple[int, int]:
        return self._place(len(self.sql.rstrip()))
