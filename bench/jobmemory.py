"""The memory that the job needs: python -m bench.jobmemory [--into docs/memory.svg]

Bursts over bases of several sizes, each in one micro-batch, and one of a million updates. Each
result is compared with DuckDB's, as in `viewsweep bench`. The figures are of the job's Python
process and JVM, without the sources, which hold the base rows.
"""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.console import Console

from bench.burst import BurstSettings
from bench.engines.path import WholePath
from bench.sidebyside import side_by_side
from infra.charts import Chart, drawn

_BASES = (100_000, 300_000, 1_000_000, 3_000_000)
_LARGE = 1_000_000
#: Takes a whole burst in one batch.
_ONE_BATCH = "records_per_batch = 2000000"


def main(
    into: Annotated[Path | None, typer.Option(help="Draw the plot into this file (SVG).")] = None,
    updates: Annotated[int, typer.Option(help="Updates over bases of each size.")] = 100_000,
    large: Annotated[int, typer.Option(help="Updates of the large burst; 0 for none.")] = _LARGE,
) -> None:
    """Measure the peak memory of the job; print the figures as JSON."""
    settings = [BurstSettings(base_rows=base, updates=updates, states=2) for base in _BASES]
    if large:
        settings.append(replace(settings[_BASES.index(1_000_000)], updates=large))
    rows = [_measured(each) for each in settings]
    if into is not None:
        bases = [row for row in rows if row["updates"] == updates]
        points = [(row["base_rows"], row["job_peak_rss_bytes"] / 2**20) for row in bases]
        title = f"Memory of the job, bursts of {updates:,} updates"
        into.write_text(drawn([Chart(title, "base rows", "MiB", {"job": points})]))
    sys.stdout.write(orjson.dumps(rows, option=orjson.OPT_INDENT_2).decode() + "\n")
    raise typer.Exit(int(not all(row["right"] and not row["wrong_states"] for row in rows)))


def _measured(settings: BurstSettings) -> dict[str, Any]:
    say = Console(stderr=True).print
    say(f"{settings.updates:,} updates over {settings.base_rows:,} base rows", highlight=False)
    # Another process reads the first state, which is large.
    engine = WholePath(job=_ONE_BATCH, restarted=True)
    report = side_by_side([engine], settings, 1, lambda words: say(f"  {words}"))
    [row] = report.to_json()["rows"]
    kept = ("right", "wrong_states", "updates_per_s", "job_peak_rss_bytes", "peak_rss_bytes")
    return {
        "base_rows": settings.base_rows,
        "updates": settings.updates,
        **{name: row[name] for name in kept},
        "failure": row["failure"],
    }


if __name__ == "__main__":
    typer.run(main)
