"""Checks the status that a query server sends.

    {"source": "shop", "version": 7, "relations": {"item": {"columns": {…}, "key": […]}}, …}

`published`, `topic`, `indexes`, `last_global`, `identity`, `history`, `histories` and `reads` are
optional.
Other fields are refused: an unknown field may change the meaning of the others.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args

import orjson

from protocols.errors import SourceViolation, WrongUse
from protocols.exchange.inclusion import Reads
from protocols.forms import refuse_unknown_fields
from protocols.views.catalog import relation_from_json
from sources.history import digest_from_text

_LAST_VERSION = 2**63 - 1
_Test = Callable[[Any], bool]


def _is_version(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _LAST_VERSION


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_text_or_nothing(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _is_object(value: Any) -> bool:
    return isinstance(value, Mapping)


def _is_digest(value: Any) -> bool:
    try:
        return digest_from_text(value) is not None
    except ValueError:
        return False


def _is_promise(value: Any) -> bool:
    return value in get_args(Reads)


def _holds_digests(value: Any) -> bool:
    return isinstance(value, Mapping) and all(map(_is_digest, value.values()))


def _holds_counts(value: Any) -> bool:
    return isinstance(value, Mapping) and all(map(_is_version, value.values()))


def _holds_lists(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(each, Sequence) and not isinstance(each, str) and all(map(_is_text, each))
        for each in value.values()
    )


#: Field → its check, and its meaning in words.
_NEEDED: Mapping[str, tuple[_Test, str]] = {
    "source": (_is_text, "the source's name"),
    "version": (_is_version, "the number of its last commit, from 0"),
    "relations": (_is_object, "an object with a form per relation"),
}
_OPTIONAL: Mapping[str, tuple[_Test, str]] = {
    "published": (_is_version, "the number of a commit, from 0"),
    "last_global": (_is_version, "the number of a commit, from 0"),
    "topic": (_is_text_or_nothing, "a topic's name, or null"),
    "identity": (_is_text, "a text that tells it from another source of its name"),
    "history": (_is_digest, "the digest of its history, 15 hexadecimal digits"),
    "histories": (_holds_digests, "an object with a digest per version"),
    "indexes": (_holds_lists, "an object with a list of columns per relation"),
    "reads": (_is_promise, "'versions', 'holes' or 'windows'"),
}
_ABSENT: Mapping[str, Any] = {
    "published": 0,
    "topic": None,
    "history": None,
    "histories": {},
    "reads": "versions",
}


def object_in(place: str, bodies: Sequence[bytes]) -> dict[str, Any]:
    """Parses the JSON object that a query server sent; SourceViolation if it is something else."""
    if len(bodies) != 1:
        raise SourceViolation(f"{place} has sent {len(bodies)} results instead of one. {_REPAIR}")
    try:
        form = orjson.loads(bodies[0])
    except orjson.JSONDecodeError as error:
        raise SourceViolation(f"{place} has sent invalid JSON: {error}. {_REPAIR}") from None
    if not isinstance(form, dict):
        raise SourceViolation(f"{place} has sent {_shown(form)}, not a JSON object. {_REPAIR}")
    return form


def checked_status(place: str, form: dict[str, Any]) -> dict[str, Any]:
    """The status with all its fields; SourceViolation names the one that is wrong."""
    for field, (test, meaning) in _NEEDED.items():
        _check(place, form, field, test, meaning)
    for field, (test, meaning) in _OPTIONAL.items():
        if field in form:
            _check(place, form, field, test, meaning)
    try:
        refuse_unknown_fields("what it says", form, (*_NEEDED, *_OPTIONAL))
        for name, relation in form["relations"].items():
            relation_from_json(form["source"], name, relation)
    except (WrongUse, TypeError, AttributeError) as error:
        raise SourceViolation(f"{place}: its status is wrong: {error}. {_REPAIR}") from None
    return {**_ABSENT, "indexes": {key: [] for key in form["relations"]}, **form}


def checked_outcome(place: str, form: dict[str, Any]) -> dict[str, Any]:
    """The checked outcome of a commit."""
    for field in ("committed", "version"):
        _check(place, form, field, _is_version, "a number from 0")
    _check(place, {"refusal": None, **form}, "refusal", _is_text_or_nothing, "a text, or null")
    return {"refusal": None, **form}


def checked_statistics(place: str, form: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Relation → {"rows": …, "distinct": {column: …}}; SourceViolation names what is wrong."""
    for relation, sizes in form.items():
        if not isinstance(sizes, dict):
            raise SourceViolation(
                f"{place} reports {_shown(sizes)} as the statistics of relation {relation!r}; that"
                f" should be an object. {_REPAIR}"
            )
        _check(place, sizes, "rows", _is_version, "the number of its rows, from 0")
        _check(place, sizes, "distinct", _holds_counts, "an object with a number per column")
    return form


def _check(place: str, form: Mapping[str, Any], field: str, test: _Test, meaning: str) -> None:
    if field not in form:
        raise SourceViolation(f"{place} does not report {field!r} ({meaning}). {_REPAIR}")
    if not test(form[field]):
        raise SourceViolation(
            f"{place} reports {field!r} as {_shown(form[field])}; it should be {meaning}. {_REPAIR}"
        )


def _shown(value: Any) -> str:
    text = orjson.dumps(value).decode()
    return text if len(text) < 80 else text[:80] + " …"


_REPAIR = "Repair the query server, or its address; then the same command resumes"
