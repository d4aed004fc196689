"""Runs one program and ends it when the owner ends, in whatever way the owner ends.

    python watchdog.py [--remove DIRECTORY] PROGRAM ARGUMENT…

It is a program of its own, because an owner that is killed with SIGKILL cannot clean up. The
kernel's own way (PR_SET_PDEATHSIG) watches the *thread* that started the child, which in the owner
may end at any time, and only Linux has it. So the owner holds the other end of our standard input:

- `s` on it stops the program (SIGTERM, after a while SIGKILL), `a` aborts it (SIGABRT, likewise),
  `k` kills it;
- end of file means that the owner is gone: the program is stopped, and the directory, if one was
  named, is removed, since nobody needs it now. A program whose directory is removed is just killed;
- a new parent means the same: a forked child of the owner may still hold the other end open.

Our exit ends the program too (on Linux: we have one thread, so the kernel's way works here), and
the program's end is our exit. Started by file name and with `-I -S`, this file imports nothing of
viewsweep and costs a few milliseconds.
"""

import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys

STOP = b"s"
ABORT = b"a"
KILL = b"k"

_OWNER_GONE = b""
_PATIENCE_SECONDS = 30
_LOOK_SECONDS = 0.2
_PR_SET_PDEATHSIG = 1


def watch(command: list[str], remove: str | None) -> int:
    """Runs the command until it ends or the owner ends it; returns the exit code."""
    owner = os.getppid()
    program = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, preexec_fn=_die_with_parent if _on_linux() else None
    )
    while program.poll() is None:
        order = _next_order(owner)
        if order is None:
            continue
        _end(program, _gently(order, remove))
        if order == _OWNER_GONE and remove is not None:
            shutil.rmtree(remove, ignore_errors=True)
    return program.returncode


def _next_order(owner: int) -> bytes | None:
    """The owner's next order; None if there is none for a moment."""
    if os.getppid() != owner:
        return _OWNER_GONE
    readable, _, _ = select.select([0], [], [], _LOOK_SECONDS)
    return os.read(0, 1) if readable else None


def _gently(order: bytes, remove: str | None) -> int | None:
    """The signal to try before SIGKILL, if any."""
    if order == ABORT:
        return signal.SIGABRT
    if order == STOP or (order == _OWNER_GONE and remove is None):
        return signal.SIGTERM
    return None


def _end(program: subprocess.Popen[bytes], gently: int | None) -> None:
    if gently is not None:
        program.send_signal(gently)
        try:
            program.wait(_PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        else:
            return
    program.kill()
    program.wait()


def _on_linux() -> bool:
    return sys.platform == "linux"


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main(arguments: list[str]) -> int:
    """Parses the arguments by hand: this file has to start in an instant."""
    if arguments[0] == "--remove":
        return watch(arguments[2:], arguments[1])
    return watch(arguments, None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
