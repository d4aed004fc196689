"""The jars that pip does not bring: for Spark (Delta, the Kafka source), for the local broker. The
other sets are needed by few runs: a local Kafka Connect with Debezium, the programs of MariaDB.

Rules:

- *Complete or not at all.* Ivy retrieves into a directory of its own, which is verified and then
  renamed to its final name in one step. If the final name exists, every jar is there.
- *Only what is pinned.* Each jar is compared with `jars.sha256` before the rename. The final name
  carries a fingerprint of that file, so two versions of viewsweep can share one cache.
- *Once.* A lock lets one process fetch while the others wait. Ivy inherits the lock, so it stays
  taken when we are killed while Ivy still runs.
- *Resumable.* Ivy's own cache lives beside the result, so a fetch that was cut off continues.
- A start costs one `stat` per jar: names and sizes are compared, checksums only after a fetch.

Nothing here imports pyspark: its path on the disk is enough to find the Ivy that it ships.
"""

import errno
import fcntl
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import typer

from infra.errors import InfraError, without_traceback
from infra.java import java
from infra.progress import Progress, on_stderr

CACHE_VARIABLE = "VIEWSWEEP_CACHE"

_HERE = Path(__file__).parent
_SIZES = "sizes.json"
_MEGABYTE = 1_000_000

Pins = dict[str, str]
"""Path of a jar below the jar directory ("spark/delta-storage-4.4.0.jar") to its sha256."""


@dataclass(frozen=True)
class JarSet:
    """Jars that are fetched together."""

    #: The modules, for Ivy.
    ivy: Path
    #: The jars with their checksums.
    pins: Path


#: The jars of Spark and of the broker.
SPARK_AND_BROKER = JarSet(_HERE / "ivy.xml", _HERE / "jars.sha256")
#: Kafka Connect with Debezium's connectors.
CONNECT = JarSet(_HERE / "connect-ivy.xml", _HERE / "connect.sha256")
#: The programs of MariaDB.
MARIADB = JarSet(_HERE / "mariadb-ivy.xml", _HERE / "mariadb.sha256")
_SETS = {"spark-and-broker": SPARK_AND_BROKER, "connect": CONNECT, "mariadb": MARIADB}


def spark_jars(progress: Progress = on_stderr) -> list[Path]:
    """The jars for `spark.jars`, without those that pyspark ships. Fetched if need be."""
    return _jars_of("spark", SPARK_AND_BROKER, progress)


def broker_jars(progress: Progress = on_stderr) -> list[Path]:
    """The class path of the local Kafka broker. Fetched if need be."""
    return _jars_of("broker", SPARK_AND_BROKER, progress)


def connect_jars(progress: Progress = on_stderr) -> list[Path]:
    """The class path of the local Kafka Connect. Fetched if need be."""
    return _jars_of("connect", CONNECT, progress)


def mariadb_jar(progress: Progress = on_stderr) -> Path:
    """The jar with MariaDB's programs. Fetched if need be."""
    [jar] = _jars_of("mariadb", MARIADB, progress)
    return jar


def fetch(progress: Progress = on_stderr, jars: JarSet | None = None) -> Path:
    """Makes sure that every pinned jar of a set is there (by default those of Spark and broker).

    Returns the directory that holds them.
    """
    home, jars = cache_directory(), jars or SPARK_AND_BROKER
    pins = _read_pins(jars.pins)
    directory = home / f"jars-{_fingerprint(jars.pins)}"
    if _is_complete(directory, pins):
        return directory
    with _plain_disk_errors(home), _only_one_fetches(home, progress) as lock:
        if not _is_complete(directory, pins):
            with _retrieved(jars.ivy, home, lock, pins, progress) as arrived:
                _refuse_what_is_not_pinned(arrived, pins, home / "ivy", jars)
                _put_in_place(arrived, directory)
            progress(f"{len(pins)} jars verified, in {directory}")
    return directory


def pin(progress: Progress = on_stderr, jars: JarSet | None = None) -> Pins:
    """Rewrites a set's checksums for the jars that its modules lead to now, after a change."""
    home, jars = cache_directory(), jars or SPARK_AND_BROKER
    with (
        _plain_disk_errors(home),
        _only_one_fetches(home, progress) as lock,
        _retrieved(jars.ivy, home, lock, {}, progress) as arrived,
    ):
        pins = {name: _sha256(arrived / name) for name in _jar_names(arrived)}
    jars.pins.write_text("".join(f"{pinned}  {name}\n" for name, pinned in pins.items()))
    return pins


def cache_directory() -> Path:
    """`$VIEWSWEEP_CACHE`, else `viewsweep` in the user's cache directory."""
    given = os.environ.get(CACHE_VARIABLE)
    if given:
        return Path(given).absolute()
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches, "viewsweep")


# The jars in the cache


def _jars_of(conf: str, jars: JarSet, progress: Progress) -> list[Path]:
    directory = fetch(progress, jars)
    return [directory / name for name in _read_pins(jars.pins) if name.startswith(f"{conf}/")]


def _read_pins(file: Path) -> Pins:
    """The format of sha256sum, so that `sha256sum -c` in the jar directory does the same check."""
    lines = (line.split(maxsplit=1) for line in file.read_text().splitlines())
    return {name: pinned for pinned, name in lines}


def _fingerprint(file: Path) -> str:
    return _sha256(file)[:12]


def _is_complete(directory: Path, pins: Pins) -> bool:
    """Has every pinned jar the size that it had when its checksum was compared?"""
    try:
        verified: dict[str, int] = json.loads((directory / _SIZES).read_text())
        sizes = {name: (directory / name).stat().st_size for name in pins}
    except (OSError, ValueError):
        return False
    return sizes == verified


def _jar_names(directory: Path) -> list[str]:
    return sorted(str(jar.relative_to(directory)) for jar in directory.glob("*/*.jar"))


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


# Fetching


@contextmanager
def _only_one_fetches(home: Path, progress: Progress) -> Iterator[int]:
    """Holds the lock of the cache; yields its descriptor for Ivy to inherit.

    The lock dies with the last process that has the descriptor open, so no crash leaves it behind.
    """
    home.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(home / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(f"another process is fetching jars into {home}: waiting for it")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _retrieved(
    modules: Path, home: Path, lock: int, pins: Pins, progress: Progress
) -> Iterator[Path]:
    """A directory with everything that Ivy retrieved; it is removed afterwards unless renamed."""
    for left_behind in home.glob("fetching-*"):
        shutil.rmtree(left_behind, ignore_errors=True)
    arrived = Path(tempfile.mkdtemp(prefix="fetching-", dir=home))
    try:
        _run_ivy(modules, arrived, home / "ivy", lock, pins, progress)
        yield arrived
    finally:
        shutil.rmtree(arrived, ignore_errors=True)


def _run_ivy(
    modules: Path, arrived: Path, ivy_cache: Path, lock: int, pins: Pins, progress: Progress
) -> None:
    progress(f"fetching jars with Ivy, once, into {ivy_cache.parent} (about a minute)")
    command = [
        *(str(java()), "-Xmx256m"),
        # Without timeouts Ivy would wait for ever on a network that drops packets.
        *("-Dsun.net.client.defaultConnectTimeout=15000",),
        *("-Dsun.net.client.defaultReadTimeout=60000",),
        *("-jar", str(_ivy_jar())),
        *("-cache", str(ivy_cache), "-ivy", str(modules)),
        *("-retrieve", f"{arrived}/[conf]/[artifact]-[revision].[ext]"),
        *("-types", "jar", "bundle", "-overwriteMode", "always"),
    ]
    ivy = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        pass_fds=(lock,),
    )
    with ivy:
        try:
            assert ivy.stdout is not None
            said = _narrated(ivy.stdout, _jars_in(ivy_cache), pins, progress)
        except BaseException:
            ivy.kill()
            raise
    if ivy.returncode != 0:
        raise InfraError(_what_ivy_could_not_do(said, ivy_cache.parent))


def _ivy_jar() -> Path:
    """The Ivy inside pyspark, found without importing pyspark (that takes a second)."""
    pyspark = importlib.util.find_spec("pyspark")
    if pyspark is None or not pyspark.submodule_search_locations:
        raise InfraError("pyspark is not installed: pip install 'viewsweep[spark]'")
    jars = Path(pyspark.submodule_search_locations[0], "jars")
    found = sorted(jars.glob("ivy-*.jar"))
    if not found:
        raise InfraError(
            f"there is no Ivy in {jars}, so this is not the right pyspark: "
            "pip install --force-reinstall 'viewsweep[spark]'"
        )
    return found[-1]


def _narrated(lines: Iterable[str], there: set[str], pins: Pins, progress: Progress) -> list[str]:
    """Turns Ivy's output into readable progress; returns the output, for the errors.

    Ivy first looks every module up ("found …"), then downloads: the jar's size comes one line
    before its "[SUCCESSFUL ]", together with that of its checksum.
    """
    wanted = {Path(name).name for name in pins}
    count, size, total = len(wanted & there), 0, 0
    said = []
    for line in lines:
        said.append(line)
        if found := re.match(r"\s*found (\S+) in ", line):
            progress(f"looked up {_readable(found[1])}")
        elif kilobytes := re.match(r"\.* \((\d+)kB\)", line):
            size += int(kilobytes[1]) * 1024
        elif fetched := re.match(r"\s*\[SUCCESSFUL \] (\S+)!\S+", line):
            count, total = count + 1, total + size
            of = f" of {len(wanted)}" if wanted else ""
            progress(
                f"{count}{of}: {_readable(fetched[1])}, {size / _MEGABYTE:.1f} MB"
                f" ({total / _MEGABYTE:.0f} MB in all)"
            )
            size = 0
    return said


def _readable(module: str) -> str:
    """`io.delta#delta-storage;4.4.0` as `io.delta delta-storage 4.4.0`."""
    return module.replace("#", " ").replace(";", " ")


def _jars_in(ivy_cache: Path) -> set[str]:
    return {jar.name for jar in ivy_cache.rglob("*.jar")}


def _what_ivy_could_not_do(said: list[str], home: Path) -> str:
    output = "".join(said)
    if "No space left on device" in output:
        return _disk_full(home)
    missing = re.search(r"(?:module not found:|\[(?:NOT FOUND|FAILED)\s*\]) ([^\s!]+)", output)
    if missing is None:
        return "Ivy failed; its output ends with:\n" + "".join(said[-15:]).rstrip()
    cause = re.search(r"^\s*((?:Host .* not found|Server access \S+).*)$", output, re.MULTILINE)
    return (
        f"{_readable(missing[1])} could not be fetched"
        + (f" ({cause[1].strip()})" if cause else "")
        + ". Is there a network? Java takes a proxy from JAVA_TOOL_OPTIONS=-Dhttps.proxyHost=…"
        " -Dhttps.proxyPort=…. The jars fetched so far are kept: the same command resumes."
    )


# Verifying and keeping


def _refuse_what_is_not_pinned(arrived: Path, pins: Pins, ivy_cache: Path, jars: JarSet) -> None:
    """Compares checksums; a jar that fails is removed from Ivy's cache, to be fetched again."""
    there = _jar_names(arrived)
    if odd := sorted(pins.keys() ^ set(there)):
        where = "pinned but was not fetched" if odd[0] in pins else "fetched but not pinned"
        raise InfraError(
            f"{odd[0]} is {where}: {jars.ivy.name} and {jars.pins.name} do not match. If you"
            f" changed {jars.ivy.name}, run `python -m infra.jars pin`; otherwise reinstall"
            " viewsweep."
        )
    for name in there:
        if (found := _sha256(arrived / name)) != pins[name]:
            _forget(Path(name).name, ivy_cache)
            raise InfraError(
                f"{name} is not the jar that viewsweep was tested with: its sha256 is {found},"
                f" and {pins[name]} is pinned. It was deleted; run the same command again to"
                " download it again. If this message reappears, the jar is being modified somewhere"
                " between its publisher and this machine and must not be used."
            )


def _forget(jar: str, ivy_cache: Path) -> None:
    for cached in ivy_cache.rglob(jar):
        cached.unlink()


def _put_in_place(arrived: Path, directory: Path) -> None:
    """Makes all jars exist in one step: before it none of them does, after it all of them do."""
    sizes = {name: (arrived / name).stat().st_size for name in _jar_names(arrived)}
    (arrived / _SIZES).write_text(json.dumps(sizes, indent=1))
    arrived.chmod(0o755)
    shutil.rmtree(directory, ignore_errors=True)
    arrived.rename(directory)


@contextmanager
def _plain_disk_errors(home: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise InfraError(_disk_full(home)) from error
        raise InfraError(
            f"the jars cannot be stored in {home} ({error}): make it writable, or set"
            f" {CACHE_VARIABLE} to a directory that is"
        ) from error


def _disk_full(home: Path) -> str:
    return (
        f"the disk that holds {home} is full: the jars need 150 MB. Make room, or set"
        f" {CACHE_VARIABLE} to a directory elsewhere; the same command resumes."
    )


app = typer.Typer(
    add_completion=False, help="The jars that viewsweep needs beside its Python packages."
)


@app.command(name="fetch")
def _fetch_command() -> None:
    """Fetch and verify the jars now, for instance while an image is built."""
    with without_traceback():
        typer.echo(fetch())


@app.command(name="fetch-connect")
def _fetch_connect_command() -> None:
    """The same for Kafka Connect with Debezium, which only some demos and tests need."""
    with without_traceback():
        typer.echo(fetch(jars=CONNECT))


@app.command(name="pin")
def _pin_command() -> None:
    """Rewrite the checksums. For developers, after a change of the modules that Ivy fetches."""
    with without_traceback():
        for name, jars in _SETS.items():
            typer.echo(f"{name}: {len(pin(jars=jars))} jars pinned")


if __name__ == "__main__":
    app()
