"""Identifiers in PostgreSQL, and the names of everything that is created for a view."""

import re
from dataclasses import dataclass

from sqlglot import exp

from protocols.errors import WrongUse
from protocols.views.catalog import Relation

#: The schema of all views that are kept by rules, and of all that belongs to them.
SCHEMA = "viewsweep"
#: PostgreSQL cuts longer identifiers.
_LONGEST = 63
_LONGEST_VIEW = 32
_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")
#: PostgreSQL's reserved key words, which cannot stand as the name of a column or table.
_KEY_WORDS = """
all analyse analyze and any array as asc asymmetric authorization binary both case cast check
collate collation column concurrently constraint create cross current_catalog current_date
current_role current_schema current_time current_timestamp current_user default deferrable desc
distinct do else end except false fetch for foreign freeze from full grant group having ilike in
initially inner intersect into is isnull join lateral leading left like limit localtime
localtimestamp natural not notnull null offset on only or order outer overlaps placing primary
references returning right select session_user similar some symmetric system_user table
tablesample then to trailing true union unique user using variadic verbose when where window
with
"""
_RESERVED = frozenset(_KEY_WORDS.split())


def quoted(name: str) -> str:
    """An identifier as SQL, in quotes where it needs them."""
    if _PLAIN.fullmatch(name) and name not in _RESERVED:
        return name
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def identifier(name: str) -> exp.Identifier:
    """The same as a node."""
    return exp.to_identifier(name, quoted=quoted(name) != name)


def literal(text: str) -> str:
    """A string as SQL."""
    escaped = text.replace("'", "''")
    return f"'{escaped}'"


def in_dollars(word: str, text: str) -> str:
    """A longer text as a string of SQL."""
    while f"${word}$" in text:
        word += "_"
    return f"${word}${text}${word}$"


def table(relation: Relation) -> str:
    """A relation `source.name` is the table `name` in the schema `source`."""
    return f"{quoted(relation.source)}.{quoted(relation.name)}"


@dataclass(frozen=True)
class ViewNames:
    """The names of a view's table, functions and triggers."""

    view: str

    def __post_init__(self) -> None:
        if len(self.view.encode()) > _LONGEST_VIEW:
            raise WrongUse(
                f"the view's name {self.view!r} is longer than {_LONGEST_VIEW} bytes, so that"
                " PostgreSQL would cut the names of what belongs to it; rename the file"
            )

    @property
    def table(self) -> str:
        return f"{SCHEMA}.{quoted(self.view)}"

    @property
    def turn(self) -> str:
        """The table whose one row a transaction holds while it changes the view."""
        return self.of("turn")

    @property
    def prefix(self) -> str:
        """The beginning of the names of all its functions."""
        return f"{self.view}: "

    def of(self, part: str) -> str:
        """A function or table that belongs to the view, qualified."""
        return f"{SCHEMA}.{quoted(self.within(part))}"

    def within(self, part: str) -> str:
        """The same without its schema; the words are cut from the middle if they are too many."""
        name = f"{self.prefix}{part}"
        while len(name.encode()) > _LONGEST:
            middle = len(self.prefix) + (len(name) - len(self.prefix)) // 3
            name = name[:middle] + name[middle + 1 :]
        return name

    def trigger(self, event: str) -> str:
        return quoted(f"viewsweep {self.view}: {event}")

    def setting(self, what: str) -> str:
        """The name of a setting of the session, as a string."""
        # Settings have plain names only.
        spelled = "".join(c if c.isascii() and c.isalnum() else f"_{ord(c):x}_" for c in self.view)
        return literal(f"viewsweep.{what}_{spelled}")
