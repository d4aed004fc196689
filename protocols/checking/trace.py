"""The trace: the events of a run, line by line, in the order in which they happened.

A run of the simulator and a live run write the same JSON Lines:

    run      the protocol, the view, the sources with their initial rows         (first line, once)
    commit   a source committed a transaction; versions are dense from 1
    deliver  the transaction reached the warehouse and got its position
    query    the warehouse asked a source about a relation (`*`: a join of several), for a position
    answer   … and got rows, evaluated at a version of that source
    state    the view became visible: its change since the state before, the vector it claims
    end      the delivered versions when the run stopped                          (last line)

Positions are 1, 2, …, one per transaction; the parts of a global transaction share one. `deliver`
lines with position 0 belong to the first state already: a live view was loaded when its sources
stood at later versions. Keys that this file does not know are ignored, so that a trace can say more
than the checker reads.

Here are the lines as data; `tracewriting.py` writes them to a file and `tracereading.py` reads one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from protocols.views.catalog import Catalog
from protocols.views.dialects import Dialect

Row = tuple[Any, ...]

#: Takes the place of a query's relation: the source evaluates a join of its relations.
JOINT = "*"


@dataclass(frozen=True, slots=True)
class SignedRow:
    """A row of a relation and the number that came (positive) or went (negative)."""

    relation: str
    row: Row
    count: int


@dataclass(frozen=True)
class RunLine:
    protocol: str
    view: str
    catalog: Catalog
    initial: Mapping[tuple[str, str], tuple[Row, ...]]
    seed: int | None = None
    dialect: Dialect | None = None
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class CommitLine:
    source: str
    version: int
    changes: tuple[SignedRow, ...]
    global_id: str | None = None
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class DeliverLine:
    source: str
    version: int
    position: int
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class QueryLine:
    id: int
    position: int
    source: str
    relation: str
    keys: int = 0
    bytes: int = 0
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class AnswerLine:
    id: int
    version: int
    rows: int = 0
    bytes: int = 0
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class StateLine:
    """`changes` are (row in JSON form, count) since the state before.

    `skipped` questions were not asked because a partial change had become empty (ours; optional).
    """

    position: int
    vector: Mapping[str, int]
    changes: tuple[tuple[Row, int], ...]
    skipped: int = 0
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class EndLine:
    delivered: Mapping[str, int]
    line: int = field(default=0, compare=False)


Line = RunLine | CommitLine | DeliverLine | QueryLine | AnswerLine | StateLine | EndLine


@dataclass(frozen=True)
class Trace:
    """All lines, in their order; `remarks` are oddities that do not keep it from being read."""

    lines: tuple[Line, ...]
    remarks: tuple[str, ...] = ()

    @cached_property
    def run(self) -> RunLine:
        first = self.lines[0]
        assert isinstance(first, RunLine)
        return first

    @cached_property
    def commits(self) -> tuple[CommitLine, ...]:
        return tuple(line for line in self.lines if isinstance(line, CommitLine))

    @cached_property
    def delivers(self) -> tuple[DeliverLine, ...]:
        return tuple(line for line in self.lines if isinstance(line, DeliverLine))

    @cached_property
    def queries(self) -> tuple[QueryLine, ...]:
        return tuple(line for line in self.lines if isinstance(line, QueryLine))

    @cached_property
    def answers(self) -> tuple[AnswerLine, ...]:
        return tuple(line for line in self.lines if isinstance(line, AnswerLine))

    @cached_property
    def states(self) -> tuple[StateLine, ...]:
        return tuple(line for line in self.lines if isinstance(line, StateLine))

    @property
    def end(self) -> EndLine | None:
        last = self.lines[-1]
        return last if isinstance(last, EndLine) else None


def shown_row(row: Sequence[Any]) -> str:
    """A row in the form of findings: (1, 'p', NULL)."""
    return f"({', '.join('NULL' if value is None else _shown(value) for value in row)})"


def _shown(value: Any) -> str:
    return repr(value) if isinstance(value, str | bool | int | float) else str(value)
