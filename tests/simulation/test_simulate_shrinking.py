"""Failing runs shrink and still fail; stored runs are replayed here."""

import json
from pathlib import Path

import pytest

from protocols.errors import WrongUse
from protocols.maintenance.registry import PROTOCOLS
from protocols.simulation.campaign import Campaign
from protocols.simulation.failure import recorded_run_from_json
from protocols.simulation.shrinking import shrunk

NAIVE, SWEEP = PROTOCOLS["naive"], PROTOCOLS["sweep"]
REPLAYS = sorted((Path(__file__).parent / "replays").glob("*.json"))


@pytest.mark.parametrize("seed", [1, 8, 30])
def test_a_failing_run_shrinks_to_two_updates_or_one_and_replays(seed: int) -> None:
    campaign = Campaign(NAIVE)
    first = next(s for s in range(seed, seed + 40) if campaign.run(s).trouble)
    form = campaign.shaped(first).form
    small = shrunk(form, NAIVE, campaign.schedule(first))
    assert len(form["updates"]) == 9
    assert len(small.form["updates"]) <= 2
    again = recorded_run_from_json(json.loads(json.dumps(small.to_json())))
    assert again.again(NAIVE).trouble == small.trouble
    assert again.again(SWEEP).trouble is None


def test_what_does_not_fail_is_not_shrunk() -> None:
    campaign = Campaign(SWEEP)
    with pytest.raises(AssertionError, match="does not fail"):
        shrunk(campaign.shaped(1).form, SWEEP, campaign.schedule(1))


@pytest.mark.parametrize("path", REPLAYS, ids=lambda path: path.stem)
def test_replay(path: Path) -> None:
    """A stored failure: the protocol that failed still fails, and the right ones do not."""
    written = recorded_run_from_json(json.loads(path.read_text()))
    found = written.again(PROTOCOLS[written.protocol]).trouble
    assert found == written.trouble
    for name in ("sweep", "batched-sweep", "nested-sweep"):
        assert written.again(PROTOCOLS[name]).trouble is None


def test_there_are_replays() -> None:
    assert len(REPLAYS) >= 3


@pytest.mark.parametrize(
    "form",
    [
        [],
        {},
        {"scenario": {}, "schedule": {}, "protocol": 5},
        {"scenario": {}, "schedule": {"seeds": 1}, "protocol": "sweep"},
        {"scenario": {}, "schedule": {"seed": 1, "choices": "x"}, "protocol": "sweep"},
        {"scenario": {}, "schedule": {"seed": 1, "algebra": "x"}, "protocol": "sweep"},
        {"scenario": {}, "schedule": {"seed": 1, "delays": {"commit": 5}}, "protocol": "sweep"},
        {"scenario": {}, "schedule": {"seed": 1, "delays": {"x": {"a": 0}}}, "protocol": "sweep"},
        {"scenario": {}, "schedule": {"exhaustive": ["x"]}, "protocol": "sweep"},
        {"scenario": {}, "schedule": {"seed": 1}, "protocol": "sweep", "verdict": {"kind": 1}},
    ],
)
def test_what_is_no_written_run_is_refused(form: object) -> None:
    with pytest.raises(WrongUse):
        recorded_run_from_json(form)


@pytest.mark.parametrize("place", [(), ("verdict",), ("schedule",), ("scenario",)])
def test_a_field_of_a_written_run_that_nobody_reads_is_refused(place: tuple[str, ...]) -> None:
    form = json.loads(REPLAYS[0].read_text())
    recorded_run_from_json(form)
    inner = form
    for step in place:
        inner = inner[step]
    inner["note"] = "x"
    with pytest.raises(WrongUse, match="unknown field 'note'; known fields: "):
        recorded_run_from_json(form).again(SWEEP)
