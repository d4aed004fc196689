"""Archives of classes: used if they are there and fit, and never in the way."""

import subprocess
import sys
from pathlib import Path

import pytest

from infra import classarchives
from infra.classarchives import broker_options, driver_options
from infra.java import java
from infra.progress import silent

OURS = classarchives._DRIVER_OPTIONS


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Python environment without archives."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    return tmp_path


def test_without_archives_the_options_are_ours_alone() -> None:
    assert driver_options() == OURS
    assert broker_options() == []


def test_archives_that_are_there_are_used(environment: Path) -> None:
    (environment / "viewsweep-broker.jsa").touch()
    assert broker_options()[0] == f"-XX:SharedArchiveFile={environment}/viewsweep-broker.jsa"
    made = environment / "viewsweep-spark.options"
    made.write_text(OURS.read_text() + "-XX:SharedArchiveFile=x\n")
    assert driver_options() == made


def test_options_that_were_made_from_others_of_ours_are_not_used(environment: Path) -> None:
    made = environment / "viewsweep-spark.options"
    made.write_text("-XX:+UseZGC\n-XX:SharedArchiveFile=x\n")
    assert driver_options() == OURS


def test_new_archives_replace_old_ones_which_are_not_used_meanwhile(
    environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def recorded(archive: Path, _progress: object) -> None:
        assert (broker_options(), driver_options()) == ([], OURS)
        archive.write_text("new")

    monkeypatch.setattr(classarchives, "_run_broker", recorded)
    monkeypatch.setattr(classarchives, "_run_spark", recorded)
    for _ in range(2):
        classarchives.make_archives(silent)
        assert (environment / "viewsweep-broker.jsa").read_text() == "new"
        used = f'-XX:SharedArchiveFile="{environment}/viewsweep-spark.jsa"'
        assert used in driver_options().read_text().splitlines()


def test_a_jvm_ignores_a_broken_archive_without_a_word(environment: Path) -> None:
    (environment / "viewsweep-broker.jsa").write_bytes(b"cut off")
    told = subprocess.run(
        [java(), *broker_options(), "-version"], capture_output=True, text=True, check=True
    )
    assert told.stdout == ""
    assert "archive" not in told.stderr.lower()
