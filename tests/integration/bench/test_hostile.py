"""The short form of `bench/hostile.py`: each family of attacks, on real parts."""

from pathlib import Path
from unittest import mock

import pytest

from bench.attacks import AttackSettings, answers, files
from bench.hostile import survived

#: The families with attacks; the command runs all of them.
_FAMILIES: list[str] = ["records", "answers", "files", "clients"]


@pytest.mark.parametrize("family", _FAMILIES)
def test_every_attack_of_a_family_is_survived(family: str, tmp_path: Path) -> None:
    outcomes = list(survived(family, AttackSettings(tmp_path, short=True)))
    assert outcomes
    assert [each for each in outcomes if not each.good] == []


def test_control_an_answer_that_is_not_checked_is_installed_and_reported(tmp_path: Path) -> None:
    twice = [lie for lie in answers.LIES if lie.name == "_count 2 with a key"]
    with mock.patch("sources.wire.client.fault", return_value=None):
        lied, afterwards = answers.attacked(AttackSettings(tmp_path), twice)
    assert (lied.result, lied.good) == ("was installed", False)
    assert afterwards.good


def test_control_a_lake_that_is_not_mended_is_reported(tmp_path: Path) -> None:
    attack = "last log entry of changes emptied"
    with (
        mock.patch("streaming.job.storedview.mend"),
        mock.patch("warehouse.progress.ProgressTable._cut_back"),
        mock.patch("warehouse.current.CurrentTable._drop_damaged"),
    ):
        [outcome] = files.outcomes(AttackSettings(tmp_path, short=True), only=[attack])
    assert not outcome.good
    assert outcome.result.startswith("WRONG")
