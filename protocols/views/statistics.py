"""The sizes of relations, as sources estimate them or as a catalog states them.

{"columns": …, "statistics": {"rows": 80000000, "distinct": {"year": 4}}}
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from protocols.errors import WrongUse
from protocols.forms import refuse_unknown_fields


@dataclass(frozen=True)
class Statistics:
    """The size of a relation, and the number of different values in each of its columns.

    Estimates, as databases keep them.
    """

    rows: int
    distinct: Mapping[str, int]


def statistics_from_json(
    place: str, form: Mapping[str, Any], columns: Collection[str]
) -> Statistics | None:
    """Reads `statistics` in the JSON form of a relation; None if there are none."""
    given = form.get("statistics")
    if given is None:
        return None
    place = f"{place}: statistics"
    if not isinstance(given, Mapping):
        raise WrongUse(f'{place}: must be an object with "rows" and "distinct", not {given!r}')
    refuse_unknown_fields(place, given, ("rows", "distinct"))
    distinct = given.get("distinct", {})
    if not isinstance(distinct, Mapping):
        raise WrongUse(
            f'{place}: "distinct" must map each column to its number of distinct values, not'
            f" {distinct!r}"
        )
    for column in distinct:
        if column not in columns:
            there = ", ".join(columns)
            raise WrongUse(f"{place}: there is no column {column!r}; choose one of: {there}")
    counts = {column: _count(place, f"distinct.{column}", distinct[column]) for column in distinct}
    return Statistics(_count(place, "rows", given.get("rows")), counts)


def statistics_in(sources: Mapping[str, Any]) -> dict[str, Statistics]:
    """`source.relation` → its statistics, from the valid "sources" part of a scenario."""
    found = {
        f"{source}.{name}": statistics_from_json(f"relation {source}.{name}", form, form["columns"])
        for source, body in sources.items()
        for name, form in body["relations"].items()
    }
    return {relation: known for relation, known in found.items() if known is not None}


def _count(place: str, what: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise WrongUse(f"{place}: {what} must be a whole number of at least 0, not {value!r}")
    return value
