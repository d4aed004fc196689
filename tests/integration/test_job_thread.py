"""Under real Spark one thread touches the state of the views: that of the job."""

import subprocess
import sys

from jobs import World
from runs import ROOT
from waiting import patience

#: `viewsweep run`, which prints the thread of each step over all views.
_NOTING = """
import sys, threading
from cli import main
from streaming.job.running import Running

def noting(name, step):
    def noted(self, *arguments):
        print("thread", threading.current_thread().name, name, file=sys.stderr)
        return step(self, *arguments)
    return noted

for name in ("process", "tend", "finish"):
    setattr(Running, name, noting(name, getattr(Running, name)))
main.main()
"""


def test_batches_of_spark_and_the_work_between_them_are_one_threads(published: World) -> None:
    file = published.write_configuration()
    with published.job() as job:
        job.check()
        job.prepare()
    published.sources["a"].commit(("r", (101, 1, "p"), 1))
    published.wait_until_published()
    command = [sys.executable, "-c", _NOTING, "run", "--once", "--config", str(file)]
    ended = subprocess.run(
        command, cwd=ROOT, stderr=subprocess.PIPE, text=True, timeout=patience(), check=False
    )
    assert ended.returncode == 0, ended.stderr
    noted = [line.split() for line in ended.stderr.splitlines() if line.startswith("thread ")]
    assert {step for *_, step in noted} == {"process", "tend", "finish"}
    assert {" ".join(thread) for _, *thread, _ in noted} == {"job"}
    with published.job() as job:
        job.check()
        published.assert_complete(job.tables)
