"""The control of the attacks by records: a reader that casts unchecked values is caught."""

from pathlib import Path

from bench.attacks import AttackSettings
from bench.attacks.records import outcomes


def test_control_an_unchecked_cast_is_reported_as_a_crash_and_as_wrong_rows(tmp_path: Path) -> None:
    settings = AttackSettings(tmp_path, short=True)
    kinds = ("decimals", "dates", "numbers of the head")
    decimals, dates, heads = outcomes(settings, kinds, unguarded=True)
    assert not decimals.good
    assert "exit -11 at decimals.crashed" in decimals.result
    assert b"e-999999999" in (tmp_path / "decimals.crashed").read_bytes()
    assert not dates.good
    assert "0000-01-01" in dates.result
    assert heads.good
    assert heads.cases == 30


def test_both_readers_take_some_records_of_most_kinds_and_refuse_some(tmp_path: Path) -> None:
    """Otherwise nothing would have been compared."""
    found = list(outcomes(AttackSettings(tmp_path, short=True, seed=2)))
    assert all(each.good for each in found), found
    assert sum("read alike" in each.result for each in found) > 8
    assert sum("refused by both" in each.result for each in found) > 8
