"""Engines that read topics and write a topic: each a program of its own in bench/peers.

It starts on topics with the base relations in them. When it has written their view, the burst
comes, all at once (feed.py), and the clock runs until the engine's last record is in its topic. Its
work is not durable unless the engine's description says so.
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import orjson
import polars as pl

from bench.burst import Burst, folded
from bench.engines.engine import EngineOutcome, EnginePlace
from bench.feed import TIME, Drain, EngineOutput, EngineTopics
from bench.memory import PeakMemory
from infra.owned import OwnedProcess
from protocols.errors import ViewsweepError

#: Names the directory of Pathway's and Flink's environments, which `make peers` creates.
PEERS_VARIABLE = "VIEWSWEEP_PEERS"
_PEERS = Path(__file__).parent.parent / "peers"
_RUNS = count(1)


@dataclass(frozen=True)
class OverTopics:
    """One program as an engine."""

    name: str
    about: str
    program: str
    #: The environment that it needs; None for ours.
    environment: str | None = None
    inserts_only: bool = False
    #: Whether a reader can tell which records belong together, so that states can be judged.
    shows_states: bool = True

    def missing(self) -> str | None:
        return None if self._python().exists() else "make peers"

    def _python(self) -> Path:
        if self.environment is None:
            return Path(sys.executable)
        home = Path(os.environ.get(PEERS_VARIABLE, ".viewsweep/peers"))
        return home.absolute() / self.environment / "bin" / "python"

    def measure(self, burst: Burst, place: EnginePlace) -> EngineOutcome:
        feed = EngineTopics(place.bootstrap(), burst, f"{self.name}-{os.getpid()}-{next(_RUNS)}")
        job = place.directory / "job.json"
        job.write_bytes(orjson.dumps(described(burst, feed, place.bootstrap())))
        place.say("the base relations are published")
        feed.publish_base()
        drain, memory = Drain(place.bootstrap(), feed, burst), PeakMemory()
        command = [str(self._python()), str(_PEERS / self.program), str(job)]
        process = OwnedProcess(self.name, command, place.directory / "log")
        try:
            with memory:
                return self._taken(burst, feed, drain, process, place, memory)
        finally:
            process.kill()
            drain.close()

    def _taken(
        self,
        burst: Burst,
        feed: EngineTopics,
        drain: Drain,
        process: OwnedProcess,
        place: EnginePlace,
        memory: PeakMemory,
    ) -> EngineOutcome:
        def alive() -> None:
            if process.ended() is not None:
                raise ViewsweepError(f"{self.name} ended:\n{process.last_words()}")

        place.say("it makes the view of the base relations")
        before = drain.until(burst.first_view.height, alive)
        place.say("the burst")
        begun = feed.publish_burst()
        truth = burst.truth_of_inserts if self.inserts_only else burst.truth
        output = drain.until(truth.height, alive)
        if not before.frames or not output.frames:
            raise ViewsweepError(f"{self.name} wrote nothing:\n{process.last_words()}")
        kept = [b.inserts_only if self.inserts_only else b.final for b in burst.bases]
        return EngineOutcome(
            output.last_stamp - begun,
            burst.insertions if self.inserts_only else burst.updates,
            folded(_placeless(before, output)),
            self._states(burst, before, output),
            memory.bytes,
            sum(rows.height for rows in kept),
            self.inserts_only,
        )

    def _states(
        self, burst: Burst, before: EngineOutput, output: EngineOutput
    ) -> list[pl.DataFrame]:
        if not self.shows_states:
            return []
        first = folded(_placeless(before))
        changes = output.changes
        return [
            folded(pl.concat([first, changes[:cut].drop(TIME)]))
            for cut in _cuts(changes, burst.settings.states)
        ]


def _placeless(*outputs: EngineOutput) -> pl.DataFrame:
    return pl.concat([frame for output in outputs for frame in output.frames]).drop(TIME)


def _cuts(changes: pl.DataFrame, number: int) -> list[int]:
    """The numbers of records after which to look: even steps, never inside one of its updates."""
    evenly = [1 + changes.height * (2 * n + 1) // (2 * number + 1) for n in range(number)]
    times = changes[TIME]
    if times.null_count():
        return evenly
    # The records of one time are next to each other.
    ends = (times != times.shift(-1)).fill_null(True).arg_true() + 1
    return [int(ends[min(int(ends.search_sorted(cut)), len(ends) - 1)]) for cut in evenly]


class Topics(Protocol):
    """Names of topics: per source, and of the output."""

    @property
    def topics(self) -> Mapping[str, str]: ...

    @property
    def out(self) -> str: ...


def described(burst: Burst, topics: Topics, bootstrap: str) -> dict[str, Any]:
    """The view and its topics, for programs that do not know viewsweep."""
    view, sql = burst.view, burst.workload.view
    for base in burst.bases:
        sql = sql.replace(f"{base.relation} ", f"{base.relation.name} ")
        sql = sql.replace(f"{base.relation}\n", f"{base.relation.name}\n")
    names = {
        atom.qualified(column): (atom, column) for atom in view.atoms for column in atom.columns
    }
    return {
        "bootstrap": bootstrap,
        "out": topics.out,
        "sql": sql,
        "relations": [
            {
                "name": base.relation.name,
                "topic": topics.topics[base.relation.source],
                **base.relation.to_json(),
            }
            for base in burst.bases
        ],
        "links": [
            {
                "of": burst.bases[of].relation.name,
                "column": f"{burst.bases[to].relation.name.removesuffix('s')}_id",
                "to": burst.bases[to].relation.name,
            }
            for of, to in burst.workload.links
        ],
        "outputs": [
            {
                "name": output.name,
                "relation": names[output.column][0].relation.name,
                "column": names[output.column][1],
            }
            for output in view.outputs
        ],
    }
