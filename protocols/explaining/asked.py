"""Questions without rows: which relations are asked, by which columns, and in which order.

A task of maintenance (`exchange/questions.py`) yields rounds of questions. Here a task is only the
list of its rounds. As in `exchange/questions.py`, tasks run one after the other or side by side.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TypeAlias

from protocols.views.catalog import Relation
from protocols.views.view import Atom


@dataclass(frozen=True)
class Ask:
    """One question: the rows of a relation that match keys over these columns."""

    relation: Relation
    #: The column sets of its keys; a row has to match one of them.
    keys: tuple[tuple[str, ...], ...]
    #: Columns that have to be NULL besides, which no key can express.
    nulls: tuple[str, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether all rows of the relation are read."""
        return not self.keys and not self.nulls

    def __str__(self) -> str:
        tests = [f"({', '.join(columns)})" for columns in self.keys]
        tests += [f"({column} IS NULL)" for column in self.nulls]
        return f"{self.relation} by {' or '.join(tests)}" if tests else f"all of {self.relation}"


#: The questions of a task: those of one round go out together.
Rounds: TypeAlias = tuple[tuple[Ask, ...], ...]


def ask(atom: Atom, *keys: tuple[str, ...], nulls: tuple[str, ...] = ()) -> Ask:
    """Makes a question about an atom."""
    return Ask(atom.relation, tuple(dict.fromkeys(keys)), nulls)


def after_another(*tasks: Rounds) -> Rounds:
    """Each task starts when the one before has its answers."""
    return tuple(round_ for rounds in tasks for round_ in rounds)


def side_by_side(tasks: Sequence[Rounds]) -> Rounds:
    """The tasks in step, each round merged into one."""
    in_step = zip_longest(*tasks, fillvalue=())
    return tuple(tuple(each for round_ in rounds for each in round_) for rounds in in_step)


def number(rounds: Rounds) -> int:
    """The number of these questions."""
    return sum(map(len, rounds))
