"""The messages of a running job, each with its subject.

A message is its words, so whoever only shows it needs nothing else; a log for programs has the rest
as fields of their own.
"""

from typing import Any


class Told(str):
    """A message with its subject: a view, a source, a position, and figures by name."""

    __slots__ = ("about",)
    about: dict[str, Any]

    def __new__(
        cls,
        words: str,
        *,
        view: str | None = None,
        source: str | None = None,
        position: int | None = None,
        **figures: Any,
    ) -> "Told":
        told = super().__new__(cls, words)
        subject = {"view": view, "source": source, "position": position, **figures}
        told.about = {name: each for name, each in subject.items() if each is not None}
        return told


def fields_of(message: str) -> dict[str, Any]:
    """The subject of a message; nothing for one that is only words."""
    return message.about if isinstance(message, Told) else {}
