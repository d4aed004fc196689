"""Engines without Kafka and Delta: functions over a burst, each in a process of its own.

ours, engine alone      our protocol; its sources are Polars frames at their newest version
limit                   one vectorised delta join: all changes of a relation joined with the
                        other relations, which are local and do not change. Not an engine: no
                        order, no states, no compensation. Nothing made of joins can beat it
DuckDB recompute        applies a batch to copies of the relations and evaluates the view again

python -m bench.engines.inprocess NAME SETTINGS DIRECTORY
"""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import duckdb
import orjson
import polars as pl

from bench.burst import UNTIL, Burst, BurstSettings, evaluated, folded
from bench.engines.alone import EngineAlone
from bench.engines.engine import EngineOutcome, EnginePlace
from bench.memory import PeakMemory
from infra.owned import OwnedProcess
from protocols.algebra.delta import COUNT, POSITION
from protocols.algebra.framelog import VERSION
from protocols.errors import ViewsweepError
from protocols.views.catalog import Relation
from protocols.views.plan import plan
from sources.simulated.workloads import LINKED_VIEWS

_PATIENCE_SECONDS = 1800


@dataclass
class BurstRun:
    """The result of a function for the burst."""

    seconds: float
    #: None if it does not compute the view.
    rows: pl.DataFrame | None
    states: list[pl.DataFrame] = field(default_factory=list)
    steps: dict[str, float] = field(default_factory=dict)
    #: The number of updates taken, if not all; and the vectors of the states of another view.
    updates: int | None = None
    vectors: list[dict[str, int]] = field(default_factory=list)


def engine_alone(burst: Burst, view: str | None = None) -> BurstRun:
    """Sweeps the whole burst as one batch; all of it is concurrent with every answer."""
    sql = burst.workload.view_named(view)
    engine = EngineAlone(burst, sql)
    begun = time.perf_counter()
    engine.deliver(engine.updates)
    delivered = time.perf_counter()
    placed = engine.sweep()
    seconds = time.perf_counter() - begun
    steps = {"order of delivery": delivered - begun, "sources": engine.sources.seconds}
    steps["engine"] = seconds - sum(steps.values())
    at = _states(evaluated(sql, {base.relation: base.rows for base in burst.bases}), placed)
    cuts = [cut for cut in burst.cuts_of(view) if cut <= engine.updates]
    vectors = [] if view is None else [engine.vector_at(cut) for cut in cuts]
    states = [at(cut) for cut in cuts]
    return BurstRun(seconds, at(engine.updates), states, steps, engine.updates, vectors)


def _states(first: pl.DataFrame, placed: pl.DataFrame) -> Callable[[int], pl.DataFrame]:
    """The state at a position: the view before the burst and its changes up to there."""
    changes = placed.drop(POSITION)
    counted = first.with_columns(pl.lit(1, pl.Int64).alias(COUNT)).select(changes.columns)
    # Polars reads the type of DuckDB's sums as another type.
    before = counted.cast(changes.schema)
    position = placed.get_column(POSITION)
    return lambda cut: folded(pl.concat([before, changes.filter(position <= cut)]))


# ------------------------------------------------------------------------------------- the limit


def limit(burst: Burst) -> BurstRun:
    """Joins the changes of every relation with the other relations as they are at the end."""
    there = {base.relation: base.final for base in burst.bases}
    seconds = 0.0
    for atom, base in zip(burst.view.atoms, burst.bases, strict=True):
        steps = plan(burst.view, atom).steps
        full = {
            step.atom: there[step.atom.relation].select(
                pl.col(name).alias(step.atom.qualified(name)) for name in step.atom.columns
            )
            for step in steps
        }
        begun = time.perf_counter()
        rows = base.changes.rename({n: atom.qualified(n) for n in base.names})
        for step in steps:
            left, right = zip(*step.join_on, strict=True)
            rows = rows.join(full[step.atom], left_on=left, right_on=right, coalesce=False)
        rows.select(
            *(pl.col(column).alias(name) for name, column in burst.view.projection), COUNT, VERSION
        )
        seconds += time.perf_counter() - begun
    return BurstRun(seconds, None)


# ------------------------------------------------------------------------------ DuckDB recompute


def recompute(burst: Burst) -> BurstRun:
    """Deletes, inserts and evaluates, batch by batch."""
    with duckdb.connect() as database:
        for base in burst.bases:
            _make(database, base.relation, base.rows)
            database.register(f"lives_{base.relation.name}", base.history.to_arrow())
        result = BurstRun(0.0, None)
        ends = _ends(burst)
        looked_at = set(ends[:: max(1, len(ends) // burst.settings.states)])
        after = 0
        for upto in ends:
            begun = time.perf_counter()
            for base in burst.bases:
                _apply(database, base.relation, after, upto)
            database.execute(f"CREATE OR REPLACE TABLE view AS {burst.view.sql}")
            result.seconds += time.perf_counter() - begun
            if upto in looked_at:
                result.states.append(_counted(database))
            after = upto
        result.rows = _counted(database)
        return result


def _ends(burst: Burst) -> list[int]:
    """The last version of each source in each batch."""
    size = max(1, burst.settings.batch // len(burst.bases))
    return [*range(size, burst.share, size), burst.share]


def _apply(database: duckdb.DuckDBPyConnection, relation: Relation, after: int, upto: int) -> None:
    table, lives = f"{relation.source}.{relation.name}", f"lives_{relation.name}"
    columns = ", ".join(relation.column_names)
    ended = f"SELECT number FROM {lives} WHERE {UNTIL} > {after} AND {UNTIL} <= {upto}"
    database.execute(f"DELETE FROM {table} WHERE number IN ({ended})")
    written = f"revision > {after} AND revision <= {upto} AND {UNTIL} > {upto}"
    database.execute(f"INSERT INTO {table} SELECT {columns} FROM {lives} WHERE {written}")


def _make(database: duckdb.DuckDBPyConnection, relation: Relation, rows: pl.DataFrame) -> None:
    database.execute(f"CREATE SCHEMA {relation.source}")
    database.register("_rows", rows.to_arrow())
    database.execute(f"CREATE TABLE {relation.source}.{relation.name} AS FROM _rows")


def _counted(database: duckdb.DuckDBPyConnection) -> pl.DataFrame:
    found = database.sql("SELECT *, count(*) AS _count FROM view GROUP BY ALL")
    return pl.DataFrame(pl.from_arrow(found.to_arrow_table()))


# ------------------------------------------------------------------------------------- processes

FUNCTIONS: dict[str, Callable[[Burst], BurstRun]] = {
    "alone": engine_alone,
    "limit": limit,
    "recompute": recompute,
    **{view: partial(engine_alone, view=view) for view in LINKED_VIEWS},
}


@dataclass(frozen=True)
class InProcess:
    """One of the functions as an engine."""

    name: str
    about: str
    function: str
    keeps_base: bool

    def missing(self) -> str | None:
        return None

    def measure(self, burst: Burst, place: EnginePlace) -> EngineOutcome:
        settings = orjson.dumps(burst.settings.to_json()).decode()
        module = "bench.engines.inprocess"
        command = [sys.executable, "-m", module, self.function, settings, str(place.directory)]
        memory = PeakMemory()
        process = OwnedProcess(self.function, command, place.directory / "log")
        with memory:
            if process.wait(_PATIENCE_SECONDS):
                raise ViewsweepError(f"{self.name} failed:\n{process.last_words()}")
        figures = orjson.loads((place.directory / "figures.json").read_bytes())
        states = [pl.read_parquet(file) for file in sorted(place.directory.glob("state-*"))]
        rows = place.directory / "rows.parquet"
        return EngineOutcome(
            figures["seconds"],
            figures["updates"] or burst.updates,
            pl.read_parquet(rows) if rows.exists() else None,
            states,
            memory.bytes,
            sum(base.final.height for base in burst.bases) if self.keeps_base else 0,
            steps=figures["steps"],
            sql=burst.workload.view_named(self.function) if self.function in LINKED_VIEWS else None,
            vectors=figures["vectors"],
        )


def main(function: str, settings: str, directory: str) -> None:
    """Runs one function and writes its result into the directory."""
    run = FUNCTIONS[function](Burst(BurstSettings(**orjson.loads(settings))))
    place = Path(directory)
    for number, state in enumerate(run.states):
        state.write_parquet(place / f"state-{number:04}.parquet")
    if run.rows is not None:
        run.rows.write_parquet(place / "rows.parquet")
    figures = {
        "seconds": run.seconds,
        "steps": run.steps,
        "updates": run.updates,
        "vectors": run.vectors,
    }
    (place / "figures.json").write_bytes(orjson.dumps(figures))


if __name__ == "__main__":
    main(*sys.argv[1:])
