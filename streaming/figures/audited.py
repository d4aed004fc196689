"""The result of one audit of a view, as status, summary and command show it."""

import datetime
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from protocols.auditing.audit import Difference
from protocols.checking.trace import shown_row

#: A message names at most so many rows.
_NAMED = 3


@dataclass(frozen=True)
class Audited:
    """One audit: does the stored view hold at a position?"""

    view: str
    position: int
    vector: Mapping[str, int]
    #: When it was made, in seconds since the epoch, and how long it took.
    at: float
    seconds: float
    stretches: int
    #: The rows that were looked at, and those of the view.
    rows: int
    of: int
    questions: int
    bytes: int
    #: Rows that differ; the first of them by name, each with its table.
    wrong: int
    differences: tuple[Difference, ...]
    #: The rows that had been looked at when the first difference was found.
    first_after: int | None
    #: What kept rows from being compared, in words.
    troubles: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether nothing was found."""
        return not self.wrong and not self.troubles

    def __str__(self) -> str:
        """The finding as one sentence or a few."""
        looked = f"{self.rows:,} of {self.of:,} rows looked at, as of position {self.position:,}"
        if self.holds:
            return f"view {self.view} holds: {looked}"
        found = [f"{self.wrong:,} of {looked}, differ"] if self.wrong else []
        more = self.wrong - len(self.differences[:_NAMED])
        named = [in_words(each) for each in self.differences[:_NAMED]]
        named += [f"and {more:,} more"] if more else []
        said = [*found, *(f"{'; '.join(named)}" for _ in found), *self.troubles]
        return f"view {self.view} does not hold: {'. '.join(said)}"

    def to_json(self) -> dict[str, Any]:
        """The form of `--json` and of the status."""
        form = asdict(self)
        moment = datetime.datetime.fromtimestamp(self.at, datetime.UTC)
        return {
            "verdict": "holds" if self.holds else "differs",
            **form,
            "at": moment.isoformat(timespec="seconds"),
            "seconds": round(self.seconds, 3),
            "vector": dict(self.vector),
            "differences": [_as_json(each) for each in self.differences],
            "troubles": list(self.troubles),
        }


def audited_from(form: Mapping[str, Any]) -> Audited:
    """The audit whose `to_json` this is; the values of rows are as JSON has them."""
    known = {name: value for name, value in form.items() if name != "verdict"}
    rows = [Difference(**{**each, "row": tuple(each["row"])}) for each in form["differences"]]
    at = datetime.datetime.fromisoformat(form["at"]).timestamp()
    more = {"at": at, "differences": tuple(rows), "troubles": tuple(form["troubles"])}
    return Audited(**{**known, **more})


def in_words(difference: Difference) -> str:
    """`current` has (1, 'p') 2 times instead of once."""
    row = shown_row(difference.row)
    if not difference.stored:
        return f"{difference.table} lacks {_times(difference.due)} {row}"
    if not difference.due:
        return f"{difference.table} has {_times(difference.stored)} {row} too many"
    return f"{difference.table} has {row} {difference.stored:,} times, not {difference.due:,}"


def _times(count: int) -> str:
    return f"{count:,} x"


def _as_json(difference: Difference) -> dict[str, Any]:
    row = [v if isinstance(v, str | bool | int | float | None) else str(v) for v in difference.row]
    return {**asdict(difference), "row": row}
