"""The updates that a view holds back because parts of global transactions are missing.

A part that never comes stops its sources for this view: their topics are still read, and nothing
more of them is shown. So a job says what waits, since when and for which source.
"""

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from protocols.exchange.holdback import HoldBack, Incomplete

#: A message names at most so many incomplete transactions.
_NAMED = 3


@dataclass(frozen=True)
class Waiting:
    """A global transaction with missing parts."""

    id: str
    #: When the first of its parts was committed.
    since: datetime.datetime
    #: Source → the version there that is a part of it.
    here: Mapping[str, int]
    missing: tuple[str, ...]

    def __str__(self) -> str:
        here = " and ".join(
            f"{source} (version {version})" for source, version in self.here.items()
        )
        since = self.since.strftime("%Y-%m-%d %H:%M:%S UTC")
        return (
            f"global transaction {self.id!r} has the part of {here} and lacks"
            f" {' and '.join(self.missing)}, since {since}"
        )


@dataclass(frozen=True)
class HeldBack:
    """Everything that one view holds back."""

    view: str
    transactions: tuple[Waiting, ...]
    #: Source → the first and the last version held back.
    versions: Mapping[str, tuple[int, int]]

    def __str__(self) -> str:
        named = "; ".join(map(str, self.transactions[:_NAMED]))
        more = len(self.transactions) - _NAMED
        held = " and ".join(
            f"{source}'s version {first}" if first == last else f"{source}'s {first} to {last}"
            for source, (first, last) in sorted(self.versions.items())
        )
        return (
            f"view {self.view} is not up to date: {named}"
            + (f"; and {more:,} more" if more > 0 else "")
            + f". Held back until then: {held}"
        )

    @property
    def missing(self) -> str:
        """The sources whose parts are missing."""
        return ", ".join(sorted({source for each in self.transactions for source in each.missing}))

    def to_json(self) -> dict[str, object]:
        return {
            "view": self.view,
            "transactions": [
                {
                    "global": each.id,
                    "since": each.since.isoformat(),
                    "here": dict(each.here),
                    "missing": list(each.missing),
                }
                for each in self.transactions
            ],
            "versions": {source: list(span) for source, span in self.versions.items()},
        }


def held_back(
    view: str, held: HoldBack, committed_at: Callable[[str, int], int]
) -> HeldBack | None:
    """The updates held back, if any; `committed_at` gives a version's commit time (ms)."""
    if not held.waiting():
        return None

    def told(each: Incomplete) -> Waiting:
        milliseconds = min(committed_at(*part) for part in each.here.items())
        since = datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.UTC)
        return Waiting(each.id, since, each.here, each.missing)

    return HeldBack(view, tuple(map(told, held.incomplete())), held.held_back())
