"""The interface of all engines: a burst goes in, figures and rows come out.

An engine does not judge itself (see bench/sidebyside.py): it hands over its result and some of the
states that a reader could have seen on the way.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import polars as pl

from bench.burst import Burst


@dataclass(frozen=True)
class EnginePlace:
    """The directory and the broker of an engine."""

    #: The engine's own, empty at first.
    directory: Path
    #: The address of the Kafka broker; called only by engines that need one.
    bootstrap: Callable[[], str]
    say: Callable[[str], None]


@dataclass(frozen=True)
class EngineOutcome:
    """The result of an engine for a burst."""

    #: From the moment when the whole burst was there to the moment of the result.
    seconds: float
    updates: int
    #: The view at the end: its columns and `_count`; None if the engine does not compute it.
    rows: pl.DataFrame | None
    #: States that could be seen on the way, in the same form.
    states: list[pl.DataFrame] = field(default_factory=list)
    #: Peak of all processes together, with sources and their databases, without the broker.
    peak_rss_bytes: int | None = None
    #: Rows of base relations that the engine holds copies of.
    base_rows_kept: int = 0
    #: Whether modifications and deletions were left out because the engine cannot take them.
    inserts_only: bool = False
    p50_ms: float | None = None
    p99_ms: float | None = None
    #: The SQL of another view than the burst's, if it kept another one.
    sql: str | None = None
    #: For another view: the vector (source → version) that each state claims.
    vectors: list[dict[str, int]] = field(default_factory=list)
    #: Seconds by step, if the engine reports them.
    steps: dict[str, float] = field(default_factory=dict)
    #: Peak of the job alone (Python and JVM), if there is one.
    job_peak_rss_bytes: int | None = None


class Engine(Protocol):
    """One way to keep the view."""

    @property
    def name(self) -> str: ...

    @property
    def about(self) -> str:
        """One line about the engine and its guarantees."""
        ...

    def missing(self) -> str | None:
        """None when it can run here, else the command that installs it."""
        ...

    def measure(self, burst: Burst, place: EnginePlace) -> EngineOutcome:
        """Runs the burst once."""
        ...
