"""One burst, swept by the driver and by two executors: python -m bench.executors

Both runs begin at the same first state and read the same topics. The executors are processes of
their own (Spark's `local-cluster[2,1,1024]`). Their changes have to be those of the driver, row by
row at each position, and the checker has to find the run complete. Prints what each executor did.
"""

import json
import shutil
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import pyspark
import typer

from infra.broker import which_broker
from infra.owned import OwnedProcess
from infra.progress import silent
from protocols.errors import Unreachable, ViewsweepError
from sources.client import SourceClient
from streaming.localsystem import VIEW, Load, LocalSystem

MASTER = "local-cluster[2,1,1024]"
_ROOT = Path(__file__).parents[1]
_PATIENCE_SECONDS = 600


def main(
    updates: Annotated[int, typer.Option(help="Transactions of the burst.")] = 40_000,
    scale: Annotated[int, typer.Option(help="Base rows of all relations.")] = 100_000,
) -> None:
    """Sweep one burst on the driver and on executors, and compare."""
    with (
        tempfile.TemporaryDirectory() as place,
        which_broker(progress=silent) as broker,
        LocalSystem(Path(place), broker.bootstrap, _load(4, scale), "batched-sweep") as system,
    ):
        _begin(system)
        _burst(system, updates)
        figures = {
            "driver": _swept_by(system, "driver", 0, ""),
            "executors": _swept_by(system, "executors", 1, f"--master {MASTER}"),
        }
        same = _changes(system, "driver").equals(_changes(system, "executors"))
        verdict = _verdict(system)
    print(json.dumps({"same_changes": same, "verdict": verdict, **figures}, indent=2))
    raise SystemExit(0 if same and verdict == "valid" else 1)


def _load(updates: int, scale: int) -> Load:
    return Load("chain4", updates, rate=1e6, scale=scale)


def _begin(system: LocalSystem) -> None:
    """The first state, from which both runs go on."""
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


def _swept_by(system: LocalSystem, name: str, least_rows: int, master: str) -> dict[str, Any]:
    """One run under spark-submit over a copy of the first state; its summary."""
    directory = system.directory
    shutil.copytree(directory / "lake", directory / name)
    shutil.rmtree(directory / name / VIEW / "checkpoint", ignore_errors=True)
    text = (directory / "warehouse.toml").read_text().replace('"lake"', f'"{name}"')
    job = f"\n[job]\nrecords_per_batch = 1000000\nexecutor_rows = {least_rows}\n"
    (directory / f"{name}.toml").write_text(text + job)
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


def _verdict(system: LocalSystem) -> str:
    """What the checker says of the run on the executors."""
    _done(system.start("trace", "trace run.jsonl --config executors.toml"))
    check = system.start("check", "check run.jsonl --json")
    check.wait(_PATIENCE_SECONDS)
    answer = json.loads((system.directory / "check.log").read_text().strip())
    return str(answer["verdict"])


if __name__ == "__main__":
    typer.run(main)
