"""Drives the pieces of work of a protocol against real query servers.

The questions of all open pieces go out together: a wave. When all of them are answered and what the
answers contain has been received, the pieces are resumed, new ones begin, and what they ask is the
next wave.

    Delivery     transactions get in line, wait for their partners, and are given positions
    Pieces       the waves, for protocols that compare versions and take messages in any order
    InTurn       the same for protocols that count on FIFO: updates and answers of a source are put
                 back into the order in which they happened there, as if they shared one channel
"""

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol, TypeAlias, TypeVar

import polars as pl

from protocols.algebra.frame import VERSION, Frame
from protocols.errors import ProtocolBug, SourceViolation, WrongUse
from protocols.exchange.deliveries import Numbers
from protocols.exchange.holdback import GlobalPart, HoldBack
from protocols.exchange.mailbox import Mailbox, Received
from protocols.exchange.protocol import Install, Maintaining, Work
from protocols.exchange.questions import Maintenance, Question, Snapshot
from protocols.maintenance.registry import Entry
from streaming.stopping import Stopped

T = TypeVar("T")
#: Asks some questions; returns snapshots, when all that the answers contain has been received.
Ask: TypeAlias = Callable[[list[Question[Frame]]], list[Snapshot[Frame]]]


def finish(task: Maintenance[Frame, T], ask: Ask) -> T:
    """One task by itself, round after round."""
    try:
        questions = next(task)
        while True:
            questions = task.send(ask(questions))
    except StopIteration as stop:
        result: T = stop.value
        return result


class Channel:
    """Hands a FIFO protocol its updates in turn with the answers, out of what is received.

    The protocol has a mailbox of its own, which receives a transaction when it passes here.
    """

    def __init__(self, received: Received[Frame], mailbox: Mailbox[Frame]) -> None:
        self._received = received
        self._mailbox = mailbox
        received.read_by(self)

    def pass_on(self, source: str) -> None:
        """The next transaction of the source goes to the mailbox."""
        version = self._mailbox.received(source) + 1
        changes = {}
        for relation in self._mailbox.relations:
            log = self._received.logs[relation]
            found = log.between(version - 1, version) if relation.source == source else None
            if found is not None:
                changes[relation] = found.data.with_columns(pl.lit(version).alias(VERSION))
        self._mailbox.receive(source, version, changes)

    def reads(self, source: str) -> bool:
        """Whether the protocol reads anything of a source."""
        return self._mailbox.reads(source)

    def base(self, source: str) -> int:
        """What has passed is not needed any more."""
        return self._mailbox.received(source)


class Parts(Protocol):
    """Who knows which transactions are parts of global ones."""

    def part_of(self, source: str, version: int) -> GlobalPart | None:
        """The global transaction that a received version is a part of."""
        ...

    def has_parts(self, source: str, after: int, upto: int) -> bool:
        """Whether any of these received versions is a part of a global transaction."""
        ...


class Delivery:
    """The way of received transactions to their positions, in the order in which they get in line.

    Parts of global transactions wait here, and what is behind them, until they are complete.
    """

    def __init__(
        self,
        entry: Entry,
        mailbox: Mailbox[Frame],
        sources: Collection[str],
        parts: Parts,
        channel: Channel | None = None,
    ) -> None:
        self._entry = entry
        self._mailbox = mailbox
        #: Parts of global transactions, and what is behind them.
        self.held = HoldBack(sources)
        self._sources = frozenset(sources)
        self._parts = parts
        #: Source → the last version that got in line. A view that is further than others in its job
        #: stands at versions that have not been received yet.
        self.in_line = {source: mailbox.base(source) for source in sources}
        #: For FIFO protocols: where a transaction comes from when it gets in line.
        self._channel = channel
        #: Called when something has happened that a FIFO protocol may react to.
        self.happened: Callable[[], None] = _nothing

    @property
    def waiting(self) -> bool:
        """Whether a part of a global transaction waits for another one."""
        return self.held.waiting()

    def get_all_in_line(self, sources: Sequence[str], which: Numbers, version: Numbers) -> None:
        """Received transactions in this order: of `sources[which]` the version."""
        ends = {s: int(version[which == n][-1]) for n, s in enumerate(sources) if n in which}
        plain = self._channel is None and not self.waiting
        if plain and not any(
            self._parts.has_parts(source, self.in_line[source], end) for source, end in ends.items()
        ):
            self._mailbox.deliver_each(sources, which, version)
            self.in_line |= ends
            return
        for number, each in zip(which.tolist(), version.tolist(), strict=True):
            self.get_in_line(sources[number], each)

    def get_in_line(self, source: str, version: int) -> None:
        """The next received transaction of a source, which may complete what waits."""
        part = self._parts.part_of(source, version)
        if part is not None and len(part.participants & self._sources) > 1:
            self._refuse_global(part, source, version)
        self.in_line[source] = version
        self.held.arrived(source, version, part)
        if self._channel is not None:
            self._channel.pass_on(source)
            self.happened()
        while groups := self.held.ready():
            self.held.take(groups[0])
            self._mailbox.deliver(*groups[0])
            self.happened()

    def _refuse_global(self, part: GlobalPart, source: str, version: int) -> None:
        try:
            self._entry.refuse_global(part.id)
        except WrongUse as error:
            raise SourceViolation(f"source {source}, version {version}: {error}") from None


def _nothing() -> None:
    """Protocols without FIFO begin when a whole batch is delivered."""


@dataclass(eq=False)
class _Piece:
    """A piece of work, and its current round with the answers that it has been handed."""

    work: Work[Frame]
    #: None before the first one.
    round: list[Question[Frame]] | None = None
    answers: dict[int, Snapshot[Frame]] = field(default_factory=dict)


#: An answer on its way: whose it is, its place in the round, the question, itself.
_Message: TypeAlias = tuple[_Piece, int, Question[Frame], Snapshot[Frame]]


class Pieces:
    """The open pieces of work of one protocol."""

    def __init__(self, protocol: Maintaining[Frame], stopping: threading.Event) -> None:
        self._protocol = protocol
        self._stopping = stopping
        #: What is under way: whose it is, its place in the round, the question.
        self._wave: list[tuple[_Piece, int, Question[Frame]]] = []
        self._open: list[_Piece] = []
        #: What pieces have returned, in order.
        self._installs: list[Install[Frame]] = []

    @property
    def open(self) -> int:
        """How many pieces wait for answers."""
        return len(self._open)

    def take_installs(self) -> list[Install[Frame]]:
        """What is to be made visible and was not taken yet; positions ascend."""
        installs, self._installs = self._installs, []
        return installs

    def begin(self) -> None:
        """Lets the protocol begin whatever it can."""
        while (work := self._protocol.begin()) is not None:
            piece = _Piece(work)
            self._open.append(piece)
            self._resume(piece)

    def asked(self) -> list[Question[Frame]]:
        """The questions of the next wave: those of all open pieces."""
        self._wave = [(p, place, q) for p in self._open for place, q in enumerate(p.round or ())]
        return [question for _, _, question in self._wave]

    def answered(self, answers: Sequence[Snapshot[Frame]]) -> None:
        """Hands the wave's answers over; pieces go on, and new ones begin."""
        wave, self._wave = self._wave, []
        for piece in [piece for piece in self._open if not piece.round]:
            self._go_on(piece)
        self._hand_over([(*asked, answer) for asked, answer in zip(wave, answers, strict=True)])

    def _hand_over(self, messages: Sequence[_Message]) -> None:
        for message in messages:
            self._arrived(message)

    def _arrived(self, message: _Message) -> None:
        piece, place, _, answer = message
        piece.answers[place] = answer
        if piece.round is not None and len(piece.answers) == len(piece.round):
            self._go_on(piece)

    def _go_on(self, piece: _Piece) -> None:
        self._resume(piece)
        self.begin()

    def _resume(self, piece: _Piece) -> None:
        """From one round of questions to the next, or to the end of the piece."""
        if self._stopping.is_set():
            raise Stopped
        answers = [piece.answers[place] for place in range(len(piece.answers))]
        piece.answers = {}
        try:
            piece.round = next(piece.work) if piece.round is None else piece.work.send(answers)
        except StopIteration as done:
            self._open.remove(piece)
            self._refuse_disorder(done.value)
            self._installs += done.value

    def _refuse_disorder(self, installs: Sequence[Install[Frame]]) -> None:
        positions = [install.position for install in (*self._installs[-1:], *installs)]
        if any(later <= earlier for earlier, later in pairwise(positions)):
            raise ProtocolBug(f"the states of positions {positions} were to be shown in this order")


class InTurn(Pieces):
    """For protocols that count on FIFO: per source one order of updates and answers.

    No update of a source gets in line while a question to it is under way. When the wave's answers
    are here, they are taken by version, and before each the source's updates that it contains. A
    question that comes up meanwhile is asked later than all of these happened, in the next wave, so
    for its source they are still before its answer.
    """

    def __init__(
        self, protocol: Maintaining[Frame], stopping: threading.Event, delivery: Delivery
    ) -> None:
        super().__init__(protocol, stopping)
        self._delivery = delivery
        delivery.happened = self.begin

    def _hand_over(self, messages: Sequence[_Message]) -> None:
        def place(message: _Message) -> tuple[str, int]:
            _, _, question, answer = message
            return question.source, answer.version

        for message in sorted(messages, key=place):
            source, version = place(message)
            for update in range(self._delivery.in_line[source] + 1, version + 1):
                self._delivery.get_in_line(source, update)
            self._arrived(message)
