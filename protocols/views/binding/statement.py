"""The text of a view, and places in it.

DuckDB's parser decides whether the text is SQL, and where it fails. sqlglot, which forgives much,
then gives its meaning.
"""

import re
from functools import cache
from typing import NoReturn

import duckdb
import orjson
import sqlglot
from sqlglot import TokenType, exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.parsers.duckdb import DuckDBParser

from protocols.errors import ViewRefused
from protocols.views.dialects import Dialect

_WHAT = "a view is one query, SELECT … FROM …"
#: The name of a function and the text that may stand between it and its first value.
_CALL = re.compile(r"\w+\s*\(\s*(?:DISTINCT\s+)?$", re.IGNORECASE)


#: Longer nodes are told in DuckDB's spelling; others may have so many words that have no place.
_SHORT, _MOST_WORDS = 200, 10


class _Parser(DuckDBParser):
    """Tells `+ x` from `x`, as DuckDB does when it looks for grouping expressions."""

    UNARY_PARSERS = {  # noqa: RUF012
        **DuckDBParser.UNARY_PARSERS,
        TokenType.PLUS: lambda parser: exp.Paren(this=parser._parse_unary()),
    }


class _Dialect(DuckDB):
    Parser = _Parser


class Text:
    """A view's SQL; each refusal of a part names its place."""

    def __init__(self, sql: str, dialect: Dialect | None = None) -> None:
        self.sql = sql
        self.dialect = dialect

    def query(self) -> exp.Query:
        """The one statement that the text has to be."""
        self._refuse_no_sql()
        try:
            statements = [s for s in sqlglot.parse(self.sql, read=_Dialect) if s is not None]
        except SqlglotError as error:
            self._refuse_dialect(error)
        statement = statements[0]
        if not isinstance(statement, exp.Query):
            self._refuse_at(self._first, f"{_WHAT}; this is {self._word(self._first)}")
        return statement

    def refuse(self, node: exp.Expr, reason: str) -> NoReturn:
        """Raises ViewRefused at the place of the first word of a node.

        Where the reason has the node in DuckDB's spelling, it is told as the text has it.
        """
        spelled = node.sql("duckdb")
        if spelled in reason and len(spelled) < _SHORT:
            reason = reason.replace(spelled, self._written(node) or spelled, 1)
        self._refuse_at(self._offset(node), reason)

    def refuse_nesting(self) -> NoReturn:
        """Refuses a text that is nested too deeply to read."""
        reason = "this is nested too deeply; write it in steps, as queries in WITH"
        self._refuse_at(self._deepest(), reason)

    # -- texts that are not SQL --------------------------------------------------------------------

    def _refuse_no_sql(self) -> None:
        if "\0" in self.sql:
            self._refuse_at(self.sql.index("\0"), "a character of code 0 is here, this is not text")
        with _database().cursor() as database:
            try:
                statements = database.extract_statements(self.sql)
            except duckdb.Error as error:
                self._refuse_as_duckdb(str(error))
        if not statements:
            self._refuse_at(0, "there is no SELECT in it")
        if len(statements) > 1:
            second = self._after(len(statements[0].query))
            self._refuse_at(second, f"{_WHAT}; here a second statement begins")
        if statements[0].type != duckdb.StatementType.SELECT:
            self._refuse_at(self._first, f"{_WHAT}; this is {self._word(self._first)}")

    def _refuse_dialect(self, error: SqlglotError) -> NoReturn:
        """Refuses syntax that DuckDB reads and sqlglot does not."""
        told = error.errors[0] if isinstance(error, ParseError) else {}
        near = told.get("highlight") or ""
        reason = f"only DuckDB has the syntax near {near!r}; write it in plain SQL"
        # sqlglot names the last letter of a word.
        column = (told.get("col") or 1) - max(len(near) - 1, 0)
        raise ViewRefused(reason, told.get("line") or 1, max(column, 1))

    def _refuse_as_duckdb(self, error: str) -> NoReturn:
        told = orjson.loads(error[error.index("{") :])
        reason = told["exception_message"]
        if "depth limit" in reason:
            self.refuse_nesting()
        before = self.sql.encode()[: int(told.get("position", 0))]
        self._refuse_at(len(before.decode(errors="ignore")), f"this is not SQL: {reason}")

    # -- words -----------------------------------------------------------------------------------

    def _written(self, node: exp.Expr) -> str | None:
        """The fewest words of the text that mean just this node; None if they are not found."""
        places = [each.meta for each in node.walk() if "start" in each.meta]
        if not places:
            return None
        words = sqlglot.tokenize(self.sql, read=_Dialect)
        first, last = min(p["start"] for p in places), max(p["end"] for p in places)
        low = max(n for n, word in enumerate(words) if word.start <= first)
        high = min(n for n, word in enumerate(words) if word.end >= last)
        for more in range(_MOST_WORDS):
            for left in range(min(more, low) + 1):
                some = words[low - left : high + more - left + 1]
                text = self.sql[some[0].start : some[-1].end + 1]
                if self._means(text, [word.text for word in some], node):
                    return " ".join(text.split())
        return None

    def _means(self, text: str, words: list[str], node: exp.Expr) -> bool:
        if words.count("(") != words.count(")"):
            # sqlglot forgives that.
            return False
        try:
            return sqlglot.parse_one(text, read=_Dialect) == node
        except SqlglotError:
            return False

    # -- places ----------------------------------------------------------------------------------

    @property
    def _first(self) -> int:
        return self._after(0)

    def _after(self, offset: int) -> int:
        """The start of the first word after a place, comments skipped."""
        blank = re.compile(r"(?:[\s;(]+|--[^\n]*|/\*.*?\*/)*", re.DOTALL)
        found = blank.match(self.sql, offset)
        return found.end() if found else offset

    def _word(self, offset: int) -> str:
        found = re.compile(r"\w+|\S").match(self.sql, offset)
        return found[0].upper() if found else "empty"

    def _offset(self, node: exp.Expr) -> int:
        starts = [each.meta["start"] for each in node.walk() if "start" in each.meta]
        if not starts:
            return self._offset_by_word(node)
        called = isinstance(node, exp.AggFunc) and _CALL.search(self.sql[: min(starts)])
        return called.start() if called else min(starts)

    def _offset_by_word(self, node: exp.Expr) -> int:
        """Finds a word like NULL, for which sqlglot notes no place, after the nodes before it."""
        before = 0
        for other in node.root().dfs():
            if other is node:
                break
            before = max(before, other.meta.get("end", -1) + 1)
        word = self._word_of(node)
        found = re.compile(re.escape(word), re.IGNORECASE).search(self.sql, before)
        if found:
            return found.start()
        return self._offset(node.parent) if node.parent else 0

    def _word_of(self, node: exp.Expr) -> str:
        found = re.search(r"\w+|\S", node.sql("duckdb"))
        return found[0] if found else " "

    def _deepest(self) -> int:
        """The place where the most parentheses are open."""
        level = most = place = 0
        for offset, character in enumerate(self.sql):
            level += (character == "(") - (character == ")")
            if level > most:
                most, place = level, offset
        return place

    def _refuse_at(self, offset: int, reason: str) -> NoReturn:
        before = self.sql[:offset]
        line, column = before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1
        raise ViewRefused(reason, line, column)


@cache
def _database() -> duckdb.DuckDBPyConnection:
    """The database that parses all texts; it does nothing else."""
    database = duckdb.connect(config={"threads": 1})
    database.execute("SET GLOBAL errors_as_json = true")
    return database
