"""Defects planted into simulated runs; the audits afterwards are those of a product without them.

Each is one slip in the real code. Other detectors are switched off during the runs: they would stop
some of them first.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from random import Random
from typing import Any
from unittest import mock

from protocols.exchange.inclusion import Prefix
from protocols.exchange.questions import Answer, Question
from protocols.maintenance import tree_sweep
from protocols.maintenance.registry import PROTOCOLS
from protocols.operators.counting import Counted
from protocols.operators.groups import GroupOperator
from protocols.operators.joins import JoinOperator
from protocols.operators.memory import Memory
from protocols.simulation import campaign, setting
from protocols.simulation.answering import Answering
from protocols.simulation.campaign import Campaign
from protocols.simulation.judging import contents_of
from protocols.simulation.life import Life
from tests.harness.campaigns import planted
from tests.harness.simulatedaudits import Hunt

#: (place, name there, replacement).
Slip = tuple[Any, str, Callable[[], Any]]

_BEHIND = (
    "changed = tuple(c.with_columns(pl.lit(span.last, pl.Int64).alias(POSITION)) if c is"
    " changed[1] else c for c in changed)\n    placed = [entries(*each)"
)


def _claims_less(
    answering: Answering,
    question: Question[Any],
    contained: Prefix,
    right: Any = Answering.from_state,
) -> Answer[Any]:
    """The answer contains its last transaction, but says that it does not."""
    found: Answer[Any] = right(answering, question, contained)
    if contained == Prefix(contained.upto) and contained.upto > 2:
        return Answer(found.rows, Prefix(contained.upto - 1), found.last_key)
    return found


SLIPS: Mapping[str, Slip] = {
    "an answer that contains more than it says": (
        Answering,
        "from_state",
        lambda: _claims_less,
    ),
    "answers that are believed": (
        tree_sweep,
        "tree_at_work",
        lambda: planted(
            tree_sweep.tree_at_work,
            "changing(node, mailbox), read)",
            "changing(node, mailbox), as_answered)",
        ),
    ),
    "a join that takes one side's changes too late": (
        JoinOperator,
        "change",
        lambda: planted(JoinOperator.change, "placed = [entries(*each)", _BEHIND),
    ),
    "a memory that does not learn": (
        Memory,
        "learn",
        lambda: planted(Memory.learn, "self._learnt = rows", "pass"),
    ),
    "a group that stays when it is empty": (
        GroupOperator,
        "_is_there",
        lambda: planted(GroupOperator._is_there, "to_numpy() > 0", "to_numpy() >= 0"),
    ),
}


@contextmanager
def slip(name: str) -> Iterator[None]:
    """Plants a defect, and switches the other detectors off."""
    place, attribute, replacement = SLIPS[name]
    with ExitStack() as patches:
        _forget()
        patches.callback(_forget)
        patches.enter_context(mock.patch.object(place, attribute, replacement()))
        patches.enter_context(mock.patch.object(Counted, "check"))
        patches.enter_context(mock.patch.object(Life, "_validate"))
        yield


def _forget() -> None:
    """Clears what runs with and without a defect must not share."""
    caches = (campaign._drawn, campaign._contents, setting.setting_of, setting.parsed)
    for cache in caches:
        cache.cache_clear()


def hunted(name: str, seeds: Iterable[int], enough: int) -> Hunt:
    """Runs with the defect until so many of them show wrong states; audits these without it."""
    hunt, runs = Hunt(), 0
    for seed in seeds:
        with slip(name):
            made = Campaign(PROTOCOLS["batched-sweep"], family="views", double_checked=0)
            outcome = made.run(seed).outcome
        if outcome is None:
            continue
        scenario = made.shaped(seed).scenario
        view = setting.setting_of(scenario, PROTOCOLS["batched-sweep"], "bag").view
        before = hunt.wrong
        hunt.over(outcome, view, contents_of(view, outcome.sources), Random(seed))
        runs += hunt.wrong > before
        if runs == enough:
            break
    return hunt
