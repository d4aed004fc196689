"""Something that a database or its connector lacks to be a source."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Lack:
    """Something that is missing, and the way to mend it."""

    what: str
    mend: str
    #: The table, or the column as table.column, that alone is concerned: without a view over it
    #: nothing has to be mended.
    about: str | None = None


def of_left_out(what: str, reason: str) -> Lack:
    """A table or column that no view can use; its reason may end with the statement."""
    problem, _, mend = reason.partition(": ")
    mend = mend or "leave it out of views, or cast it in the database"
    return Lack(f"{what}: {problem}", mend, what)


def of_fault(reason: str) -> Lack:
    """Something that concerns all tables; its reason ends with the statement."""
    return Lack(*reason.split(": ", 1))
