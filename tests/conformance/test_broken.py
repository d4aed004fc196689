"""The suite names the rules that a broken adapter breaks, and no other."""

import pytest

from tests.conformance.adapters.broken import (
    ANSWERS,
    DEFECTS,
    PASTS,
    RESTARTS,
    TOPICS,
    VALUES,
    Defect,
)
from tests.conformance.adapters.simulated import Simulated
from tests.conformance.suite import RULES, violations

#: These take the longest, and run only for the defects that break them.
_LONG = {RESTARTS, ANSWERS, VALUES, TOPICS, PASTS}


@pytest.mark.parametrize("defect", DEFECTS.values(), ids=DEFECTS)
def test_the_suite_names_the_broken_rules(bootstrap: str, defect: Defect) -> None:
    rules = [rule for rule in RULES if rule not in _LONG or rule in defect.rules]
    found = violations(Simulated(bootstrap, defect.partitions, defect.kind), rules)
    assert {each.rule for each in found} - defect.maybe == defect.rules, "\n".join(map(str, found))


def test_each_rule_is_broken_by_a_defect() -> None:
    assert set().union(*(defect.rules for defect in DEFECTS.values())) == set(RULES)
