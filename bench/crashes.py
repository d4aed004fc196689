"""Kills job, sources and broker of a running system over and over, and judges the run in the end.

    python bench/crashes.py [--times 5] [--seed 1]

Each of the three is killed with SIGKILL so many times, at moments drawn from the seed, while the
sources keep committing; one job finds its Spark checkpoint deleted when it comes back. A line for
each crash, then the checker's verdict. Exit code 0: the trace is complete in delivery order,
everything committed is in the view, and no position is there twice. 1: it is not, and the directory
of the run is kept. The same as `tests/integration/test_live_crashes.py`, for longer.
"""

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

# The harness of the live tests, which is no package.
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "integration"))

from live import Crash, CrashingSystem, LiveSystem, crashes, twice

from infra.localbroker import LocalBroker


def main(
    times: Annotated[int, typer.Option(min=1, help="How often each part is killed.")] = 5,
    seed: Annotated[int, typer.Option(help="Decides order, moments and victims.")] = 1,
) -> None:
    """Kill job, sources and broker at random moments; exit code 0 if nothing is lost or twice."""
    directory = Path(tempfile.mkdtemp(prefix="viewsweep-crashes-"))
    print(f"seed {seed}, {times} crashes of each part, in {directory}")
    wrong = _soak(directory, times, seed)
    for finding in wrong:
        print(f"WRONG: {finding}")
    if wrong:
        print(f"everything is left in {directory}; again with: --times {times} --seed {seed}")
        raise typer.Exit(1)
    shutil.rmtree(directory, ignore_errors=True)
    print("nothing lost, nothing twice")


def _soak(directory: Path, times: int, seed: int) -> list[str]:
    """One run from the sources' first commit to the verdict; returns what is wrong with it."""
    running = directory / "system"
    running.mkdir()
    plan = crashes({"job": times, "source": times, "broker": times}, seed)
    with (
        LocalBroker(directory / "broker") as broker,
        LiveSystem(running, broker.bootstrap) as system,
    ):
        crashing = CrashingSystem(system, broker)
        crashing.start()
        for number, crash in enumerate(plan, 1):
            position = crashing.suffer(crash)
            print(f"{number:3} of {len(plan)}  position {position:6}  {_described(crash)}")
        versions = crashing.settle()
        print(f"the sources stand at {versions}; the job gave up {crashing.gave_up} times")
        return _judged(system)


def _described(crash: Crash) -> str:
    victim = crash.source if crash.part == "source" else crash.part
    moment = "progress" if crash.after_progress else "the last restart"
    lost = ", its checkpoint deleted" if crash.without_checkpoint else ""
    return f"{victim:6} killed {crash.pause:.2f} s after {moment}, away {crash.away:.2f} s{lost}"


def _judged(system: LiveSystem) -> list[str]:
    code, verdict = system.verdict()
    counts: dict[str, Any] = verdict["counts"]
    print(f"verdict {verdict['verdict']}, level reached {verdict['reached']}; {counts}")
    wrong = twice(system)
    if code:
        wrong.append(str(verdict["contradiction"]))
    if counts["undelivered"]:
        wrong.append(f"{counts['undelivered']} commits never reached the view")
    if not counts["compensated"]:
        wrong.append("nothing was concurrent, so this run proves nothing")
    return wrong


if __name__ == "__main__":
    typer.run(main)
