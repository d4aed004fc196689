"""Temporary files: they are deleted with their owner, however it ends."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from infra.errors import InfraError
from infra.workplace import all_temporary_files_in, remove_abandoned, workplace
from tests.harness.places import ROOT

_OWNER = """
import sys, time
from infra.workplace import workplace
with workplace("job") as directory:
    (directory / "spark-1").mkdir()
    (directory / "spark-1" / "jar").write_text("23 MB")
    print(directory, flush=True)
    if sys.argv[1] == "stays":
        time.sleep(600)
"""


@pytest.fixture(autouse=True)
def above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory for temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def owner(how: str) -> "tuple[subprocess.Popen[str], Path]":
    program = subprocess.Popen(
        [sys.executable, "-c", _OWNER, how], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert program.stdout is not None
    return program, Path(program.stdout.readline().strip())


def end(program: "subprocess.Popen[str]") -> None:
    program.send_signal(signal.SIGKILL)
    program.communicate()


def test_a_directory_goes_when_its_owner_ends(above: Path) -> None:
    program, _ = owner("ends")
    program.communicate()
    assert list(above.iterdir()) == []


def test_what_a_killed_owner_left_goes_at_the_next_start_and_not_before(above: Path) -> None:
    program, left = owner("stays")
    try:
        with workplace("job"):
            assert (left / "spark-1" / "jar").exists(), "its owner lives"
    finally:
        end(program)
    assert left.exists()
    with workplace("job") as ours:
        assert list(above.iterdir()) == [ours]


_STARTER = """
import subprocess, sys, time
from infra.workplace import all_temporary_files_in, workplace
with workplace("job") as directory, all_temporary_files_in(directory):
    subprocess.Popen([sys.executable, "-c", "input()"])
    # From here on it is a program of its own; before, its directory is not taken for abandoned.
    print(directory, flush=True)
    if sys.argv[1] == "stays":
        time.sleep(600)
"""


@pytest.mark.parametrize("how", ["ends", "stays"])
def test_what_an_owner_started_ends_before_its_directory_goes(above: Path, how: str) -> None:
    """Like a starting JVM: when its owner was killed, it was still running at the next start."""
    with subprocess.Popen(
        [sys.executable, "-c", _STARTER, how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as program:
        assert program.stdout is not None
        directory = Path(program.stdout.readline().strip())
        if how == "stays":
            program.kill()
            program.wait()
            remove_abandoned(above)
        # The child holds the other end as long as it lives.
        assert program.stdout.read() == ""
    assert not directory.exists()


_FORKER = """
import os, sys, time
from infra.workplace import all_temporary_files_in, workplace
with workplace("job") as directory, all_temporary_files_in(directory):
    if os.fork():
        time.sleep(600)
    os.closerange(3, 1000)  # as subprocess does
    print(directory, flush=True)
    sys.stdin.buffer.raw.read(1)
    os.execl(sys.executable, "python", "-c", "print('runs', flush=True); input()")
"""


def test_what_an_owner_was_just_starting_is_ended_when_it_can_be_known(above: Path) -> None:
    """Between fork and exec it has no TMPDIR in its environment yet."""
    with subprocess.Popen(
        [sys.executable, "-c", _FORKER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        directory = Path(program.stdout.readline().strip())
        program.kill()
        program.wait()
        remove_abandoned(above)
        assert directory.exists()
        program.stdin.write("x")
        program.stdin.flush()
        assert program.stdout.readline() == "runs\n"
        remove_abandoned(above)
        # The child holds the other end as long as it lives.
        assert program.stdout.read() == ""
    assert not directory.exists()


def test_what_is_not_ours_stays(above: Path) -> None:
    """No lock inside, or only a broker's; a link to elsewhere; a file of that name."""
    (above / "viewsweep-of-somebody").mkdir()
    (above / "viewsweep-broker-1").mkdir()
    (above / "viewsweep-broker-1" / "lock").touch()
    (above / "elsewhere").mkdir()
    (above / "elsewhere" / "owner.lock").touch()
    (above / "viewsweep-link").symlink_to(above / "elsewhere")
    (above / "viewsweep-report-1.txt").touch()
    before = sorted(above.rglob("*"))
    remove_abandoned(above)
    assert sorted(above.rglob("*")) == before


def test_our_files_and_those_of_what_we_start_lie_there(above: Path) -> None:
    with workplace("job") as directory, all_temporary_files_in(directory):
        with tempfile.NamedTemporaryFile() as ours:
            assert Path(ours.name).parent == directory
        for name in ("TMPDIR", "SPARK_LOCAL_DIRS"):
            assert os.environ[name] == str(directory)
        assert f'-Djava.io.tmpdir="{directory}"' in os.environ["SPARK_SUBMIT_OPTS"]
    assert tempfile.gettempdir() == str(above)
    assert "SPARK_LOCAL_DIRS" not in os.environ


def test_no_room_for_a_directory_is_said_with_its_place(
    above: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = above / "gone"
    monkeypatch.setattr(tempfile, "tempdir", str(gone))
    with (
        pytest.raises(InfraError, match=f"no directory can be created in {gone}.*TMPDIR"),
        workplace("job"),
    ):
        pass


def test_a_jobs_directory_without_an_owner_goes_when_it_is_old(above: Path) -> None:
    """A JVM that was starting when its job ended recreates the directory, without the lock."""
    for name in ("old", "new"):
        (above / f"viewsweep-job-{name}").mkdir()
    os.utime(above / "viewsweep-job-old", (0, 0))
    remove_abandoned(above)
    assert [file.name for file in above.iterdir()] == ["viewsweep-job-new"]
