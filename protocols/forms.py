"""JSON objects as they come in from outside."""

from collections.abc import Collection, Mapping
from typing import Any

from protocols.errors import WrongUse


def refuse_unknown_fields(place: str, form: Mapping[str, Any], known: Collection[str]) -> None:
    """WrongUse for a field that nobody would read: a slip, or meant for another version."""
    for field in form:
        if field not in known:
            raise WrongUse(
                f"{place}: the field {field!r} is not known here; there are: {', '.join(known)}"
            )
