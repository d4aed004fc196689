"""The order of delivery: the transactions of each position, and the legal vectors.

Row k of `prefixes` is the version vector after the first k positions; row 0 is the vector of the
first state. A chain of vectors x_0 <= x_1 <= … is an array of the same shape, and all computations
"along a chain" work for prefixes and for claimed vectors alike.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from protocols.checking.trace import CommitLine, Trace

Vectors = npt.NDArray[np.int64]
Part = tuple[int, int]


@dataclass(frozen=True)
class DeliveryOrder:
    """The delivered transactions of a trace.

    `positions[s][v]` is the position of version v of the source numbered s (version 0: 0).
    `globals` has the parts (source number, version) of every global transaction.
    """

    sources: tuple[str, ...]
    prefixes: Vectors
    positions: tuple[npt.NDArray[np.int64], ...]
    commits: Mapping[Part, CommitLine]
    at: Mapping[int, tuple[Part, ...]]
    globals: Mapping[str, tuple[Part, ...]]

    @property
    def last(self) -> int:
        """The last position."""
        return len(self.prefixes) - 1

    def position(self, part: Part) -> int | None:
        """The position at which a version was delivered; None if it never was."""
        source, version = part
        known = self.positions[source]
        return int(known[version]) if version < len(known) else None

    def vector(self, row: Sequence[int] | npt.NDArray[np.int64]) -> dict[str, int]:
        return {source: int(v) for source, v in zip(self.sources, row, strict=True)}

    def name(self, part: Part) -> str:
        return f"version {part[1]} of {self.sources[part[0]]}"

    def row(self, vector: Mapping[str, int]) -> list[int]:
        return [vector.get(source, 0) for source in self.sources]


def order_of(trace: Trace) -> DeliveryOrder:
    """Reads the order of delivery from a trace."""
    sources = trace.run.catalog.sources
    number = {source: i for i, source in enumerate(sources)}
    at: dict[int, list[Part]] = defaultdict(list)
    positions: list[list[int]] = [[0] for _ in sources]
    last = 0
    for line in trace.delivers:
        at[line.position].append((number[line.source], line.version))
        positions[number[line.source]].append(line.position)
        last = line.position
    parts: dict[str, list[Part]] = defaultdict(list)
    commits = {}
    for commit in trace.commits:
        part = (number[commit.source], commit.version)
        commits[part] = commit
        if commit.global_id is not None:
            parts[commit.global_id].append(part)
    columns = [np.array(column, dtype=np.int64) for column in positions]
    steps = np.arange(last + 1)
    prefixes = np.stack([np.searchsorted(c, steps, side="right") - 1 for c in columns], axis=1)
    return DeliveryOrder(
        sources,
        prefixes.astype(np.int64),
        tuple(columns),
        commits,
        {k: tuple(v) for k, v in at.items()},
        {k: tuple(v) for k, v in parts.items() if len(v) > 1},
    )


def first_steps(chain: Vectors, source: int, versions: Any) -> npt.NDArray[np.int64]:
    """For each version the first step of a chain that has it; len(chain) if none has."""
    return np.asarray(np.searchsorted(chain[:, source], versions, side="left"), dtype=np.int64)


def is_monotone(chain: Vectors) -> bool:
    return bool((np.diff(chain, axis=0) >= 0).all())


def first_half(order: DeliveryOrder, chain: Vectors) -> tuple[int, str] | None:
    """The first step of a monotone chain that has a global transaction in part, and its name."""
    halves = []
    for name, parts in order.globals.items():
        steps = [int(first_steps(chain, source, version)) for source, version in parts]
        if min(steps) != max(steps):
            halves.append((min(steps), name))
    return min(halves, default=None)
