"""Our engine without Kafka and Delta: the protocol, the mailbox, and sources in this process.

The sources are Polars frames with all updates of the burst from the start, so every answer contains
updates that the engine has to take out again.
"""

import time
from collections.abc import Sequence

import numpy as np
import polars as pl

from bench.burst import Burst
from protocols.algebra.delta import COUNT, POSITION
from protocols.algebra.frame import Frame
from protocols.algebra.framelog import FrameLog
from protocols.exchange.mailbox import Mailbox
from protocols.exchange.protocol import Install, here
from protocols.exchange.questions import Query, Question, Snapshot
from protocols.exchange.together import finish
from protocols.maintenance.registry import protocol
from protocols.maintenance.tree_sweep import contents
from protocols.operators.memory import Memories
from protocols.views.sql import parse_view
from protocols.views.tree import TreeView


class LocalSources:
    """The sources' relations after the whole burst."""

    def __init__(self, burst: Burst) -> None:
        self._rows = {base.relation: base.final for base in burst.bases}
        self._version = burst.share
        self.forget()

    def forget(self) -> None:
        """Resets the counters."""
        #: The work so far: questions, bytes of keys and rows in columns, and the seconds (of the
        #: clock, of the CPU) that the answers took.
        self.questions = 0
        self.bytes = 0
        self.seconds = 0.0
        self.cpu_seconds = 0.0

    def ask(self, questions: Sequence[Question[Frame]]) -> list[Snapshot[Frame]]:
        begun, busy = time.perf_counter(), time.process_time()
        answers = [self._answer(each) for each in questions if isinstance(each, Query)]
        self.seconds += time.perf_counter() - begun
        self.cpu_seconds += time.process_time() - busy
        self.questions += len(answers)
        return answers

    def _answer(self, query: Query[Frame]) -> Snapshot[Frame]:
        rows, keys = self._rows[query.relation], query.keys or ()
        found = [rows.join(k.data, on=list(k.columns), how="semi") for k in keys]
        if query.keys is None:
            found = [rows]
        once = found[0] if len(found) == 1 else pl.concat(found).unique()
        answer = once.select(*query.columns, pl.lit(1, pl.Int64).alias(COUNT))
        sent = [*(k.data for k in keys), answer]
        self.bytes += sum(int(each.drop(COUNT).estimated_size()) for each in sent)
        return Snapshot(Frame(answer), self._version)


class EngineAlone:
    """One view kept over a burst, batch by batch."""

    def __init__(self, burst: Burst, sql: str | None = None) -> None:
        """Keeps the burst's view, or another one over its relations."""
        catalog = burst.workload.catalog
        self._view = parse_view("bench", burst.view.sql if sql is None else sql, catalog)
        #: The sources of the view's relations, one relation at each.
        self.names = self._view.sources
        self.updates = burst.share * len(self.names)
        self.sources = LocalSources(burst)
        logs = {relation: FrameLog() for relation in self._view.relations}
        self._mailbox = Mailbox[Frame](logs, dict.fromkeys(self.names, 0))
        for base in burst.bases:
            if base.relation in logs:
                changes = {base.relation: base.changes}
                self._mailbox.receive(base.relation.source, burst.share, changes)
        memories = Memories()
        if isinstance(self._view, TreeView):
            finish(contents(self._view, self._mailbox, 0, memories=memories), self.sources.ask)
            self.sources.forget()
        entry = protocol("batched-sweep")
        self._protocol = entry.begin_with(self._view, self._mailbox, _nothing, memories)

    def deliver(self, upto: int) -> None:
        """Delivers positions up to this one: a version of each source in turn."""
        arrivals = np.arange(self._mailbox.last_position, upto)
        versions, places = np.divmod(arrivals, len(self.names))
        self._mailbox.deliver_each(self.names, places, versions + 1)

    def vector_at(self, position: int) -> dict[str, int]:
        """The versions at a position of this order of delivery."""
        whole, more = divmod(position, len(self.names))
        return {name: whole + (place < more) for place, name in enumerate(self.names)}

    def sweep(self) -> pl.DataFrame:
        """Sweeps everything delivered; the changes of the view with their positions."""
        work = self._protocol.begin()
        assert work is not None
        [install] = finish(here(work), self.sources.ask)
        self._mailbox.forget(self._mailbox.last_position)
        return self._placed(install)

    def _placed(self, install: Install[Frame]) -> pl.DataFrame:
        names = [*self._view.schema, POSITION, COUNT]
        if install.change is None:
            return pl.DataFrame(schema=dict.fromkeys(names, pl.Int64()))
        return install.change.data.select(names)


def _nothing() -> Frame:
    raise AssertionError("the batched sweep never looks at the rows of the view")
