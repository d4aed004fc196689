"""The mailbox: what the sources have published, as far as it has arrived here.

Two things happen to an update. It is *received*: its rows are known, and answers that contain it
can be corrected. Later it is *delivered*: it gets its position in the one order in which the
warehouse installs updates. What is received but not delivered counts as position infinity.

This file alone knows how an answer's version and a position relate. An answer of source j at
version v contains the updates of j up to v. A cut at position k wants the updates of j delivered
at or before k. What lies between the two is the error in the answer (algorithms.md, Lemma 1):

    R@cut = answer - (updates in the answer, after the cut) + (updates not in it, up to the cut)

Both sides are contiguous stretches of j's log, because positions extend each source's own order.

A global transaction has parts at several sources and one position, so what has a position is a
group of versions: one for almost every update, several for a global one (see holdback.py).
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from protocols.algebra.delta import Delta
from protocols.errors import ProtocolBug
from protocols.views.catalog import Relation

D = TypeVar("D", bound=Delta)
D_co = TypeVar("D_co", bound=Delta, covariant=True)

#: The position of what is received and not delivered.
NOWHERE = 2**62
#: What is delivered at one position: (source, version), ascending within each source.
Group: TypeAlias = tuple[tuple[str, int], ...]


class Log(Protocol[D_co]):
    """The changes of one relation in version order; `bag.BagLog` and `frame.FrameLog`."""

    def append(self, changes: Any) -> None:
        """Adds changes of versions above all that are here already."""
        ...

    def between(self, after: int, upto: int) -> D_co | None:
        """The sum of the changes with `after < version <= upto`; None when there are none."""
        ...

    def placed(self, after: int, upto: int, positions: Sequence[int]) -> D_co | None:
        """The same, each row with a position: that of version `after + 1` first, and so on."""
        ...

    def forget(self, upto: int) -> None:
        """Drops the changes of versions up to this one."""
        ...


class Mailbox(Generic[D]):
    """Logs of the relations of a view, and the order of delivery."""

    def __init__(
        self,
        logs: Mapping[Relation, Log[D]],
        vector: Mapping[str, int],
        position: int = 0,
    ) -> None:
        #: Relation → its log, empty at first.
        self._logs = dict(logs)
        #: The version vector at `_start`: everything older is neither here nor needed.
        self._base = dict(vector)
        #: The position that the logs begin after.
        self._start = position
        #: Source → the last version received. Invariant: without gaps above `_base`.
        self._received = dict(vector)
        #: Source → positions of its versions `_base + 1, _base + 2, …`; ascending.
        self._positions: dict[str, list[int]] = {source: [] for source in vector}
        #: The group delivered at each position, beginning at `_start + 1`.
        self._order: list[Group] = []
        #: What was received, in this order: (source, version); the first has this number.
        self._arrivals: list[tuple[str, int]] = []
        self._first_arrival = 0

    # -- receiving and delivering --------------------------------------------------------------

    def receive(self, source: str, version: int, changes: Mapping[Relation, Any]) -> None:
        """Takes in the complete transactions of a source up to `version`, in its order."""
        if version <= self._received[source]:
            raise ProtocolBug(f"version {version} of source {source!r} was received before")
        for relation, rows in changes.items():
            self._logs[relation].append(rows)
        arrived = range(self._received[source] + 1, version + 1)
        self._arrivals += [(source, each) for each in arrived]
        self._received[source] = version

    def deliver(self, *group: tuple[str, int]) -> int:
        """Gives received transactions, which belong together, the next position."""
        self._order.append(group)
        for source, version in group:
            positions = self._positions[source]
            expected = self._base[source] + len(positions) + 1
            if version != expected or version > self._received[source]:
                raise ProtocolBug(f"source {source!r}: version {expected} is next, not {version}")
            positions.append(self.last_position)
        return self.last_position

    @property
    def start(self) -> int:
        """The position that the logs begin after."""
        return self._start

    @property
    def last_position(self) -> int:
        """The position of the last delivered update."""
        return self._start + len(self._order)

    def received(self, source: str) -> int:
        """The last version of a source that is here."""
        return self._received[source]

    def caught_up(self, source: str, version: int) -> bool:
        """Whether everything that an answer at this version contains has been received."""
        return self._received[source] >= version

    # -- in the order of receipt ---------------------------------------------------------------

    @property
    def first_arrival(self) -> int:
        """The number of the first transaction received that is not forgotten."""
        return self._first_arrival

    def arrival(self, number: int) -> tuple[str, int] | None:
        """The transaction received with this number; None if it has not come yet."""
        index = number - self._first_arrival
        return self._arrivals[index] if index < len(self._arrivals) else None

    def published(self, relation: Relation, version: int) -> D | None:
        """What this version of its source changes in a relation."""
        return self._logs[relation].between(version - 1, version)

    def holds_parts(self) -> bool:
        """Whether anything received is not delivered: it waits for parts at other sources."""
        return any(
            received > self._base[source] + len(self._positions[source])
            for source, received in self._received.items()
        )

    # -- looking things up ---------------------------------------------------------------------

    def at(self, position: int) -> Group:
        """The transactions with this position."""
        return self._order[position - self._start - 1]

    def version_at(self, source: str, cut: int) -> int:
        """How far a source had come at a cut."""
        return self._base[source] + bisect_right(self._positions[source], cut)

    def vector_at(self, cut: int) -> dict[str, int]:
        """The version of every source at a cut."""
        return {source: self.version_at(source, cut) for source in self._base}

    def change(self, relation: Relation, position: int) -> D | None:
        """What the update with this position changes in a relation."""
        return self.changes(relation, position - 1, position)

    def changes(self, relation: Relation, after: int, upto: int) -> D | None:
        """What the updates with positions in (after, upto] change in a relation, added up."""
        versions = (self.version_at(relation.source, cut) for cut in (after, upto))
        return self._logs[relation].between(*versions)

    def placed(self, relation: Relation, after: int, upto: int) -> D | None:
        """The changes of a relation in versions (after, upto], each row with its position.

        What has no position yet lies behind all that have one.
        """
        source = relation.source
        start = after - self._base[source]
        known = self._positions[source][start : upto - self._base[source]]
        nowhere = [NOWHERE] * (upto - after - len(known))
        return self._logs[relation].placed(after, upto, [*known, *nowhere])

    def difference(self, relation: Relation, version: int, cut: int) -> D | None:
        """What to add to an answer read at `version` so that it becomes the relation at `cut`."""
        wanted = self.version_at(relation.source, cut)
        log = self._logs[relation]
        if version > wanted:
            error = log.between(wanted, version)
            return None if error is None else error.negated()
        return log.between(version, wanted)

    def forget(self, position: int) -> None:
        """Drops what no cut at or after `position` needs, provided answers are not older."""
        for source in self._base:
            version = self.version_at(source, position)
            del self._positions[source][: version - self._base[source]]
            self._base[source] = version
        for relation, log in self._logs.items():
            log.forget(self._base[relation.source])
        kept = (i for i, (s, v) in enumerate(self._arrivals) if v > self._base[s])
        done = next(kept, len(self._arrivals))
        del self._arrivals[:done]
        self._first_arrival += done
        del self._order[: position - self._start]
        self._start = position
