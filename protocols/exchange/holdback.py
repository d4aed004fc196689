"""Hold-back: a global transaction is delivered as a whole, at one position (algorithms.md, 6d).

A global transaction has a part at each of several sources, and each source publishes its own part
when it commits it. If the parts got positions of their own, the states between them would show half
of a transaction. So a part waits at the head of its source's queue, and everything after it waits
too, until the other parts are here. Parts of two global transactions may have been committed in
opposite orders at two sources; then no legal vector separates them, and both get one position
together. In general a head is delivered together with the smallest set of queue prefixes that is
closed under "all parts of a transaction" and "the order of each source".

A transaction that waits here is received but not delivered: for the mailbox it has position
infinity. Liveness needs the message of every participant, except those whose relations the view
does not read.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from protocols.errors import SourceViolation
from protocols.exchange.mailbox import Group


@dataclass(frozen=True)
class GlobalPart:
    """The global transaction that a part belongs to, as the part states it."""

    id: str
    #: All sources that have a part.
    participants: frozenset[str]


@dataclass(frozen=True)
class Incomplete:
    """A global transaction of which some parts have not been received."""

    id: str
    #: Source → the version that is its part there.
    here: Mapping[str, int]
    missing: tuple[str, ...]


def legal_below(
    vector: Mapping[str, int], parts: Mapping[str, Mapping[int, GlobalPart]]
) -> dict[str, int]:
    """The latest vector at or below this one that has no global transaction in part.

    `parts`: source → version → the global transaction of that version; all known parts, in version
    order. A source is lowered below a part whose partner is missing; then the parts after it are
    missing too, and so on. Each part is looked at once.
    """
    inside = {
        source: [(version, part) for version, part in each.items() if version <= vector[source]]
        for source, each in parts.items()
    }
    places: dict[str, dict[str, int]] = {}
    for source, each in inside.items():
        for version, part in each:
            places.setdefault(part.id, {})[source] = version
    wholes = {part.id: part.participants for each in inside.values() for _, part in each}
    torn = [id_ for id_, here in places.items() if not wholes[id_] & vector.keys() <= here.keys()]
    below = dict(vector)
    while torn:
        for source, version in places.pop(torn.pop(), {}).items():
            below[source] = min(below[source], version - 1)
            while inside[source] and inside[source][-1][0] >= version:
                torn.append(inside[source].pop()[1].id)
    return below


_Waiting: TypeAlias = tuple[int, GlobalPart | None]


class HoldBack:
    """Received transactions on their way to a position."""

    def __init__(self, sources: Iterable[str]) -> None:
        #: Source → its waiting transactions: (version, the global transaction it belongs to).
        self._queues: dict[str, deque[_Waiting]] = {s: deque() for s in sources}
        #: Global transaction → source → the version of its waiting part, in order of arrival.
        self._here: dict[str, dict[str, int]] = {}
        #: The transactions of `_here` that lack parts → the sources of these.
        self._missing: dict[str, frozenset[str]] = {}

    def arrived(self, source: str, version: int, part: GlobalPart | None = None) -> None:
        """Takes in a received transaction; those of one source arrive in order."""
        self._queues[source].append((version, part))
        if part is not None:
            here = self._here.setdefault(part.id, {})
            if source in here:
                raise SourceViolation(
                    f"source {source}, version {version}: this is a second part of global"
                    f" transaction {part.id!r}; version {here[source]} of this source is already a"
                    " part of it. A source may contribute only one part"
                )
            here[source] = version
            self._missing[part.id] = (part.participants & self._queues.keys()) - here.keys()
            if not self._missing[part.id]:
                del self._missing[part.id]

    def waiting(self) -> bool:
        """Whether any transaction has not been taken."""
        return any(self._queues.values())

    def incomplete(self) -> list[Incomplete]:
        """The incomplete global transactions that all others here wait for, in order of arrival."""
        return [
            Incomplete(id_, dict(self._here[id_]), tuple(sorted(missing)))
            for id_, missing in self._missing.items()
        ]

    def held_back(self) -> dict[str, tuple[int, int]]:
        """Source → its first and its last waiting version, for sources that have any."""
        return {
            source: (queue[0][0], queue[-1][0]) for source, queue in self._queues.items() if queue
        }

    def ready(self) -> list[Group]:
        """The groups that could be delivered next: that of each source's head, if it is complete.

        A group that contains a smaller one is left out: the rest of it can get a later position.
        """
        found = (self._group(source) for source, queue in self._queues.items() if queue)
        groups = list(dict.fromkeys(group for group in found if group is not None))
        if max(map(len, groups), default=0) < 2:
            return groups
        sets = [frozenset(group) for group in groups]
        return [g for g, own in zip(groups, sets, strict=True) if not any(s < own for s in sets)]

    def take(self, group: Group) -> None:
        """Removes a group that is being delivered."""
        for source, version in group:
            at, part = self._queues[source].popleft()
            assert at == version, f"version {at} of source {source!r} is next, not {version}"
            if part is not None:
                self._here[part.id].pop(source, None)
                if not self._here[part.id]:
                    del self._here[part.id]

    def _group(self, source: str) -> Group | None:
        """The smallest closed set with the head of this source; None if a part is missing."""
        depth = {source: 1}
        checked: set[str] = set()
        grown = True
        while grown:
            grown = False
            for name, length in list(depth.items()):
                for part in self._parts(name, length):
                    if part.id in checked:
                        continue
                    checked.add(part.id)
                    others = part.participants & self._queues.keys()
                    if not others <= self._here[part.id].keys():
                        return None
                    depth = self._deepened(depth, part.id, others)
                    grown = True
        return tuple(
            (name, self._queues[name][index][0])
            for name in sorted(depth)
            for index in range(depth[name])
        )

    def _parts(self, source: str, length: int) -> list[GlobalPart]:
        queue = self._queues[source]
        parts = (queue[index][1] for index in range(length))
        return [part for part in parts if part is not None]

    def _deepened(self, depth: dict[str, int], id_: str, others: Collection[str]) -> dict[str, int]:
        """The prefixes, each extended to include its part of the transaction."""
        deeper = dict(depth)
        for name in others:
            parts = enumerate(self._queues[name], 1)
            place = next(place for place, (_, part) in parts if part and part.id == id_)
            deeper[name] = max(deeper.get(name, 0), place)
        return deeper
