"""Checks of JSON objects that come from outside."""

from collections.abc import Collection, Mapping
from typing import Any

from protocols.errors import WrongUse


def refuse_unknown_fields(place: str, form: Mapping[str, Any], known: Collection[str]) -> None:
    """Raises WrongUse for an unknown field: a typing error, or meant for another version."""
    for field in form:
        if field not in known:
            raise WrongUse(f"{place}: unknown field {field!r}; known fields: {', '.join(known)}")
