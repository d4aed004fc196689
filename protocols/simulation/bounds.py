"""Compares the number of questions of a run with the bound that its protocol claims."""

from itertools import pairwise

from protocols.maintenance.registry import Entry, QueryBound
from protocols.simulation.journal import Outcome
from protocols.views.jointree import queries_per_batch
from protocols.views.tree import AnyView, TreeView
from protocols.views.view import View


def exceeded(view: AnyView, protocol: Entry, outcome: Outcome) -> str | None:
    """The first place where a run asked more than its protocol may; None if there is none.

    The bounds are those of inner joins.
    """
    if isinstance(view, TreeView):
        return None
    match protocol.questions:
        case QueryBound.EXACT:
            return _exact(view, outcome)
        case QueryBound.COMPOSITE:
            return _composite(view, outcome)
        case QueryBound.BATCHED:
            return _batched(view, outcome)
        case None:
            return None


def _exact(view: View, outcome: Outcome) -> str | None:
    others = len(view.atoms) - 1
    for position in range(1, len(outcome.groups) + 1):
        due = others * _changed(view, outcome, position)
        asked, skipped = _asked(outcome, position), outcome.skipped.get(position, 0)
        if asked + skipped != due:
            return f"position {position}: {asked} asked and {skipped} saved instead of {due}"
    return None


def _composite(view: View, outcome: Outcome) -> str | None:
    others = len(view.atoms) - 1
    shown = [state.position for state in outcome.states]
    for before, last in pairwise(shown):
        inside = range(before + 1, last + 1)
        asked = sum(_asked(outcome, position) for position in inside)
        allowed = others * sum(_changed(view, outcome, position) for position in inside)
        if asked > allowed:
            return f"positions {before + 1} to {last}: {asked} asked, {allowed} allowed"
    return None


def _batched(view: View, outcome: Outcome) -> str | None:
    allowed = queries_per_batch(view)
    for position in outcome.queries.keys() | outcome.copied.keys():
        asked = _asked(outcome, position)
        if position > 0 and asked > allowed:
            return f"batch up to position {position}: {asked} asked, {allowed} allowed"
    return None


def _asked(outcome: Outcome, position: int) -> int:
    """The number of questions for a position, answered by sources or copies."""
    return outcome.queries.get(position, 0) + outcome.copied.get(position, 0)


def _changed(view: View, outcome: Outcome, position: int) -> int:
    """The number of atoms that the transactions of a position change."""
    changed = {
        relation
        for source, version in outcome.groups[position - 1]
        for relation in outcome.sources[source].updates[version - 1].changes
    }
    return sum(atom.relation in changed for atom in view.atoms)
