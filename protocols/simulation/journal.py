"""The record of a run: the events of its trace, the states it showed, the questions it asked.

A crash undoes all events that were not durable: deliveries after the last visible state, and the
questions of work that was not installed. Lines of text are made only when they are read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from protocols.algebra.bag import Bag
from protocols.checking import trace
from protocols.checking.tracewriting import write_trace
from protocols.exchange.mailbox import Group
from protocols.simulation.source import MemorySource


@dataclass(frozen=True)
class VisibleState:
    """A state that a reader of the view could see: its change since the state before."""

    position: int
    vector: dict[str, int]
    change: Bag | None


@dataclass(frozen=True)
class Outcome:
    """The result of a run, for its judges."""

    events: tuple[trace.Line, ...]
    states: tuple[VisibleState, ...]
    #: The number of questions by the position that they were asked for.
    queries: dict[int, int]
    #: The number of questions that the protocol saved, by position.
    skipped: dict[int, int]
    #: The number of questions that a copy answered, by position; no source was asked.
    copied: dict[int, int]
    #: The number of answers that differed from the relation at the position they were for.
    concurrent: dict[int, int]
    #: The sources at the end, which remember all their versions.
    sources: Mapping[str, MemorySource]
    #: The number of crashes.
    crashes: int = 0
    #: The choices made; a schedule with them repeats the run.
    choices: tuple[int, ...] = ()
    #: The further views of the run.
    beside: tuple["Outcome", ...] = ()

    @cached_property
    def lines(self) -> tuple[bytes, ...]:
        """The trace, line by line."""
        return tuple(write_trace(self.events))

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """The groups delivered at the positions 1, 2, …"""
        groups: list[list[tuple[str, int]]] = []
        for event in self.events:
            if isinstance(event, trace.DeliverLine) and event.position > 0:
                if event.position > len(groups):
                    groups.append([])
                groups[-1].append((event.source, event.version))
        return tuple(map(tuple, groups))


@dataclass
class Journal:
    """The record of a running run; its fields are those of the outcome."""

    events: list[trace.Line]
    states: list[VisibleState] = field(default_factory=list)
    queries: dict[int, int] = field(default_factory=dict)
    skipped: dict[int, int] = field(default_factory=dict)
    copied: dict[int, int] = field(default_factory=dict)
    concurrent: dict[int, int] = field(default_factory=dict)
    #: The number of the last question; never given twice.
    last_id: int = 0

    @property
    def position(self) -> int:
        """The position of the last visible state; -1 before the first one."""
        return self.states[-1].position if self.states else -1

    def delivered(self, group: Group, position: int) -> None:
        for source, version in group:
            self.events.append(trace.DeliverLine(source, version, position))

    def asked(self, position: int, source: str, relation: str, keys: int) -> int:
        self.last_id += 1
        self.events.append(trace.QueryLine(self.last_id, position, source, relation, keys))
        self.queries[position] = self.queries.get(position, 0) + 1
        return self.last_id

    def answered(self, id_: int, version: int, rows: int) -> None:
        self.events.append(trace.AnswerLine(id_, version, rows))

    def answered_by_a_copy(self, position: int) -> None:
        self.copied[position] = self.copied.get(position, 0) + 1

    def differed(self, position: int) -> None:
        self.concurrent[position] = self.concurrent.get(position, 0) + 1

    def shown(self, state: VisibleState, skipped: int) -> None:
        changes = () if state.change is None else tuple(state.change.counts.items())
        self.events.append(trace.StateLine(state.position, state.vector, changes, skipped))
        self.states.append(state)
        self.skipped[state.position] = skipped

    def outcome(
        self,
        delivered: dict[str, int],
        sources: Mapping[str, MemorySource],
        choices: Sequence[int],
        crashes: int = 0,
    ) -> Outcome:
        """The whole record, once the run has ended with this vector."""
        self.events.append(trace.EndLine(delivered))
        return Outcome(
            tuple(self.events),
            tuple(self.states),
            self.queries,
            self.skipped,
            self.copied,
            self.concurrent,
            sources,
            crashes,
            tuple(choices),
        )

    def undo(self) -> list[Group]:
        """Undoes the events that a crash loses; returns the undone deliveries, in their order."""
        durable = self.position
        undone: dict[int, list[tuple[str, int]]] = {}
        done = {event.id for event in self.events if isinstance(event, trace.AnswerLine)}
        asked = (event for event in self.events if isinstance(event, trace.QueryLine))
        lost = {query.id for query in asked if query.position > durable or query.id not in done}
        kept: list[trace.Line] = []
        for event in self.events:
            match event:
                case trace.DeliverLine(source, version, position) if position > max(durable, 0):
                    undone.setdefault(position, []).append((source, version))
                case trace.QueryLine(id_, position) if id_ in lost:
                    self.queries[position] -= 1
                case trace.AnswerLine(id_) if id_ in lost:
                    pass
                case _:
                    kept.append(event)
        self.events = kept
        self.queries = {p: number for p, number in self.queries.items() if number}
        self.concurrent = {p: n for p, n in self.concurrent.items() if p <= durable}
        self.copied = {p: n for p, n in self.copied.items() if p <= durable}
        return [tuple(undone[position]) for position in sorted(undone)]
