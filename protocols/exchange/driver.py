"""Drives the protocols of all views of one reading. It does no I/O and knows no clock.

    transactions ─> delivery ─> mailbox ─> protocol ─> pieces of work ─> installs
                                              ^               │ questions
                                              ├─ snapshots <──┼──> send, answered, hand over
                                              └─ changes <────┴──> stretches, swept

Somebody else brings updates and carries questions and answers: the job reads topics and asks query
servers, the simulator draws what happens next. What follows from it is decided here, for both:

* Every protocol begins what it can whenever something has changed for it.
* Questions of all views that coincide go out once (`sharing.py`), unless a copy that is kept here
  answers them (`copies.py`).
* An answer is handed over when everything that it contains has been received, and then as a
  snapshot at one version (`correction.py`); one that lacks what is forgotten is asked for again.
* Protocols that compare versions take answers in any order. Those that count on FIFO get updates
  and answers of a source in the order in which they happened there: while a question to it is under
  way none of its updates gets in line; then its answers come by version, and before each the
  updates that it contains.
* A stretch of positions that somebody else may sweep (`protocol.py`) is handed out to whoever takes
  it; all other views go on until its change is here.
* States become visible in the order of their positions.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from protocols.algebra.delta import Delta
from protocols.errors import ProtocolBug, SourceViolation
from protocols.exchange.copies import Router
from protocols.exchange.correction import came_too_late, snapshot
from protocols.exchange.deliveries import Numbers
from protocols.exchange.delivery import Delivery
from protocols.exchange.inclusion import Prefix
from protocols.exchange.mailbox import Mailbox, Received
from protocols.exchange.protocol import Install, Maintaining, Stretch, Work, here
from protocols.exchange.questions import Answer, Joint, Question, Snapshot
from protocols.exchange.sharing import Shared

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


@dataclass(eq=False)
class Asked(Generic[D]):
    """A question that has gone out, for all who want its answer."""

    question: Question[D]
    #: Who has not been handed it.
    wanting: list[Wanted[D]]
    answer: Answer[D] | None = None


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

    def take_up(self, ends: Mapping[str, int], most: int | None = None) -> bool:
        """Lines up received transactions, by their time of commit; whether more of them wait."""
        before = self.mailbox.last_position
        more = self.delivery.take_up(ends, most)
        self._delivered(before)
        return more

    def line_up(self, sources: Sequence[str], which: Numbers, version: Numbers) -> None:
        """Lines up received transactions in this order: of `sources[which]` the version."""
        before = self.mailbox.last_position
        self.delivery.line_up(sources, which, version)
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
        fault, last = None, self.delivery.in_line[source]
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
            for version in range(self.delivery.in_line[source] + 1, found.version + 1):
                self.delivery.get_in_line(source, version)
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


class Driver(Generic[D]):
    """All views over what one reading receives."""

    def __init__(self, received: Received[D], router: Router[D] | None = None) -> None:
        #: What has been received for all views.
        self.received = received
        self.views: list[Maintained[D]] = []
        #: Who asks besides the views.
        self.asking: list[Asker[D]] = []
        #: Who answers for a source.
        self.router = Router[D]() if router is None else router
        #: What has gone out and has not been handed to all who want it.
        self._out: dict[Asked[D], None] = {}

    @property
    def open(self) -> bool:
        """Whether any piece of work waits for answers, or is done elsewhere."""
        return any(view.open for view in self.views)

    @property
    def unsent(self) -> bool:
        """Whether any question has not gone out."""
        return any(asker.unsent for asker in (*self.views, *self.asking))

    def begin(self) -> None:
        """Lets every protocol begin whatever it can."""
        for view in self.views:
            view.begin()

    def send(self) -> list[Asked[D]]:
        """The questions that have to go out now: what coincides once, what a copy answers not."""
        if not self.unsent:
            return []
        askers: list[Asker[D]] = [*self.views, *self.asking]
        wanted = [each for asker in askers for each in asker.take_unsent()]
        shared = Shared([each.question for each in wanted])
        sent: list[Asked[D]] = [Asked(question, []) for question in shared.questions]
        for each, place in zip(wanted, shared.places, strict=True):
            sent[place].wanting.append(each)
        self._out |= dict.fromkeys(sent)
        for asked in sent:
            asked.answer = self.router.answer(asked.question)
        return [asked for asked in sent if asked.answer is None]

    @property
    def holds_answers(self) -> bool:
        """Whether an answer is here that somebody has not been handed."""
        return any(asked.answer is not None for asked in self._out)

    def answered(self, asked: Asked[D], answer: Answer[D]) -> None:
        """An answer has arrived."""
        asked.answer = answer

    def missing(self) -> dict[str, int]:
        """Source → what has to be received of it before all answers here can be handed over."""
        newest: dict[str, int] = {}
        for asked, wanted in self._answers():
            source = asked.question.source
            newest[source] = max(_needed(asked, wanted), newest.get(source, 0))
        return {s: upto for s, upto in newest.items() if self.received.received(s) < upto}

    def ready(self) -> list[tuple[Asked[D], Wanted[D]]]:
        """What may be handed over now, to whom; one after the other, in this order."""
        if not self._out:
            return []
        under_way = {
            w.key for a in self._out if a.answer is None for w in a.wanting if w.asker.fifo
        }
        found = [
            (asked, wanted)
            for asked, wanted in self._answers()
            if self.received.received(asked.question.source) >= _needed(asked, wanted)
            and self._has_turn(wanted, under_way)
        ]
        return sorted(found, key=_turn)

    def _answers(self) -> Iterator[tuple[Asked[D], Wanted[D]]]:
        for asked in self._out:
            if asked.answer is not None:
                yield from ((asked, wanted) for wanted in asked.wanting)

    def _has_turn(self, wanted: Wanted[D], under_way: Any) -> bool:
        return not wanted.asker.fifo or wanted.key not in under_way

    def next_ones(self) -> list[tuple[Asked[D], Wanted[D]]]:
        """Of those each that may come first: any one, and of a FIFO channel only its next one."""
        seen: set[Any] = set()
        found = []
        for asked, wanted in self.ready():
            if wanted.asker.fifo and wanted.key in seen:
                continue
            seen.add(wanted.key)
            found.append((asked, wanted))
        return found

    def hand_over(self, asked: Asked[D], wanted: Wanted[D]) -> None:
        """One answer to one view that wants it."""
        answer = asked.answer
        assert answer is not None, "it was among those that are ready"
        if isinstance(wanted.asker, Maintained) and wanted.asker.fifo:
            wanted.asker.refuse_out_of_turn(asked.question.source, answer)
        asked.wanting.remove(wanted)
        if not asked.wanting:
            del self._out[asked]
        if came_too_late(self.received, wanted.question, answer):
            wanted.asker.ask_again(wanted)
        else:
            wanted.asker.hand_over(wanted, answer, snapshot(self.received, wanted.question, answer))

    def hand_over_all(self) -> None:
        """Everything that may be handed over, in its order."""
        while ready := self.ready():
            for asked, wanted in ready:
                self.hand_over(asked, wanted)

    def may_take_up(self, view: Maintained[D], source: str) -> bool:
        """Whether updates of a source may get in line for a view now."""
        return not view.fifo or all(
            each.key != (view, source) for asked in self._out for each in asked.wanting
        )

    def forget(self) -> None:
        """Drops what no view and no copy needs any more."""
        self.router.advance()
        self.received.forget()

    def validate(self) -> None:
        """ProtocolBug if something is not as it has to be."""
        for view in self.views:
            view.validate()


def _needed(asked: Asked[Any], wanted: Wanted[Any]) -> int:
    """Up to where its source has to be received: what the answer contains, and what the view has.

    A view that is further than others may stand at versions that have not been received again.
    """
    assert asked.answer is not None, "it has been answered"
    return max(asked.answer.newest, wanted.asker.mailbox.base(asked.question.source))


def _turn(message: tuple[Asked[Any], Wanted[Any]]) -> tuple[str, int]:
    """By version within a FIFO channel; all others as they were asked."""
    asked, wanted = message
    if not wanted.asker.fifo or asked.answer is None:
        return "", 0
    return asked.question.source, asked.answer.inclusion.version
