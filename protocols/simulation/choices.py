"""The choices of a run: which event comes next, how old an answer is.

Code that needs a decision lists the possibilities and picks one by its number. Number 0 always
means *finish work that is under way before beginning new work*. So a list of numbers is a whole
schedule, the empty list is the most sequential one, and shrinking a schedule means making numbers
small and the list short.
"""

from collections.abc import Sequence
from random import Random
from typing import Protocol


class Choices(Protocol):
    """Makes the choices of a run."""

    @property
    def taken(self) -> list[int]:
        """The choices so far."""
        ...

    def pick(self, weights: Sequence[int]) -> int:
        """Picks the number of one of the possibilities, with these weights."""
        ...

    def below(self, number: int) -> int:
        """Picks one of 0, …, number - 1, all equally likely."""
        ...


class Drawn:
    """Choices from a seed; `taken` records them, so that the run can be repeated and shrunk."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed).random
        self.taken: list[int] = []

    def pick(self, weights: Sequence[int]) -> int:
        if len(weights) == 1:
            self.taken.append(0)
            return 0
        left = self._random() * sum(weights)
        index = 0
        while (left := left - weights[index]) >= 0:
            index += 1
        self.taken.append(index)
        return index

    def below(self, number: int) -> int:
        index = int(self._random() * number) if number > 1 else 0
        self.taken.append(index)
        return index


class Recorded:
    """Choices from a list, and 0 after its end."""

    def __init__(self, choices: Sequence[int]) -> None:
        self._given = choices
        self.taken: list[int] = []

    def pick(self, weights: Sequence[int]) -> int:
        return self.below(len(weights))

    def below(self, number: int) -> int:
        made = len(self.taken)
        wanted = self._given[made] if made < len(self._given) else 0
        self.taken.append(min(wanted, number - 1))
        return self.taken[-1]


class Branching:
    """Choices of a depth-first search: a given beginning, then always the first possibility.

    `next_beginning` is the one to try next, None when all have been tried.
    """

    def __init__(self, beginning: Sequence[int] = ()) -> None:
        self._beginning = beginning
        self.taken: list[int] = []
        #: The number of possibilities at each choice.
        self._numbers: list[int] = []

    def pick(self, weights: Sequence[int]) -> int:
        return self.below(len(weights))

    def below(self, number: int) -> int:
        made = len(self.taken)
        self.taken.append(self._beginning[made] if made < len(self._beginning) else 0)
        self._numbers.append(number)
        return self.taken[-1]

    def next_beginning(self) -> list[int] | None:
        for last in range(len(self.taken) - 1, -1, -1):
            if self.taken[last] + 1 < self._numbers[last]:
                return [*self.taken[:last], self.taken[last] + 1]
        return None
