"""Random choices that are the same on every machine and in every version of Python.

Only `Random.random` guarantees this, and a power or a logarithm may differ in its last bit between
C libraries: everything here uses only that method, products and truncation.
"""

import hashlib
from collections.abc import Sequence
from decimal import Decimal
from random import Random
from typing import TypeVar

T = TypeVar("T")


class Dice:
    """A sequence of choices, determined by the purpose of the dice."""

    def __init__(self, *purpose: object) -> None:
        text = "/".join(str(part) for part in purpose)
        seed = hashlib.sha256(text.encode()).digest()
        self._random = Random(int.from_bytes(seed, "big")).random

    def chance(self, probability: float) -> bool:
        return self._random() < probability

    def below(self, bound: int) -> int:
        """Any of 0 … bound - 1, with equal probability."""
        return int(self._random() * bound)

    def skewed_below(self, bound: int) -> int:
        """Prefers small numbers: 0 occurs once in sqrt(bound) draws."""
        share = self._random()
        return int(share * share * bound)

    def pick(self, choices: Sequence[T]) -> T:
        return choices[int(self._random() * len(choices))]

    def other(self, choices: Sequence[T], than: T) -> T:
        """Picks a choice other than this one."""
        place = choices.index(than) + 1 + self.below(len(choices) - 1)
        return choices[place % len(choices)]

    def cents(self, low: int, high: int) -> Decimal:
        """An amount with two decimals, from `low` to `high` cents."""
        return money(low + self.below(high - low))


def money(cents: int) -> Decimal:
    return Decimal(cents).scaleb(-2)
