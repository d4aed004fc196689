"""One directory for all temporary files of a process and of those that it starts.

    $TMPDIR/viewsweep-job-ab12cd/    spark-…  blockmgr-…  viewsweep-mailbox-…  owner.lock

It lies below TMPDIR and not in the warehouse: it needs a fast local disk, and the warehouse may be
somewhere else. The end of the context removes it. A killed process removes nothing, so each start
removes directories of dead owners. An owner holds a lock on its directory until it ends, in any
way, so whoever gets the lock may remove the directory. Directories of other users stay.
The lock's file is mapped as well. So a fork of the owner, which has closed all files, also holds
the lock until it becomes another program; before that nothing else shows that it uses the
directory.

A process that has such a directory as its TMPDIR ends before the directory is removed: if a job
ends while Spark's JVM starts, the JVM would not find the place for its first message and would wait
for ever.
"""

import contextlib
import fcntl
import mmap
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil

from infra.errors import InfraError

_PREFIX = "viewsweep-"
#: Differs from the name of the lock that a broker has in such a directory.
_LOCK = "owner.lock"
_HOUR = 3600.0


@contextlib.contextmanager
def workplace(kind: str) -> Iterator[Path]:
    """A directory of our own for the time of the context; `kind` is a word for its name."""
    above = Path(tempfile.gettempdir())
    remove_abandoned(above)
    try:
        directory, lock = _made(above, kind)
    except OSError as error:
        raise InfraError(
            f"no directory can be created in {above}: {error.strerror}. Make room there, or set"
            " TMPDIR to another directory"
        ) from None
    try:
        yield directory
    finally:
        _remove(directory)
        lock.close()


@contextlib.contextmanager
def all_temporary_files_in(directory: Path) -> Iterator[None]:
    """Puts our files there, and those of the processes that we start, Spark's JVM included."""
    before = dict(os.environ)
    # The JVM ignores TMPDIR. It writes its performance data to /tmp, so they are switched off.
    options = f'-Djava.io.tmpdir="{directory}" -XX:-UsePerfData'
    os.environ |= {
        "TMPDIR": str(directory),
        "SPARK_LOCAL_DIRS": str(directory),
        "SPARK_SUBMIT_OPTS": f"{before.get('SPARK_SUBMIT_OPTS', '')} {options}".strip(),
    }
    told, tempfile.tempdir = tempfile.tempdir, str(directory)
    try:
        yield
    finally:
        tempfile.tempdir = told
        _restore(before)


def remove_abandoned(above: Path) -> None:
    """Removes the directories of dead owners.

    Another process that is starting may be doing the same at this moment.
    """
    with contextlib.suppress(OSError):
        for directory in above.glob(f"{_PREFIX}*"):
            with contextlib.suppress(OSError):
                _remove_if_abandoned(directory)


def _made(above: Path, kind: str) -> tuple[Path, mmap.mmap]:
    """A new directory and its lock."""
    while True:
        directory = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{kind}-", dir=above))
        lock = os.open(directory / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Another process may have removed it as abandoned before we had the lock.
            if directory.exists():
                return directory, _mapped(lock)
        os.close(lock)


def _mapped(lock: int) -> mmap.mmap:
    """The lock as a mapping, which has a descriptor of its own."""
    try:
        os.ftruncate(lock, 1)
        return mmap.mmap(lock, 1, access=mmap.ACCESS_READ)
    finally:
        os.close(lock)


def _remove_if_abandoned(directory: Path) -> None:
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        return
    try:
        lock = os.open(directory / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        # Recreated by a JVM that was just starting when its job ended; or created a moment ago.
        if directory.name.startswith(f"{_PREFIX}job-") and time.time() - found.st_mtime > _HOUR:
            shutil.rmtree(directory, ignore_errors=True)
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove(directory)
    finally:
        os.close(lock)


def _remove(directory: Path) -> None:
    """Kills the processes that use the directory, then removes it."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            theirs = process.environ().get("TMPDIR") == str(directory)
            if theirs and process.pid != os.getpid():
                process.kill()
    shutil.rmtree(directory, ignore_errors=True)


def _restore(environment: Mapping[str, str]) -> None:
    for name in set(os.environ) - set(environment):
        del os.environ[name]
    os.environ.update(environment)
