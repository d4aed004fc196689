"""One maintained view: the order of its updates, its mailbox, its protocol and pieces of work.

Its questions stay here until the driver of all views (driver.py) takes them; the stretches that it
hands out and the states to show, until the job or the simulator takes them.
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
#: The number of last events of a view that an error message lists.
_STORY = 40


@dataclass(eq=False)
class _Piece(Generic[D]):
    """A piece of work and its current round."""

    work: Work[D]
    round: list[Question[D]] = field(default_factory=list)
    #: For each question of the round the snapshot of its answer.
    found: list[Snapshot[D] | None] = field(default_factory=list)


class Asker(Protocol[D]):
    """Asks questions and receives the answers: a view, or a copy that is being built."""

    @property
    def fifo(self) -> bool:
        """Whether it relies on answers that come in order with updates."""
        ...

    @property
    def mailbox(self) -> Mailbox[D]:
        """Its own view of the received updates."""
        ...

    @property
    def unsent(self) -> int:
        """The number of questions that have not been sent."""
        ...

    def take_unsent(self) -> "list[WantedAnswer[D]]":
        """Takes the questions that have not been sent."""
        ...

    def ask_again(self, wanted: "WantedAnswer[D]") -> None:
        """Asks a question again whose answer cannot be used."""
        ...

    def hand_over(self, wanted: "WantedAnswer[D]", answer: Answer[D], found: Snapshot[D]) -> None:
        """Takes in an answer, with the snapshot made from it."""
        ...


@dataclass(frozen=True, eq=False)
class WantedAnswer(Generic[D]):
    """A question with its asker and, for a piece of work, its place in the round."""

    asker: Asker[D]
    question: Question[D]
    _piece: _Piece[D] | None = None
    _place: int = 0

    @property
    def round(self) -> object:
        """The same object for all questions of a running piece of work."""
        return self._piece

    @property
    def key(self) -> tuple[Asker[D], str]:
        """The FIFO channel that its answer belongs to."""
        return self.asker, self.question.source


class Maintained(Generic[D]):
    """One view: the order of its updates, its mailbox, its running protocol."""

    def __init__(
        self,
        name: str,
        mailbox: Mailbox[D],
        delivery: Delivery[D],
        fifo: bool = False,
        note: Callable[["WantedAnswer[D]", Answer[D], Snapshot[D]], None] | None = None,
        elsewhere: Callable[[Stretch[D]], bool] | None = None,
    ) -> None:
        """`note` is called with every answer that is handed over, and the snapshot made from it;
        `elsewhere` says whether a stretch is handed out instead of being swept here.
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
        self._unsent: list[WantedAnswer[D]] = []
        #: Stretches that wait to be taken, and those that are being swept elsewhere.
        self._untaken: list[Stretch[D]] = []
        self._taken: list[Stretch[D]] = []
        #: States that pieces have returned and that have not been taken.
        self._installs: list[Install[D]] = []
        #: The last position that a piece has returned. Invariant: positions ascend.
        self._shown = mailbox.start - 1
        self._beginning = False
        #: The last events, each as words of a message.
        self._story: deque[tuple[Any, ...]] = deque(maxlen=_STORY)

    # -- updates -------------------------------------------------------------------------------

    def enqueue_upto(self, ends: Mapping[str, int], most: int | None = None) -> bool:
        """Enqueues received transactions in order of commit time; returns whether more wait."""
        before = self.mailbox.last_position
        more = self.delivery.enqueue_upto(ends, most)
        self._delivered(before)
        return more

    def enqueue_each(self, sources: Sequence[str], which: Numbers, version: Numbers) -> None:
        """Enqueues received transactions in this order: each a version of `sources[which]`."""
        before = self.mailbox.last_position
        self.delivery.enqueue_each(sources, which, version)
        self._delivered(before)

    def _delivered(self, before: int) -> None:
        self._tell("delivered", before + 1, self.mailbox.last_position)

    # -- pieces of work ------------------------------------------------------------------------

    def start(self, protocol: Maintaining[D]) -> None:
        """Starts the protocol once the view has a state."""
        self._protocol = protocol
        self._shown = self.mailbox.start
        if self.fifo:
            self.delivery.happened = self.begin

    def end(self) -> None:
        """Ends the protocol and all that it has begun; no update is kept for it any more."""
        self._protocol = None
        for each in (self._pieces, self._unsent, self._untaken, self._taken, self._installs):
            each.clear()
        self.delivery.leave()

    def begin(self) -> None:
        """Lets the protocol begin all work that it can.

        A piece that ends at once may let another one begin; the running loop then begins it.
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
        """Starts a piece of work."""
        piece = _Piece(work)
        self._pieces.append(piece)
        self._go_on(piece, lambda: next(work))

    def _go_on(self, piece: _Piece[D], step: Callable[[], list[Question[D]]]) -> None:
        """Runs a piece to its next round that asks anything, or to its end."""
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
            self._unsent.append(WantedAnswer(self, question, piece, place))

    def _ended(self, installs: list[Install[D]]) -> None:
        for install in installs:
            first = install.position if install.first is None else install.first
            if not self._shown < first <= install.position <= self.mailbox.last_position:
                self._is_wrong(
                    f"cannot show {first} to {install.position}: position {self._shown} is shown,"
                    f" and positions up to {self.mailbox.last_position} are delivered"
                )
            self._shown = install.position
            self._tell("shows", first, install.position)
        self._installs += installs

    def take_stretches(self) -> list[Stretch[D]]:
        """Takes the stretches to be swept elsewhere that have not been taken."""
        taken, self._untaken = self._untaken, []
        self._taken += taken
        return taken

    def swept(self, stretch: Stretch[D], change: D | None) -> None:
        """Takes in the change of a taken stretch; None if it was written where it was swept."""
        if stretch not in self._taken:
            self._is_wrong(f"positions {stretch.first} to {stretch.last} were not handed out")
        self._taken.remove(stretch)
        self._tell("swept by executors:", stretch.first, "to", stretch.last)
        self._ended([stretch.install(change)])
        self.begin()

    @property
    def unsent(self) -> int:
        """The number of questions that have not been sent."""
        return len(self._unsent)

    def take_unsent(self) -> list[WantedAnswer[D]]:
        """Takes the questions that have not been sent."""
        unsent, self._unsent = self._unsent, []
        return unsent

    def ask_again(self, wanted: WantedAnswer[D]) -> None:
        """Asks a question again whose answer cannot be used."""
        self._tell("asks again", *_subject(wanted.question))
        self._unsent.append(wanted)

    def refuse_out_of_turn(self, source: str, answer: Answer[D]) -> None:
        """Raises SourceViolation if an answer does not fit into the order of a FIFO channel."""
        fault, last = None, self.delivery.enqueued[source]
        if answer.parts or answer.inclusion != Prefix(answer.newest):
            fault = "does not answer from a single version"
        elif answer.newest < last:
            fault = f"answers at version {answer.newest} after it has published {last}"
        if fault is not None:
            raise SourceViolation(
                f"view {self.name}: its protocol needs a source's answers and updates to arrive in"
                f" the order in which they happened there, but source {source} {fault}."
                " Choose a protocol that compares versions, such as sweep or batched-sweep"
            )

    def hand_over(self, wanted: WantedAnswer[D], answer: Answer[D], found: Snapshot[D]) -> None:
        """Passes an answer to the protocol; after the last one of a round its piece continues."""
        source, piece = wanted.question.source, wanted._piece
        assert piece is not None, "a view asks as part of a piece of work"
        if self.fifo and self._protocol is not None:
            for version in range(self.delivery.enqueued[source] + 1, found.version + 1):
                self.delivery.enqueue(source, version)
        self._tell("receives", *_subject(wanted.question), "at version", found.version)
        if self._note is not None:
            self._note(wanted, answer, found)
        piece.found[wanted._place] = found
        given = [each for each in piece.found if each is not None]
        if len(given) == len(piece.round):
            self._go_on(piece, lambda: piece.work.send(given))
            self.begin()

    @property
    def open(self) -> int:
        """The number of pieces of work that wait for answers or are done elsewhere."""
        return len(self._pieces) + len(self._untaken) + len(self._taken)

    def take_installs(self) -> list[Install[D]]:
        """Takes the states to be made visible that have not been taken; positions ascend."""
        installs, self._installs = self._installs, []
        return installs

    # -- invariants ----------------------------------------------------------------------------

    def validate(self) -> None:
        """Raises ProtocolBug if no work is under way but a delivered position is not shown."""
        last = self.mailbox.last_position
        if self._protocol is None:
            return
        if not self.open and not self.delivery.waiting and self._shown != last:
            self._is_wrong(f"no work is left at position {last}, but it shows {self._shown}")

    def _is_wrong(self, what: str) -> None:
        told = "\n  ".join(" ".join(map(str, each)) for each in self._story)
        raise ProtocolBug(f"view {self.name}: {what}. The last events:\n  {told}")

    def _tell(self, *happening: Any) -> None:
        self._story.append(happening)


def _subject(question: Question[Any]) -> tuple[Any, ...]:
    """The relation and the position of a question, without its keys, which may be many."""
    what = question.view.name if isinstance(question, Joint) else question.relation
    return what, "for position", question.position
