"""The inclusion of an answer on the wire: JSON in the metadata of its schema, beside `version`.

A source that answers from one version sends none. {"upto": 7, "besides": [9], "without": [6]} is a
snapshot with exceptions; {"window": [7, 9]} means that rows were read one by one between two
moments. `version` is then that of the snapshot which is made of the answer.
"""

from typing import Any

import orjson

from protocols.exchange.inclusion import Inclusion, Prefix, Window

INCLUSION = b"inclusion"
#: Exceptions are the transactions open at one moment; no database has this many.
_MOST = 100_000


class NoInclusion(ValueError):
    """The text is not a valid inclusion; the message says why."""


def encode_inclusion(inclusion: Inclusion) -> bytes:
    """Encodes an inclusion for the wire."""
    match inclusion:
        case Prefix(upto, besides, without):
            return orjson.dumps({"upto": upto, "besides": besides, "without": without})
        case Window(low, high):
            return orjson.dumps({"window": [low, high]})


def decode_inclusion(version: int, text: bytes | None) -> Inclusion:
    """Decodes the inclusion sent beside this version; NoInclusion if it is not valid."""
    if text is None:
        return Prefix(version)
    try:
        form = orjson.loads(text)
    except ValueError:
        raise NoInclusion("is not JSON") from None
    inclusion = _window(form) if isinstance(form, dict) and "window" in form else _prefix(form)
    if inclusion.version != version:
        raise NoInclusion(f"is of version {inclusion.version}, the answer of version {version}")
    return inclusion


def _window(form: dict[str, Any]) -> Window:
    ends = form["window"]
    if form.keys() != {"window"} or not _are_versions(ends) or len(ends) != 2:
        raise NoInclusion('has no "window" of two versions')
    low, high = ends
    if low > high:
        raise NoInclusion(f"is a window that ends at {high}, before it begins at {low}")
    return Window(low, high)


def _prefix(form: Any) -> Prefix:
    if not isinstance(form, dict) or form.keys() != {"upto", "besides", "without"}:
        raise NoInclusion('has no "upto", "besides" and "without", and no "window"')
    upto, besides, without = form["upto"], form["besides"], form["without"]
    if not _are_versions([upto]) or not _are_versions(besides) or not _are_versions(without):
        raise NoInclusion("has something that is not a version")
    if any(each <= upto for each in besides) or any(not 0 < each <= upto for each in without):
        raise NoInclusion(
            f"has exceptions on the wrong side of {upto}: `besides` come after it, `without` do not"
        )
    for exceptions in (besides, without):
        if sorted(set(exceptions)) != exceptions:
            raise NoInclusion("has exceptions that are not in ascending order")
    return Prefix(upto, tuple(besides), tuple(without))


def _are_versions(values: Any) -> bool:
    return (
        isinstance(values, list)
        and len(values) <= _MOST
        and all(type(each) is int and 0 <= each < 2**62 for each in values)
    )
