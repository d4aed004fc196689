"""The claimed vectors of every protocol's runs give their states, and forged ones are refused.

`python -m bench.forgedclaims` makes the same runs for longer.
"""

import pytest

from protocols.maintenance.registry import PROTOCOLS, Entry
from tests.harness.forging import Forgeries

RIGHT = [entry for entry in PROTOCOLS.values() if not entry.control]


@pytest.mark.parametrize("entry", RIGHT, ids=lambda entry: entry.name)
def test_forged_claims_are_refused(entry: Entry) -> None:
    found = Forgeries().over(entry, range(2))
    assert not found.not_valid
    assert not found.not_refused


def test_forged_claims_of_views_beyond_inner_joins_are_refused() -> None:
    found = Forgeries().over(PROTOCOLS["batched-sweep"], range(3), "views")
    assert not found.not_valid + [seed for seed, _ in found.not_refused]
    assert found.forged["elsewhere"]


def test_most_forgeries_would_pass_if_any_vector_would_do() -> None:
    """The control: the weaker question does not find them."""
    found = Forgeries(weaker=True).over(PROTOCOLS["nested-sweep"], range(4))
    assert found.forged["early"]
    assert found.forged["elsewhere"]
    assert sum(found.explained.values()) * 2 > sum(found.forged.values())
