"""Equal questions are asked once.

Views of one job, or several atoms of one view, may query the same relation at the same moment. An
answer for a superset of its keys is enough for each of them: the join that follows drops the rest
(algorithms.md, section 5, Lemma 2), corrected or not. So questions about one relation, with the
same condition and the same combinations of columns as keys, become one, with the union of their
keys and the union of their columns.
"""

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Generic, TypeVar

from protocols.algebra.delta import Delta
from protocols.exchange.questions import Joint, Query, Question

D = TypeVar("D", bound=Delta)


class Shared(Generic[D]):
    """A round of questions, and the fewer ones that are asked in their place."""

    def __init__(self, questions: Sequence[Question[D]]) -> None:
        #: The questions to ask.
        self.questions: list[Question[D]] = []
        #: For each original question, the index of the question that is asked in its place.
        self.places: list[int] = []
        known: dict[Hashable, int] = {}
        for question in questions:
            likeness = _likeness(question)
            place = known.get(likeness) if likeness is not None else None
            if place is None:
                place = len(self.questions)
                self.questions.append(question)
                known[likeness] = place
            else:
                self.questions[place] = _united(self.questions[place], question)
            self.places.append(place)


def _likeness(question: Question[D]) -> Hashable:
    """A value that is equal for questions that can be merged; None if it cannot be merged."""
    if isinstance(question, Joint) or question.page is not None:
        return None
    columns = None if question.keys is None else frozenset(k.columns for k in question.keys)
    return question.relation, question.condition, columns


def _united(one: Question[D], other: Question[D]) -> Query[D]:
    assert isinstance(one, Query)
    assert isinstance(other, Query)
    names = {*one.columns, *other.columns}
    columns = tuple(name for name in one.relation.column_names if name in names)
    if one.keys is None or other.keys is None:
        return replace(one, columns=columns)
    theirs = {keys.columns: keys for keys in other.keys}
    keys = tuple(
        ours.plus(theirs[ours.columns]).keys([(name, name) for name in ours.columns])
        for ours in one.keys
    )
    return replace(one, columns=columns, keys=keys)
