"""Stored traces, and the verdict that each must always get.

The first line of a file may carry "expect": the verdict, the level reached, and words that the
contradiction must contain.
"""

from pathlib import Path

import orjson
import pytest

from protocols.checking.checker import check
from protocols.checking.tracereading import read_trace
from protocols.maintenance.registry import PROTOCOLS

TRACES = sorted(Path(__file__).parent.glob("*.jsonl"))


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_replay(path: Path) -> None:
    lines = path.read_bytes().splitlines()
    expect = orjson.loads(lines[0])["expect"]
    trace = read_trace(lines)
    verdict = check(trace, PROTOCOLS[trace.run.protocol].level)
    assert verdict.verdict == expect["verdict"], verdict.contradiction
    assert (verdict.reached and verdict.reached.name) == expect["reached"]
    for words in expect.get("words", ()):
        assert words in str(verdict.contradiction)


def test_there_are_traces() -> None:
    assert len(TRACES) >= 8
