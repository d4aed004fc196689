"""Does a fetch end with exactly the pinned jars, or with one message that says what to do?

Most tests here run without a network: a shell script in place of Java delivers the planted jars
when Ivy is called. The real pins are compared with the installed pyspark.
"""

import fcntl
import hashlib
import importlib.util
import os
import re
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from infra import jars
from infra.errors import InfraError
from infra.progress import silent

PLANTED = {"spark/lake-1.0.jar": b"the lake", "broker/broker-2.0.jar": b"the broker"}


def java_that(script: str, directory: Path, release: str = "17.0.9") -> Path:
    """A `java` that reports the given release and otherwise runs `script`."""
    directory.mkdir(parents=True, exist_ok=True)
    executable = directory / "java"
    executable.write_text(
        "#!/bin/sh\n"
        f"""if [ "$1" = -version ]; then echo 'openjdk version "{release}"' >&2; exit 0; fi\n"""
        f"{script}\n"
    )
    executable.chmod(executable.stat().st_mode | stat.S_IXUSR)
    return executable


def ivy_that_delivers(contents: dict[str, bytes], directory: Path) -> str:
    """A script that acts like `ivy -retrieve PATTERN` with these jars, and counts its runs."""
    source = directory / "published"
    for name, content in contents.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(content)
    return f"""
echo run >> {directory}/runs
while [ $# -gt 0 ]; do if [ "$1" = -retrieve ]; then pattern=$2; fi; shift; done
cp -r {source}/. "${{pattern%%/\\[conf*}}"
"""


def runs(directory: Path) -> int:
    return len((directory / "runs").read_text().splitlines())


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, pins of the planted jars, and a PATH with only the system's own tools."""
    pins = tmp_path / "jars.sha256"
    pins.write_text(
        "".join(f"{hashlib.sha256(b).hexdigest()}  {name}\n" for name, b in PLANTED.items())
    )
    monkeypatch.setattr(jars, "SPARK_AND_BROKER", jars.JarSet(jars.SPARK_AND_BROKER.ivy, pins))
    monkeypatch.setenv(jars.CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{tools_without_java(tmp_path)}")
    return tmp_path


def tools_without_java(tmp_path: Path) -> Path:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("cp", "sh"):
        found = next(d for d in ("/bin", "/usr/bin") if os.access(f"{d}/{name}", os.X_OK))
        (tools / name).symlink_to(f"{found}/{name}")
    return tools


needs_pyspark = pytest.mark.skipif(
    importlib.util.find_spec("pyspark") is None, reason="pyspark ships the Ivy"
)


@needs_pyspark
def test_a_fetch_delivers_the_jars_of_each_purpose_and_a_second_one_does_not_run_ivy(
    place: Path,
) -> None:
    java_that(ivy_that_delivers(PLANTED, place), place / "bin")
    assert [jar.read_bytes() for jar in jars.spark_jars(silent)] == [b"the lake"]
    assert [jar.read_bytes() for jar in jars.broker_jars(silent)] == [b"the broker"]
    assert runs(place) == 1


@needs_pyspark
@pytest.mark.parametrize("damage", ["missing", "cut off", "no record"])
def test_a_cache_that_is_not_complete_is_fetched_again(place: Path, damage: str) -> None:
    java_that(ivy_that_delivers(PLANTED, place), place / "bin")
    directory = jars.fetch(silent)
    if damage == "missing":
        (directory / "spark/lake-1.0.jar").unlink()
    elif damage == "cut off":
        (directory / "spark/lake-1.0.jar").write_bytes(b"the la")
    else:
        (directory / "sizes.json").unlink()
    assert [jar.read_bytes() for jar in jars.spark_jars(silent)] == [b"the lake"]
    assert runs(place) == 2


@needs_pyspark
def test_a_jar_with_another_checksum_is_refused_by_name_and_leaves_nothing_behind(
    place: Path,
) -> None:
    changed = PLANTED | {"spark/lake-1.0.jar": b"the lake, poisoned"}
    java_that(ivy_that_delivers(changed, place), place / "bin")
    cached = place / "cache/ivy/org/jars/lake-1.0.jar"
    cached.parent.mkdir(parents=True)
    cached.write_bytes(b"the lake, poisoned")
    with pytest.raises(
        InfraError, match=r"spark/lake-1\.0\.jar is not the jar .* download it again"
    ):
        jars.fetch(silent)
    assert not list((place / "cache").glob("jars-*")), "what was refused must not be usable"
    assert not cached.exists(), "or the next fetch would take the same jar from Ivy's cache"


@needs_pyspark
@pytest.mark.parametrize(
    ("delivered", "message"),
    [
        ({"spark/lake-1.0.jar": b"the lake"}, r"broker-2\.0\.jar is pinned but was not fetched"),
        (PLANTED | {"spark/more-1.jar": b"more"}, r"more-1\.jar is fetched but not pinned"),
    ],
)
def test_a_jar_too_few_or_too_many_is_refused(
    place: Path, delivered: dict[str, bytes], message: str
) -> None:
    java_that(ivy_that_delivers(delivered, place), place / "bin")
    with pytest.raises(InfraError, match=message):
        jars.fetch(silent)


@needs_pyspark
def test_what_a_killed_fetch_left_behind_is_cleared_away(place: Path) -> None:
    java_that(ivy_that_delivers(PLANTED, place), place / "bin")
    half = place / "cache/fetching-abc"
    half.mkdir(parents=True)
    jars.fetch(silent)
    assert not half.exists()


@needs_pyspark
def test_two_fetches_at_once_run_ivy_once(place: Path) -> None:
    java_that(ivy_that_delivers(PLANTED, place), place / "bin")
    (place / "cache").mkdir()
    waiting = threading.Event()
    told: list[str] = []

    def progress(line: str) -> None:
        told.append(line)
        waiting.set()

    with (place / "cache/lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = threading.Thread(target=lambda: jars.fetch(progress))
        second.start()
        assert waiting.wait(60)
        assert "another process is fetching" in told[0]
        assert not (place / "runs").exists(), "it must not fetch while another process does"
    second.join(60)
    jars.fetch(silent)
    assert runs(place) == 1


def test_without_java_the_message_names_java_and_the_way_out(place: Path) -> None:
    assert not (place / "bin").exists()
    with pytest.raises(InfraError, match=r"no Java: .* install a Java 17"):
        jars.fetch(silent)


def test_a_java_home_without_java_is_named(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(place / "nowhere"))
    with pytest.raises(InfraError, match=r"JAVA_HOME is .*nowhere"):
        jars.fetch(silent)


@pytest.mark.parametrize(("release", "read_as"), [("11.0.2", 11), ("1.8.0_402", 8)])
def test_a_java_that_is_too_old_is_refused(place: Path, release: str, read_as: int) -> None:
    java_that("exit 1", place / "bin", release)
    with pytest.raises(InfraError, match=rf"is Java {read_as}, and Java 17 is needed"):
        jars.fetch(silent)


def test_without_pyspark_the_message_is_the_pip_command(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java_that("exit 1", place / "bin")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(InfraError, match=r"pip install 'viewsweep\[spark\]'"):
        jars.fetch(silent)


@needs_pyspark
@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("\t\tmodule not found: io.delta#delta-storage;4.4.0", r"io\.delta delta-storage 4\.4\.0"),
        ("\t[FAILED     ] a.b#c;1!c.jar: timed out", r"a\.b c 1 could not .* command resumes"),
        ("java.io.IOException: No space left on device", r"is full: .* VIEWSWEEP_CACHE"),
        ("something else", r"its output ends with:\nsomething else"),
    ],
)
def test_an_ivy_that_fails_is_one_message(place: Path, said: str, message: str) -> None:
    java_that(f"cat <<'END'\n{said}\nEND\nexit 1".replace("cat", "/bin/cat"), place / "bin")
    with pytest.raises(InfraError, match=message):
        jars.fetch(silent)


@needs_pyspark
def test_the_real_ivy_without_a_network_names_the_first_artifact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy address without a listener acts like no network, and needs no privileges."""
    monkeypatch.setenv(jars.CACHE_VARIABLE, str(tmp_path))
    nowhere = "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=9"
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"{nowhere} -Duser.home={tmp_path}")
    with pytest.raises(InfraError, match=r"^io\.delta delta-spark_4\.2_2\.13 .* not be fetched"):
        jars.fetch(silent)


def test_a_cache_that_cannot_be_written_is_one_message(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "file").write_text("")
    monkeypatch.setenv(jars.CACHE_VARIABLE, str(place / "file/cache"))
    with pytest.raises(InfraError, match=r"cannot be stored in .* set VIEWSWEEP_CACHE"):
        jars.fetch(silent)


@needs_pyspark
def test_no_pinned_jar_for_spark_is_one_that_pyspark_ships() -> None:
    """With two versions of one library on Spark's class path, chance decides which is used."""
    shipped = {library(jar.name) for jar in jars._ivy_jar().parent.glob("*.jar")}
    pinned = jars._read_pins(Path(jars.__file__).with_name("jars.sha256"))
    for_spark = {library(Path(name).name) for name in pinned if name.startswith("spark/")}
    assert "delta-storage" in for_spark
    assert "ivy" in shipped, "the names are read as meant"
    assert not shipped & for_spark


def library(jar: str) -> str:
    return re.sub(r"-\d[^-]*\.jar$", "", jar)


def test_to_look_for_jars_does_not_import_pyspark() -> None:
    program = "import sys, infra.jars, infra.sparksettings; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
