"""Slices of a stretch of positions: each can be swept by itself, since joins are linear.

No position is in two slices, so their changes only have to be concatenated. A transaction is never
cut, however many rows it changes: its rows have one position.
"""

from dataclasses import dataclass

from protocols.exchange.deliveries import Numbers


@dataclass(frozen=True)
class Slice:
    """Some of the positions of a stretch, both ends included."""

    first: int
    last: int


def cut(positions: Numbers, first: int, last: int, slices: int) -> list[Slice]:
    """Cuts the stretch from `first` to `last` into at most `slices` slices with similar row counts.

    `positions` are the positions of its rows, ascending.
    """
    edges = {int(positions[len(positions) * each // slices]) for each in range(1, slices)}
    begins = [first, *sorted(edges - {first})]
    ends = [*(begin - 1 for begin in begins[1:]), last]
    return [Slice(*each) for each in zip(begins, ends, strict=True)]
