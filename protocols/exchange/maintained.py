"""One view at work: the order of its updates, its mailbox, its protocol and the pieces of work.

What it asks, what it hands out and what is to become visible lies here until somebody takes it:
the driver of all views (driver.py) its questions, the job or the simulator the rest.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from protocols.algebra.delta import Delta
from protocols.errors import ProtocolBug, SourceViolation
from protocols.exchange.deliveries import Numbers
from protocols.exchange.delivery import Delivery
from protocols.exchange.inclusion import Prefix
from protocols.exchange.mailbox import Mailbox
from protocols.exchange.protocol import Install, Maintaining, Stretch, Work, here
from protocols.exchange.questions import Answer, Joint, Question, Snapshot

D = TypeVar("D", bound=Delta)
#: So many of its last happenings are told when something turns out to be wrong with a view.
_STORY = 40


@dataclass(eq=False)
class _Piece(Generic[D]):
    """A piece of work and its current round."""

    work: Work[D]
    round: list[Question[D]] = field(default_factory=list)
    #: For each question of the round what was made of its answer.
    found: list[Snapshot[D] | None] = field(default_factory=list)


class Asker(Protocol[D]):
    """Asks questions and is handed the answers: a view, or a copy in the making."""

    @property
    def fifo(self) -> bool:
        """Whether it counts on answers that come in turn with updates."""
        ...

    @property
    def mailbox(self) -> Mailbox[D]:
        """Its own view of what has been received."""
        ...

    @property
    def unsent(self) -> int:
        """How many questions have not been sent."""
        ...

    def take_unsent(self) -> "list[Wanted[D]]":
        """Questions that have not been sent."""
        ...

    def ask_again(self, wanted: "Wanted[D]") -> None:
        """Its answer is of no use here."""
        ...

    def hand_over(self, wanted: "Wanted[D]", answer: Answer[D], found: Snapshot[D]) -> None:
        """An answer, and the snapshot made of it."""
        ...


@dataclass(frozen=True, eq=False)
class Wanted(Generic[D]):
    """A question: whose it is, and for a piece of work its place in the round."""

    asker: Asker[D]
    question: Question[D]
    _piece: _Piece[D] | None = None
    _place: int = 0

    @property
    def round(self) -> object:
        """The same for all questions of a piece that is at work."""
        return self._piece

    @property
    def key(self) -> tuple[Asker[D], str]:
        """The FIFO channel that its answer belongs to."""
        return self.asker, self.question.source


class Maintained(Generic[D]):
    """One view: the order of its updates, its mailbox, its protocol at work."""

    def __init__(
        self,
        name: str,
        mailbox: Mailbox[D],
        delivery: Delivery[D],
        fifo: bool = False,
        note: Callable[["Wanted[D]", Answer[D], Snapshot[D]], None] | None = None,
        elsewhere: Callable[[Stretch[D]], bool] | None = None,
    ) -> None:
        """`note` is called with every answer that is handed over, and the snapshot made of it;
        `elsewhere` says of a stretch whether it is handed out, and not swept here.
        """
        self.name = name
        self.mailbox = mailbox
        self.delivery = delivery
        self.fifo = fifo
        self._note = note
        self._elsewhere = elsewhere
        #: None until the view has a state.
        self._protocol: Maintaining[D] | None = None
        #: Invariant: each has a question that is not sent, or not answered, or not handed over.
        self._pieces: list[_Piece[D]] = []
        self._unsent: list[Wanted[D]] = []
        #: Stretches that nobody has taken yet, and those that somebody sweeps.
        self._untaken: list[Stretch[D]] = []
        self._taken: list[Stretch[D]] = []
        #: What pieces have returned and nobody has taken.
        self._installs: list[Install[D]] = []
        #: The last position that a piece has returned. Invariant: positions ascend.
        self._shown = mailbox.start - 1
        self._beginning = False
        #: The last happenings: what, and what of it.
        self._story: deque[tuple[Any, ...]] = deque(maxlen=_STORY)

    # -- updates -------------------------------------------------------------------------------

    def enqueue_upto(self, ends: Mapping[str, int], most: int | None = None) -> bool:
        """Lines up received transactions, by their time of commit; whether more of them wait."""
        before = self.mailbox.last_position
        more = self.delivery.enqueue_upto(ends, most)
        self._delivered(before)
        return more

    def enqueue_each(self, sources: Sequence[str], which: Numbers, version: Numbers) -> None:
        """Lines up received transactions in this order: of `sources[which]` the version."""
        before = self.mailbox.last_position
        self.delivery.enqueue_each(sources, which, version)
        self._delivered(before)

    def _delivered(self, before: int) -> None:
        self._tell("delivered", before + 1, self.mailbox.last_position)

    # -- pieces of work ------------------------------------------------------------------------

    def start(self, protocol: Maintaining[D]) -> None:
        """The view has a state: from now on this protocol keeps it."""
        self._protocol = protocol
        self._shown = self.mailbox.start
        if self.fifo:
            self.delivery.happened = self.begin

    def begin(self) -> None:
        """Lets the protocol begin whatever it can.

        A piece that ends at once may let another one begin; the loop that is under way sees to it.
        """
        if self._beginning or self._protocol is None:
            return
        self._beginning = True
        try:
            while self.open < self._protocol.width:
                begun = self._protocol.begin()
                if begun is None:
                    break
                if isinstance(begun, Stretch) and self._elsewhere and self._elsewhere(begun):
                    self._tell("hands out", begun.first, "to", begun.last)
                    self._untaken.append(begun)
                else:
                    self.run(here(begun))
        finally:
            self._beginning = False

    def run(self, work: Work[D]) -> None:
        """Takes up a piece of work."""
        piece = _Piece(work)
        self._pieces.append(piece)
        self._go_on(piece, lambda: next(work))

    def _go_on(self, piece: _Piece[D], step: Callable[[], list[Question[D]]]) -> None:
        """To the next round that asks anything, or to the end of the piece."""
        try:
            piece.round = step()
            while not piece.round:
                piece.round = piece.work.send([])
        except StopIteration as done:
            self._pieces.remove(piece)
            self._ended(done.value)
            return
        piece.found = [None] * len(piece.round)
        for place, question in enumerate(piece.round):
            self._tell("asks", *_subject(question))
            self._unsent.append(Wanted(self, question, piece, place))

    def _ended(self, installs: list[Install[D]]) -> None:
        for install in installs:
            first = install.position if install.first is None else install.first
            if not self._shown < first <= install.position <= self.mailbox.last_position:
                self._is_wrong(
                    f"the states of positions {first} to {install.position} come behind"
                    f" {self._shown}; {self.mailbox.last_position} are delivered"
                )
            self._shown = install.position
            self._tell("shows", first, install.position)
        self._installs += installs

    def take_stretches(self) -> list[Stretch[D]]:
        """Stretches to be swept elsewhere that nobody has taken yet."""
        taken, self._untaken = self._untaken, []
        self._taken += taken
        return taken

    def swept(self, stretch: Stretch[D], change: D | None) -> None:
        """A stretch that was taken has been swept; no change if whoever did it has written it."""
        if stretch not in self._taken:
            self._is_wrong(f"positions {stretch.first} to {stretch.last} are not swept elsewhere")
        self._taken.remove(stretch)
        self._tell("has swept elsewhere", stretch.first, "to", stretch.last)
        self._ended([stretch.install(change)])
        self.begin()

    @property
    def unsent(self) -> int:
        """How many questions have not been sent."""
        return len(self._unsent)

    def take_unsent(self) -> list[Wanted[D]]:
        """Questions that have not been sent."""
        unsent, self._unsent = self._unsent, []
        return unsent

    def ask_again(self, wanted: Wanted[D]) -> None:
        """Its answer is of no use here."""
        self._tell("asks again", *_subject(wanted.question))
        self._unsent.append(wanted)

    def refuse_out_of_turn(self, source: str, answer: Answer[D]) -> None:
        """SourceViolation if an answer has no place among the updates of a FIFO channel."""
        fault, last = None, self.delivery.enqueued[source]
        if answer.parts or answer.inclusion != Prefix(answer.newest):
            fault = "answers from no single version"
        elif answer.newest < last:
            fault = f"answers at version {answer.newest} after it has published {last}"
        if fault is not None:
            raise SourceViolation(
                f"view {self.name}: its protocol counts on answers that come in turn with"
                f" updates, and source {source} {fault}."
                " Choose one that is told what answers contain, as sweep or batched-sweep"
            )

    def hand_over(self, wanted: Wanted[D], answer: Answer[D], found: Snapshot[D]) -> None:
        """An answer reaches the protocol; with the last one of a round its piece goes on."""
        source, piece = wanted.question.source, wanted._piece
        assert piece is not None, "a view asks as part of a piece of work"
        if self.fifo and self._protocol is not None:
            for version in range(self.delivery.enqueued[source] + 1, found.version + 1):
                self.delivery.enqueue(source, version)
        self._tell("is told", *_subject(wanted.question), "at version", found.version)
        if self._note is not None:
            self._note(wanted, answer, found)
        piece.found[wanted._place] = found
        given = [each for each in piece.found if each is not None]
        if len(given) == len(piece.round):
            self._go_on(piece, lambda: piece.work.send(given))
            self.begin()

    @property
    def open(self) -> int:
        """How many pieces of work wait for answers, or are done elsewhere."""
        return len(self._pieces) + len(self._untaken) + len(self._taken)

    def take_installs(self) -> list[Install[D]]:
        """What is to be made visible and was not taken yet; positions ascend."""
        installs, self._installs = self._installs, []
        return installs

    # -- what has to be so ---------------------------------------------------------------------

    def validate(self) -> None:
        """ProtocolBug if nothing is under way and not everything delivered has been shown."""
        last = self.mailbox.last_position
        if self._protocol is None:
            return
        if not self.open and not self.delivery.waiting and self._shown != last:
            self._is_wrong(f"nothing more to do at position {last}, and {self._shown} are shown")

    def _is_wrong(self, what: str) -> None:
        told = "\n  ".join(" ".join(map(str, each)) for each in self._story)
        raise ProtocolBug(f"view {self.name}: {what}. The last happenings:\n  {told}")

    def _tell(self, *happening: Any) -> None:
        self._story.append(happening)


def _subject(question: Question[Any]) -> tuple[Any, ...]:
    """The relation and the position; not the question, whose keys may be many."""
    what = question.view.name if isinstance(question, Joint) else question.relation
    return what, "for position", question.position
