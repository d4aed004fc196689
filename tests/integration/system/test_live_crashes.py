"""Does kill -9 of any part, at any moment, lose or repeat anything?

The job, its JVM, a source and the broker are killed while the sources commit without end, and the
JVM is stopped for a while; one job finds its Spark checkpoint deleted. The moments come from a
seed, which a failure prints. This catches a fault that no test of a single part can: two parts that
disagree about their positions. `bench/crashes.py` does the same for longer. The control is in
`test_live_run.py`: the checker that finds nothing here does find the errors of the uncompensated
protocol on the same system.
"""

from pathlib import Path

from infra.localbroker import LocalBroker
from tests.harness.crashes import CrashingSystem, crashes, twice
from tests.harness.system import LiveSystem

SEED = 20


def test_after_crashes_of_job_jvm_source_and_broker_the_run_is_complete_and_nothing_is_there_twice(
    tmp_path: Path,
) -> None:
    plan = crashes({"job": 2, "jvm": 1, "source": 1, "broker": 1}, SEED, {"jvm": 1})
    with LocalBroker(tmp_path / "broker") as broker:
        directory = tmp_path / "system"
        directory.mkdir()
        with LiveSystem(directory, broker.bootstrap) as system:
            crashing = CrashingSystem(system, broker)
            crashing.start()
            for crash in plan:
                print(f"seed {SEED}, position {crashing.suffer(crash)}: {crash}")
            versions = crashing.settle()
            code, verdict = system.verdict()
            assert code == 0, f"seed {SEED}: {verdict['contradiction']}"
            assert verdict["counts"]["undelivered"] == 0
            assert verdict["counts"]["updates"] > 0
            assert verdict["counts"]["compensated"] > 0, "nothing was concurrent"
            assert dict(system.tables().standing().vector) == versions
            assert twice(system) == []
