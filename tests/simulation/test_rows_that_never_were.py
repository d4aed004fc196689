"""No value is computed from two rows that never existed together.

In a batch, a row inserted late joins with a row deleted early, until the pair is subtracted again.
Their sum may not fit a BIGINT, although no state of the view ever had it. One source commits a
deletion and then an insertion, so many schedules have both in one batch; the same schedules catch
each slip that computes too early.
"""

from typing import Any

import pytest

from protocols.maintenance import batched_sweep
from protocols.maintenance.registry import PROTOCOLS
from protocols.operators import build
from protocols.simulation.campaign import Campaign
from protocols.simulation.drawn import Shaped
from protocols.views.partials import extended
from tests.harness.campaigns import assert_right, planted

_LARGEST = 2**63 - 1
#: The number of schedules.
_MANY = range(40)


def _campaign(view: str) -> Campaign:
    """`r` loses its 5 before `l` gets the largest BIGINT, and gets -5 afterwards."""
    columns = {"k": "BIGINT", "v": "BIGINT"}
    changes = [("r", [1, 5], -1), ("l", [1, _LARGEST], 1), ("r", [1, -5], 1), ("r", [2, 1], 1)]
    form: dict[str, Any] = {
        "view": view,
        "sources": {
            "a": {
                "relations": {
                    "l": {"columns": columns, "rows": []},
                    "r": {"columns": columns, "rows": [[1, 5]]},
                }
            }
        },
        "updates": [
            {"source": "a", "changes": [{"relation": name, "row": row, "count": count}]}
            for name, row, count in changes
        ],
    }
    return Campaign(PROTOCOLS["batched-sweep"], Shaped("never", form))


@pytest.mark.parametrize("kind", ["LEFT", "FULL"])
def test_what_is_selected(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    campaign = _campaign(f"SELECT l.k, l.v + r.v AS s FROM a.l {kind} JOIN a.r ON l.k = r.k")
    assert_right(campaign.over(_MANY))
    eager = planted(build._adds_up, "above.is_plain", "True")
    monkeypatch.setattr(build, "_adds_up", eager)
    assert "NoValue" in str(campaign.over(_MANY, until_trouble=True).of("broke"))


def test_what_is_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    campaign = _campaign("SELECT l.k, r.v FROM a.l JOIN a.r ON l.k = r.k AND l.v + r.v > 0")
    assert_right(campaign.over(_MANY))
    eager = planted(extended, "(where, step.residual)", "(step.residual, where)")
    monkeypatch.setattr(batched_sweep, "extended", eager)
    assert "NoValue" in str(campaign.over(_MANY, until_trouble=True).of("broke"))
