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

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from protocols.algebra.delta import Delta
from protocols.exchange.copies import Router
from protocols.exchange.correction import came_too_late, snapshot
from protocols.exchange.mailbox import Received
from protocols.exchange.maintained import Asker, Maintained, Wanted
from protocols.exchange.questions import Answer, Question
from protocols.exchange.sharing import Shared

D = TypeVar("D", bound=Delta)


@dataclass(eq=False)
class Asked(Generic[D]):
    """A question that has gone out, for all who want its answer."""

    question: Question[D]
    #: Who has not been handed it.
    wanting: list[Wanted[D]]
    answer: Answer[D] | None = None


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

    def may_enqueue(self, view: Maintained[D], source: str) -> bool:
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
