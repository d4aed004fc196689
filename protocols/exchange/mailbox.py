"""The mailbox: the updates that the sources have published and that have arrived here.

Two things happen to an update. It is *received*: its rows are known, and answers that contain it
can be corrected. Later it is *delivered*: it gets its position in the one order in which the
warehouse installs updates. An update that is received but not delivered has position infinity.

All views of one job share the received updates (`Received`). The order of delivery, and how far
back it reaches, is each view's own (`Mailbox`).

A cut at position k contains the updates of source j delivered at or before k: those up to a version
(`version_at`), because positions extend each source's own order. correction.py compares a cut with
the inclusion of an answer.

A global transaction has parts at several sources and one position, so a position belongs to a group
of versions: one for almost every update, several for a global one (see holdback.py).
"""

from array import array
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import numpy as np

from protocols.algebra.delta import Delta
from protocols.errors import ProtocolBug
from protocols.exchange.deliveries import Deliveries, Numbers
from protocols.views.catalog import Relation

D = TypeVar("D", bound=Delta)
D_co = TypeVar("D_co", bound=Delta, covariant=True)

#: The position of an update that is received but not delivered.
NOWHERE = 2**62
#: The versions delivered at one position: (source, version), ascending within each source.
Group: TypeAlias = tuple[tuple[str, int], ...]


class Log(Protocol[D_co]):
    """The changes of one relation in version order: `bag.BagLog` or `framelog.FrameLog`."""

    def append(self, changes: Any) -> None:
        """Adds changes of versions later than all that are here."""
        ...

    def between(self, after: int, upto: int) -> D_co | None:
        """The sum of the changes with `after < version <= upto`; None when there are none."""
        ...

    def placed(self, after: int, upto: int, positions: Sequence[int]) -> D_co | None:
        """The same rows, each with its position; `positions` starts with that of `after + 1`."""
        ...

    def forget(self, upto: int) -> None:
        """Drops the changes of versions up to this one."""
        ...


class Reader(Protocol):
    """A reader of received updates: a view's mailbox, a channel that fills one, or a copy."""

    def reads(self, source: str) -> bool:
        """Whether it reads anything of a source."""
        ...

    def base(self, source: str) -> int:
        """The version of a source after which it may still look up updates."""
        ...


class Received(Generic[D]):
    """The published updates that have arrived here, in the order of receipt."""

    def __init__(self, logs: Mapping[Relation, Log[D]], vector: Mapping[str, int]) -> None:
        #: Relation → its log, empty at first.
        self.logs = dict(logs)
        #: Source → the last version received. Invariant: without gaps above the vector.
        self._last = dict(vector)
        #: Runs of one source's versions in the order of receipt: (source, first, last).
        self._runs: list[tuple[str, int, int]] = []
        #: The number of the first transaction of each run, numbered in the order of receipt.
        self._numbers: list[int] = []
        #: The number of the next transaction.
        self._next = 0
        #: The readers, which say which versions they still need.
        self._readers: list[Reader] = []
        #: Source → the version up to which all updates are forgotten.
        self._forgotten = dict(vector)

    def receive(self, source: str, version: int, changes: Mapping[Relation, Any]) -> None:
        """Takes in the complete transactions of a source up to `version`, in its order."""
        last = self._last[source]
        if version <= last:
            raise ProtocolBug(f"version {version} of source {source!r} was received before")
        for relation, rows in changes.items():
            self.logs[relation].append(rows)
        self._runs.append((source, last + 1, version))
        self._numbers.append(self._next)
        self._next += version - last
        self._last[source] = version

    def received(self, source: str) -> int:
        """The last version of a source that has been received."""
        return self._last[source]

    def forgotten(self, source: str) -> int:
        """The version of a source up to which all updates are forgotten."""
        return self._forgotten[source]

    def read_by(self, reader: Reader) -> None:
        """Adds a reader: from now on no update is forgotten that it may need."""
        self._readers.append(reader)

    def left_by(self, reader: Reader) -> None:
        """Removes a reader, which needs no updates any more."""
        self._readers.remove(reader)

    @property
    def first_arrival(self) -> int:
        """The number of the first transaction that is not forgotten."""
        return self._numbers[0] if self._numbers else self._next

    def arrival(self, number: int) -> tuple[str, int] | None:
        """The transaction received with this number; None if it has not come yet."""
        if number >= self._next:
            return None
        run = bisect_right(self._numbers, number) - 1
        source, first, _ = self._runs[run]
        return source, first + number - self._numbers[run]

    def forget(self) -> None:
        """Drops the updates that no reader needs any more."""
        needed = {
            source: min((r.base(source) for r in self._readers if r.reads(source)), default=last)
            for source, last in self._last.items()
        }
        self._forgotten |= needed
        for relation, log in self.logs.items():
            log.forget(needed[relation.source])
        while self._runs and self._runs[0][2] <= needed[self._runs[0][0]]:
            del self._runs[0], self._numbers[0]
        if self._runs:
            source, first, last = self._runs[0]
            done = max(0, needed[source] + 1 - first)
            self._runs[0] = source, first + done, last
            self._numbers[0] += done


class Mailbox(Generic[D]):
    """The received updates, and the order in which they were delivered for one view."""

    def __init__(
        self,
        logs: Mapping[Relation, Log[D]] | Received[D],
        vector: Mapping[str, int],
        position: int = 0,
    ) -> None:
        #: Shared with the mailboxes of other views, or (given logs) this one's own.
        self._here = logs if isinstance(logs, Received) else Received(logs, vector)
        self._here.read_by(self)
        #: The version vector at `_start`: no older version is needed.
        self._base = dict(vector)
        #: The position that the order begins after.
        self._start = position
        #: Source → positions of its versions `_base + 1, _base + 2, …`; ascending.
        self._positions = {source: array("q") for source in vector}
        #: The transactions delivered since `_start`: position, index of source, version.
        self._order = (array("q"), array("q"), array("q"))
        self._sources = tuple(vector)

    def leave(self) -> None:
        """From now on no received update is kept for it."""
        self._here.left_by(self)

    # -- receiving and delivering --------------------------------------------------------------

    def receive(self, source: str, version: int, changes: Mapping[Relation, Any]) -> None:
        """Takes in the complete transactions of a source up to `version`, in its order."""
        self._here.receive(source, version, changes)

    def deliver(self, *group: tuple[str, int]) -> int:
        """Gives received transactions that belong together the next position."""
        position = self.last_position + 1
        for source, version in group:
            self._refuse_disorder(source, version, version)
            self._positions[source].append(position)
            of_position, of_source, of_version = self._order
            of_position.append(position)
            of_source.append(self._sources.index(source))
            of_version.append(version)
        return position

    def deliver_each(self, sources: Sequence[str], source: Numbers, version: Numbers) -> None:
        """Gives each of these transactions a position of its own, in this order."""
        first = self.last_position + 1
        positions = np.arange(first, first + len(version), dtype=np.int64)
        for number, name in enumerate(sources):
            mine = source == number
            versions = version[mine]
            if not len(versions):
                continue
            self._refuse_disorder(name, int(versions[0]), int(versions[-1]))
            if int(versions[-1] - versions[0]) + 1 != len(versions):
                raise ProtocolBug(f"source {name!r}: the order leaves out a version")
            self._positions[name].frombytes(positions[mine].tobytes())
        ours = np.array([self._sources.index(name) for name in sources], np.int64)[source]
        for kept, new in zip(self._order, (positions, ours, version), strict=True):
            kept.frombytes(new.tobytes())

    def deliver_as(self, order: Deliveries) -> None:
        """Gives transactions the positions that they have in the order of another mailbox."""
        if len(np.unique(order.position)) == len(order):
            self.deliver_each(order.sources, order.source, order.version)
            return
        transactions = zip(order.position, order.source, order.version, strict=True)
        for _, group in groupby(transactions, key=itemgetter(0)):
            self.deliver(*((order.sources[source], int(version)) for _, source, version in group))

    def _refuse_disorder(self, source: str, first: int, last: int) -> None:
        expected = self._base[source] + len(self._positions[source]) + 1
        if first != expected or last > self.received(source):
            raise ProtocolBug(f"source {source!r}: version {expected} is next, not {first}")

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources that it reads."""
        return self._sources

    @property
    def relations(self) -> tuple[Relation, ...]:
        """The relations whose changes are received."""
        return tuple(self._here.logs)

    @property
    def start(self) -> int:
        """The position that the order begins after."""
        return self._start

    @property
    def last_position(self) -> int:
        """The position of the last delivered update."""
        positions, _, _ = self._order
        return positions[-1] if positions else self._start

    def received(self, source: str) -> int:
        """The last version of a source that has been received."""
        return self._here.received(source)

    # -- in the order of receipt ---------------------------------------------------------------

    @property
    def first_arrival(self) -> int:
        """The number of the first transaction received that is not forgotten."""
        return self._here.first_arrival

    def arrival(self, number: int) -> tuple[str, int] | None:
        """The transaction received with this number; None if it has not come yet."""
        return self._here.arrival(number)

    def published(self, relation: Relation, version: int) -> D | None:
        """The change of a relation by this version of its source."""
        return self._here.logs[relation].between(version - 1, version)

    def holds_parts(self) -> bool:
        """Whether any received update is not delivered: it waits for parts at other sources."""
        return any(
            self.received(source) > base + len(self._positions[source])
            for source, base in self._base.items()
        )

    # -- looking things up ---------------------------------------------------------------------

    def deliveries(self, after: int, upto: int) -> Deliveries:
        """The transactions with positions in (after, upto], in their order."""
        first, stop = (bisect_right(self._order[0], position) for position in (after, upto))
        columns = (np.array(column[first:stop], np.int64) for column in self._order)
        return Deliveries(self._sources, *columns)

    def version_at(self, source: str, cut: int) -> int:
        """The version of a source at a cut."""
        return self._base[source] + bisect_right(self._positions[source], cut)

    def vector_at(self, cut: int) -> dict[str, int]:
        """The version of every source at a cut."""
        return {source: self.version_at(source, cut) for source in self._base}

    def change(self, relation: Relation, position: int) -> D | None:
        """The change of a relation by the update with this position."""
        return self.changes(relation, position - 1, position)

    def changes(self, relation: Relation, after: int, upto: int) -> D | None:
        """The sum of the changes of a relation at positions in (after, upto]."""
        versions = (self.version_at(relation.source, cut) for cut in (after, upto))
        return self._here.logs[relation].between(*versions)

    def placed(self, relation: Relation, after: int, upto: int) -> D | None:
        """The changes of a relation in versions (after, upto], each row with its position.

        Changes without a position yet count as after all others.
        """
        source = relation.source
        start = after - self._base[source]
        positions = self._positions[source][start : upto - self._base[source]]
        positions.extend(array("q", [NOWHERE]) * (upto - after - len(positions)))
        return self._here.logs[relation].placed(after, upto, positions)

    def logged(self, relation: Relation, after: int, upto: int) -> D | None:
        """The sum of the changes of a relation in versions (after, upto]."""
        return self._here.logs[relation].between(after, upto)

    # -- forgetting ----------------------------------------------------------------------------

    def reads(self, source: str) -> bool:
        """Whether this view reads anything of a source."""
        return source in self._base

    def base(self, source: str) -> int:
        """The version after which this mailbox may still look up updates."""
        return self._base[source]

    def forget(self, position: int) -> None:
        """Drops updates that no cut at or after `position` needs; answers must not be older."""
        for source in self._base:
            version = self.version_at(source, position)
            del self._positions[source][: version - self._base[source]]
            self._base[source] = version
        done = bisect_right(self._order[0], position)
        for column in self._order:
            del column[:done]
        self._start = position
        self._here.forget()
