"""One burst, swept by the driver, by one executor and by two: python -m bench.executors

All runs begin at the same first state and read the same topics. The executors are processes of
their own (Spark's `local-cluster[2,1,1024]`). Their changes have to be those of the driver, row by
row at each position, and the checker has to find the run complete. Prints the figures of each
executor, and a batch's estimated time on more of them, because our machines lack the cores:

    seconds on k executors = around + ready + sweep / k

    around   Spark's time to hand a batch out and to collect the results
    ready    every executor makes a mailbox of the whole batch: an answer may contain any of it
    sweep    the rest of a slice: it has about a k-th of the rows to sweep

Each is measured on one executor, in the last batch: its workers are warm, and no record comes after
it in the topics. The estimate for two executors is printed beside their measured time. `around`
hardly grows with the rows; so from some number of rows on, enough executors take less time than the
driver alone.
"""

import json
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import polars as pl
import pyspark
import typer

from infra.broker import which_broker
from infra.owned import OwnedProcess
from infra.progress import silent
from infra.workplace import workplace
from protocols.errors import Unreachable, ViewsweepError
from sources.wire.client import SourceClient
from streaming.local.load import Load
from streaming.local.system import VIEW, LocalSystem

#: Run → the number of executors, each with one core.
_RUNS = {"driver": 0, "one": 1, "two": 2}
_PREDICTED = (1, 2, 4, 8, 16)
#: The first one warms up.
_BATCHES = 2
_ROOT = Path(__file__).parents[1]
_PATIENCE_SECONDS = 600


def main(
    updates: Annotated[int, typer.Option(help="Transactions in each of two batches.")] = 200_000,
    scale: Annotated[int, typer.Option(help="Base rows of all relations.")] = 400_000,
    workload: Annotated[str, typer.Option(help="The workload: chain2 … chain8.")] = "chain8",
) -> None:
    """Sweep one burst on the driver and on executors, and compare."""
    load = Load(workload, 4, rate=1e6, scale=scale)
    with (
        workplace("bench") as place,
        which_broker(progress=silent) as broker,
        LocalSystem(place, broker.bootstrap, load, "batched-sweep") as system,
    ):
        _begin(system)
        _burst(system, _BATCHES * updates)
        figures = {
            name: _swept_by(system, name, executors, updates) for name, executors in _RUNS.items()
        }
        changes = _changes(system, "driver")
        same = all(changes.equals(_changes(system, name)) for name in _RUNS)
        verdict = _verdict(system)
    answer = {"same_changes": same, "verdict": verdict, "model": _model(figures), **figures}
    print(json.dumps(answer, indent=2))
    raise SystemExit(0 if same and verdict == "valid" else 1)


def _begin(system: LocalSystem) -> None:
    """Makes the first state, from which all runs go on."""
    system.make_sources()
    system.serve()
    _done(system.start("first", "run --config warehouse.toml --once"))
    system.stop_sources()


def _burst(system: LocalSystem, updates: int) -> None:
    system.load = replace(system.load, transactions=updates)
    addresses = system.serve()
    deadline = time.monotonic() + _PATIENCE_SECONDS
    for source, address in addresses.items():
        with SourceClient(address, source=source) as client:
            while client.status()["published"] < system.load.share:
                if time.monotonic() > deadline:
                    raise Unreachable(f"source {source} does not publish its burst")
                time.sleep(0.2)


def _swept_by(system: LocalSystem, name: str, executors: int, updates: int) -> dict[str, Any]:
    """Does one run under spark-submit on a copy of the first state; its summary."""
    directory = system.directory
    shutil.copytree(directory / "lake", directory / name)
    shutil.rmtree(directory / name / VIEW / "checkpoint", ignore_errors=True)
    text = (directory / "warehouse.toml").read_text().replace('"lake"', f'"{name}"')
    job = {
        "records_per_batch": updates,
        "records_per_sweep": updates,
        "executor_rows": 1 if executors else 0,
    }
    lines = [f"{knob} = {value}" for knob, value in job.items()]
    (directory / f"{name}.toml").write_text("\n".join([text, "[job]", *lines, ""]))
    master = f"--master local-cluster[{executors},1,1024]" if executors else ""
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    shell = (
        f"cd {_ROOT} && PYSPARK_PYTHON={sys.executable} {submit}"
        f" $({sys.executable} -m infra.sparksettings {master}) streaming/submit.py"
        f" --config {directory}/{name}.toml --once --summary {directory}/{name}.json"
    )
    _done(OwnedProcess(name, ["bash", "-c", shell], directory / f"{name}.log"))
    figures: dict[str, Any] = json.loads((directory / f"{name}.json").read_text())
    return figures


def _done(process: OwnedProcess) -> None:
    try:
        if process.wait(_PATIENCE_SECONDS):
            raise ViewsweepError(f"{process.name} failed:\n{process.last_words()}")
    finally:
        process.stop()


def _changes(system: LocalSystem, name: str) -> pl.DataFrame:
    found = pl.read_delta(system.directory / name / VIEW / "changes")
    return found.sort("_position", *(column for column in found.columns if column != "_position"))


def _model(figures: dict[str, Any]) -> dict[str, Any]:
    """The last batch's time, the estimates for more executors, and the size at which they pay."""
    one, two = (figures[name]["executor_batches"][-1] for name in ("one", "two"))
    slices = one["slices"]
    around = one["seconds"] - sum(each["seconds"] for each in slices)
    ready = median(each["ready"] for each in slices)
    sweep = sum(each["seconds"] - each["ready"] for each in slices)
    steps = figures["driver"]["step_seconds"]
    driver = (steps["sweep"] - steps["lookahead"]) / figures["driver"]["batches"]
    gained = {k: driver - ready - sweep / k for k in _PREDICTED}
    return {
        "positions": one["positions"],
        "driver_s": driver,
        "around_s": around,
        "ready_s": ready,
        "sweep_s": sweep,
        "predicted_s": {k: around + ready + sweep / k for k in _PREDICTED},
        "measured_on_two_s": two["seconds"],
        "pays_from_rows": {
            k: round(one["positions"] * around / gain) if gain > 0 else None
            for k, gain in gained.items()
        },
    }


def _verdict(system: LocalSystem) -> str:
    """The checker's verdict on the run on two executors."""
    _done(system.start("trace", "trace run.jsonl --config two.toml"))
    check = system.start("check", "check run.jsonl --json")
    check.wait(_PATIENCE_SECONDS)
    answer = json.loads((system.directory / "check.log").read_text().strip())
    return str(answer["verdict"])


if __name__ == "__main__":
    typer.run(main)
