"""What the engines have in common: a burst goes in, figures and rows come out.

An engine is judged by others (bench/sidebyside.py): it hands over what it arrived at and some of
the states that a reader could have seen on the way.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import polars as pl

from bench.burst import Burst


@dataclass(frozen=True)
class Place:
    """Where an engine works."""

    #: Its own, empty at first.
    directory: Path
    #: The Kafka broker; asked for by the engines that need one.
    bootstrap: Callable[[], str]
    say: Callable[[str], None]


@dataclass(frozen=True)
class Outcome:
    """What an engine did with a burst."""

    #: From the moment when the whole burst was there to the moment when the result was.
    seconds: float
    updates: int
    #: The view at the end: its columns and `_count`; None if it does not arrive at one.
    rows: pl.DataFrame | None
    #: States that could be seen on the way, in the same form.
    states: list[pl.DataFrame] = field(default_factory=list)
    #: Of all processes together, sources and their databases included, the broker not.
    peak_rss_bytes: int | None = None
    #: Rows of base relations that the engine holds copies of.
    base_rows_kept: int = 0
    #: Whether modifications and deletions were left out because the engine cannot take them.
    inserts_only: bool = False
    p50_ms: float | None = None
    p99_ms: float | None = None
    #: The SQL of another view than the burst's, if it kept another one.
    sql: str | None = None
    #: For another view: the vector (source → version) that each of the states is said to belong to.
    vectors: list[dict[str, int]] = field(default_factory=list)
    #: Seconds by step, where the engine says so.
    steps: dict[str, float] = field(default_factory=dict)
    #: Of the job alone (Python and JVM), where there is one.
    job_peak_rss_bytes: int | None = None


class Engine(Protocol):
    """One way to keep the view."""

    @property
    def name(self) -> str: ...

    @property
    def about(self) -> str:
        """One line: what it is, and what it guarantees."""
        ...

    def missing(self) -> str | None:
        """None when it can run here, else the command that installs it."""
        ...

    def measure(self, burst: Burst, place: Place) -> Outcome:
        """Takes the burst once."""
        ...
