"""Kills and stops the parts of a running system again and again, and judges the run at the end.

    python -m bench.crashes [--times 15] [--stops 3] [--seed 1]

The job, its Spark JVM, a source and the broker are each killed with SIGKILL and stopped for 20
seconds (SIGSTOP), as often as the options say, at moments drawn from the seed, while the sources
keep committing. One restarted job finds its Spark checkpoint deleted. The output is a line for each
crash, then the checker's verdict. Exit code 0: the trace is complete in delivery order, everything
committed is in the view, and no position is there twice. 1: it is not, and the directory of the run
is kept. 60 kills and 12 stops take about twenty minutes. The same as
`tests/integration/system/test_live_crashes.py`, for longer.
"""

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from infra.localbroker import LocalBroker
from tests.harness.crashes import Crash, CrashingSystem, Part, crashes, twice
from tests.harness.system import LiveSystem

_PARTS: tuple[Part, ...] = ("job", "jvm", "source", "broker")


def main(
    times: Annotated[int, typer.Option(min=1, help="Kills of each part.")] = 15,
    stops: Annotated[int, typer.Option(min=0, help="Stops of each part.")] = 3,
    seed: Annotated[int, typer.Option(help="Seed of order, moments and victims.")] = 1,
) -> None:
    """Kill and stop all parts at random moments; exit code 0 if nothing is lost or twice."""
    directory = Path(tempfile.mkdtemp(prefix="viewsweep-crashes-"))
    print(f"seed {seed}, {times} kills and {stops} stops of each part, in {directory}")
    plan = crashes(dict.fromkeys(_PARTS, times), seed, dict.fromkeys(_PARTS, stops))
    wrong = _soak(directory, plan)
    for finding in wrong:
        print(f"WRONG: {finding}")
    if wrong:
        print(
            f"everything is kept in {directory}; repeat with:"
            f" --times {times} --stops {stops} --seed {seed}"
        )
        raise typer.Exit(1)
    shutil.rmtree(directory, ignore_errors=True)
    print("nothing lost, nothing twice")


def _soak(directory: Path, plan: Sequence[Crash]) -> list[str]:
    """Does one run from the sources' first commit to the verdict; returns its errors."""
    running = directory / "system"
    running.mkdir()
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
    done = "stopped" if crash.stopped else "killed"
    return f"{victim:6} {done} {crash.pause:.2f} s after {moment}, away {crash.away:.2f} s{lost}"


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
