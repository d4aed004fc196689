"""The growth of our engine's costs: with the batch, the base and the number of relations.

    POLARS_MAX_THREADS=1 python -m bench.curves [--quick] [--into docs/costs.svg]

Counts (questions, bytes) are exact. Times are CPU times (`process_time`) of the engine alone,
medians of interleaved repeats. The sources' time to find the rows is drawn apart, because here they
are plain columns without an index.
"""

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Annotated

import orjson
import polars as pl
import typer
from rich.console import Console

from bench.burst import Burst, BurstSettings
from bench.engines.alone import EngineAlone
from infra.charts import Chart, drawn
from protocols.views.jointree import queries_per_batch

_SHAPES = ("chain4", "star4", "tree5")
_RELATIONS = tuple(f"chain{n}" for n in range(2, 9))
#: A burst has so many of the largest batches, after one that warms up and does not count.
_BATCHES = 4
#: When the batch is varied, small ones are repeated up to so many updates.
_UPDATES = 400


@dataclass(frozen=True)
class BatchCost:
    """The cost of a number of batches."""

    workload: str
    base_rows: int
    batch: int
    batches: int
    #: The questions of the batch with the most of them, and the bound.
    most_questions: int
    bound: int
    bytes_per_update: float
    engine_us_per_update: float
    source_us_per_update: float


def cost(burst: Burst, batch: int, batches: int | None = None) -> BatchCost:
    """Sweeps so many batches of this size, or all of the burst."""
    engine = EngineAlone(burst)
    _one_batch(engine, batch, 1)
    asked = engine.sources
    bytes_before, cpu_before = asked.bytes, asked.cpu_seconds
    most, begun = 0, time.process_time()
    batches = batches or burst.updates // batch - 1
    for number in range(2, batches + 2):
        before = asked.questions
        _one_batch(engine, batch, number)
        most = max(most, asked.questions - before)
    at_sources = asked.cpu_seconds - cpu_before
    updates = batches * batch
    return BatchCost(
        burst.settings.workload,
        burst.settings.base_rows,
        batch,
        batches,
        most,
        queries_per_batch(burst.view),
        (asked.bytes - bytes_before) / updates,
        1e6 * (time.process_time() - begun - at_sources) / updates,
        1e6 * at_sources / updates,
    )


def _one_batch(engine: EngineAlone, batch: int, number: int) -> None:
    engine.deliver(number * batch)
    engine.sweep()


@dataclass(frozen=True)
class Sizes:
    """The sizes of a measurement."""

    batches: tuple[int, ...] = (1, 10, 100, 1_000, 10_000)
    bases: tuple[int, ...] = (100_000, 1_000_000, 10_000_000)
    base: int = 1_000_000
    #: The batches with which the base is varied. In the smallest batch few updates meet each other
    #: even in the smallest base. Updates of a larger batch share keys, the more the smaller the
    #: base is, which makes small bases look cheap.
    base_batches: tuple[int, ...] = (1_000, 10_000)
    #: The batch with which the number of relations is varied.
    batch: int = 10_000
    repeats: int = 3


QUICK = Sizes((1, 10, 100), (2_000, 4_000, 8_000), 4_000, (10, 100), 100, 1)


def by_batch(sizes: Sizes) -> dict[str, list[BatchCost]]:
    """Shape → the costs at each size of a batch."""
    found: dict[str, list[BatchCost]] = {}
    for shape in _SHAPES:
        updates = sizes.batches[-1] * (_BATCHES + 1)
        burst = Burst(BurstSettings(shape, base_rows=sizes.base, updates=updates))
        found[shape] = [cost(burst, each, _as_many(each)) for each in sizes.batches]
    return found


def _as_many(batch: int) -> int:
    return max(_BATCHES, _UPDATES // batch)


def by_base(sizes: Sizes) -> dict[int, list[BatchCost]]:
    """Size of a batch → the costs at each size of the base."""
    settings = [BurstSettings("chain4", base_rows=base) for base in sizes.bases]
    bursts = _bursts(settings, sizes.base_batches[-1])
    return {batch: _medians(bursts, batch, sizes.repeats) for batch in sizes.base_batches}


def by_relations(sizes: Sizes) -> list[BatchCost]:
    """The costs for chains of each length.

    The updates of each relation take their own path through the others: n(n - 1) legs. The more
    relations there are, the fewer rows of a batch each leg has. So the fixed cost of a leg bends
    the curve upwards a little; with larger batches it is straighter.
    """
    settings = [BurstSettings(name, base_rows=sizes.base) for name in _RELATIONS]
    return _medians(_bursts(settings, sizes.batch), sizes.batch, sizes.repeats)


def _bursts(settings: Sequence[BurstSettings], batch: int) -> list[Burst]:
    return [Burst(replace(each, updates=batch * (_BATCHES + 1))) for each in settings]


def _medians(bursts: Sequence[Burst], batch: int, repeats: int) -> list[BatchCost]:
    rounds = [[cost(burst, batch) for burst in bursts] for _ in range(repeats)]
    return [
        replace(
            runs[0],
            engine_us_per_update=median(run.engine_us_per_update for run in runs),
            source_us_per_update=median(run.source_us_per_update for run in runs),
        )
        for runs in zip(*rounds, strict=True)
    ]


def charts(
    batches: Mapping[str, Sequence[BatchCost]],
    bases: Mapping[int, Sequence[BatchCost]],
    relations: Sequence[BatchCost],
) -> list[Chart]:
    """The plots."""
    asked: dict[str, Sequence[tuple[float, float]]] = {
        shape: [(c.batch, c.most_questions) for c in costs] for shape, costs in batches.items()
    }
    asked |= {
        f"{shape}: n + I - 1": [(c.batch, c.bound) for c in costs]
        for shape, costs in batches.items()
    }
    sent = {
        shape: [(c.batch, c.bytes_per_update) for c in costs] for shape, costs in batches.items()
    }
    of_base = {
        f"{name}, {size:,} at once": points
        for size, costs in bases.items()
        for name, points in _times(costs).items()
    }
    size = f"batches of {relations[0].batch:,}"
    return [
        Chart("Questions per batch", "updates in the batch", "questions", asked),
        Chart("Bytes per update", "updates in the batch", "bytes of keys and rows", sent),
        Chart("Cost against base size", "base rows", "CPU µs per update", of_base),
        Chart(
            f"Cost against n, {size}",
            "relations in the chain (n)",
            "CPU µs per update",
            _times(relations, by_name=True),
        ),
    ]


def _times(
    costs: Sequence[BatchCost], by_name: bool = False
) -> dict[str, list[tuple[float, float]]]:
    def x(cost: BatchCost) -> float:
        return int(cost.workload[-1]) if by_name else cost.base_rows

    return {
        "engine": [(x(each), each.engine_us_per_update) for each in costs],
        "sources": [(x(each), each.source_us_per_update) for each in costs],
    }


def main(
    into: Annotated[Path | None, typer.Option(help="Draw the plots into this file (SVG).")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes.")] = False,
) -> None:
    """Measure the growth of costs; print the figures as JSON."""
    sizes = QUICK if quick else Sizes()
    batches, bases, relations = by_batch(sizes), by_base(sizes), by_relations(sizes)
    if into is not None:
        into.write_text(drawn(charts(batches, bases, relations)))
        Console(stderr=True).print(f"{into}: questions, bytes and costs", highlight=False)
    forms = {
        "threads": pl.thread_pool_size(),
        "by_batch": {shape: [asdict(c) for c in costs] for shape, costs in batches.items()},
        "by_base": {str(size): [asdict(c) for c in costs] for size, costs in bases.items()},
        "by_relations": [asdict(c) for c in relations],
    }
    sys.stdout.write(orjson.dumps(forms, option=orjson.OPT_INDENT_2).decode() + "\n")


if __name__ == "__main__":
    typer.run(main)
