"""The suite: which rules an adapter breaks, and how."""

import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias

from tests.conformance.adapter import Adapter
from tests.conformance.rules import (
    answers,
    descriptions,
    gaps,
    pasts,
    reaching,
    repetitions,
    resuming,
    topics,
    transactions,
    types,
)
from tests.conformance.stage import Stage

#: What breaks the rule, one text for each case.
Rule: TypeAlias = Callable[[Stage], Iterator[str]]
#: Name → rule.
RULES: dict[str, Rule] = {
    "transactions come whole, once and in order": transactions.come_whole,
    "commit times and sizes are told": transactions.times_and_sizes,
    "parts of global transactions are told": transactions.parts,
    "a token goes on after its version": resuming.tokens,
    "a restart goes on after its version": resuming.restarts,
    "pieces, repetitions and interleaving change nothing": repetitions.change_nothing,
    "what is whole is told": repetitions.is_whole,
    "a lost record is found": gaps.lost_records,
    "a damaged record is found": gaps.damaged_records,
    "answers contain what they say": answers.contain_what_they_say,
    "values survive": types.survive,
    "a topic that was replaced is noticed": topics.replaced,
    "another past is noticed": pasts.noticed,
    "a source describes itself": descriptions.relations,
    "statistics are near": descriptions.statistics,
    "a source that is down is unreachable": reaching.down,
    "nothing is left when it is closed": reaching.closed,
}
#: More cases of one rule say nothing new.
_CASES = 3


@dataclass(frozen=True)
class Violation:
    """A rule that an adapter breaks."""

    rule: str
    what: str


def violations(adapter: Adapter, rules: Sequence[str] = tuple(RULES)) -> list[Violation]:
    """What breaks these rules, a few cases of each."""
    with closing(Stage(adapter)) as stage:
        return [Violation(rule, what) for rule in rules for what in broken(stage, rule)]


def broken(stage: Stage, rule: str) -> list[str]:
    """What breaks one rule, a few cases; an error of the adapter is one."""
    found: list[str] = []
    try:
        found.extend(islice(RULES[rule](stage), _CASES))
    except Exception:
        found.append(traceback.format_exc(limit=-6))
    return found
