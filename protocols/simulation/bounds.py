"""How many questions a protocol may ask: the bounds that are claimed, held against each run.

n is the number of atoms of the view and I the number of inner atoms of its join tree. A transaction
that changes several atoms counts once for each of them.
"""

from itertools import pairwise

from protocols.maintenance.registry import Entry
from protocols.simulation.journal import Outcome
from protocols.views.jointree import queries_per_batch
from protocols.views.tree import AnyView, TreeView
from protocols.views.view import View

#: Exactly n - 1 questions per changed atom, those that an empty partial saved included.
_EXACT = ("sweep", "parallel-sweep", "pipelined-sweep", "naive")
#: At most n - 1 per changed atom of all that is installed at once.
_COMPOSITE = ("nested-sweep",)
#: At most n + I - 1 per batch; its questions all carry the last position of the batch.
_BATCHED = ("batched-sweep",)


def exceeded(view: AnyView, protocol: Entry, outcome: Outcome) -> str | None:
    """The first place where a run asked more than its protocol may; None if it never did.

    The bounds are those of inner joins.
    """
    if isinstance(view, TreeView):
        return None
    if protocol.name in _EXACT:
        return _exact(view, outcome)
    if protocol.name in _COMPOSITE:
        return _composite(view, outcome)
    if protocol.name in _BATCHED:
        return _batched(view, outcome)
    return None


def _exact(view: View, outcome: Outcome) -> str | None:
    others = len(view.atoms) - 1
    for position in range(1, len(outcome.groups) + 1):
        due = others * _changed(view, outcome, position)
        asked, skipped = outcome.queries.get(position, 0), outcome.skipped.get(position, 0)
        if asked + skipped != due:
            return f"position {position}: {asked} asked and {skipped} saved instead of {due}"
    return None


def _composite(view: View, outcome: Outcome) -> str | None:
    others = len(view.atoms) - 1
    shown = [state.position for state in outcome.states]
    for before, last in pairwise(shown):
        inside = range(before + 1, last + 1)
        asked = sum(outcome.queries.get(position, 0) for position in inside)
        allowed = others * sum(_changed(view, outcome, position) for position in inside)
        if asked > allowed:
            return f"positions {before + 1} to {last}: {asked} asked, {allowed} allowed"
    return None


def _batched(view: View, outcome: Outcome) -> str | None:
    allowed = queries_per_batch(view)
    for position, asked in outcome.queries.items():
        if position > 0 and asked > allowed:
            return f"batch up to position {position}: {asked} asked, {allowed} allowed"
    return None


def _changed(view: View, outcome: Outcome, position: int) -> int:
    """How many atoms the transactions of a position change."""
    changed = {
        relation
        for source, version in outcome.groups[position - 1]
        for relation in outcome.sources[source].updates[version - 1].changes
    }
    return sum(atom.relation in changed for atom in view.atoms)
