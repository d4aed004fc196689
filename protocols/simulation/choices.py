"""Whatever a run leaves open is decided here: which event comes next, how old an answer is.

Everybody who needs a decision lists the possibilities and picks one by its number, and number 0
always means *finish what is under way before anything new begins*. So a list of numbers is a whole
schedule, the empty list is the most sequential one, and shrinking a schedule means making numbers
small and the list short.
"""

from collections.abc import Sequence
from random import Random
from typing import Protocol


class Choices(Protocol):
    """Who decides."""

    @property
    def taken(self) -> list[int]:
        """The choices so far."""
        ...

    def pick(self, weights: Sequence[int]) -> int:
        """The number of one of the possibilities, which are as likely as their weights say."""
        ...

    def below(self, number: int) -> int:
        """One of 0, …, number - 1, all equally likely."""
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
    """Choices from a list; behind its end, everything is finished in turn."""

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

    `next_beginning` is the one that has to be tried next, None when all have been.
    """

    def __init__(self, beginning: Sequence[int] = ()) -> None:
        self._beginning = beginning
        self.taken: list[int] = []
        #: How many possibilities there were at each choice.
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
