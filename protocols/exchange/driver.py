"""Drives the protocols of all views that share one reading. It does no I/O and knows no clock.

    transactions ─> delivery ─> mailbox ─> protocol ─> pieces of work ─> installs
                                              ^               │ questions
                                              ├─ snapshots <──┼──> send, answered, hand over
                                              └─ changes <────┴──> stretches, swept

The caller brings updates and carries questions and answers: the job reads topics and asks query
servers, the simulator draws the next event. The driver decides the rest, for both:

* Every protocol begins all work that it can whenever something has changed for it.
* Equal questions of all views go out once (`sharing.py`), unless a copy that is kept here answers
  them (`copies.py`).
* An answer is handed over when all updates that it contains have been received, as a snapshot at
  one version (`correction.py`). If an answer lacks an update that is already forgotten, its
  question is asked again.
* Protocols that compare versions take answers in any order. Those that rely on FIFO get updates
  and answers of a source in the order in which they happened there: while a question to it is under
  way none of its updates is enqueued; then its answers come by version, and before each the
  updates that it contains.
* A stretch of positions that can be swept elsewhere (`protocol.py`) is handed out to the caller;
  all other views go on until its change is here.
* States become visible in the order of their positions.
* A view that fails may be dropped; all others go on.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from protocols.algebra.delta import Delta
from protocols.exchange.copies import Router
from protocols.exchange.correction import came_too_late, snapshot
from protocols.exchange.mailbox import Received
from protocols.exchange.maintained import Asker, Maintained, WantedAnswer
from protocols.exchange.questions import Answer, Question
from protocols.exchange.sharing import Shared

D = TypeVar("D", bound=Delta)


@dataclass(eq=False)
class SentQuestion(Generic[D]):
    """A question that was sent, for everyone that wants its answer."""

    question: Question[D]
    #: The questions whose askers have not received the answer yet.
    wanting: list[WantedAnswer[D]]
    answer: Answer[D] | None = None


class Driver(Generic[D]):
    """Runs the protocols of all views over the updates that their shared reader receives."""

    def __init__(self, received: Received[D], router: Router[D] | None = None) -> None:
        #: The updates received for all views.
        self.received = received
        self.views: list[Maintained[D]] = []
        #: Askers other than the views.
        self.asking: list[Asker[D]] = []
        #: Called with an asker and the error that it has raised; None lets the error through.
        self.failed: Callable[[Asker[D], BaseException], None] | None = None
        #: The copies that answer instead of a source.
        self.router = Router[D]() if router is None else router
        #: Questions that were sent and whose answers not all askers have received.
        self._out: dict[SentQuestion[D], None] = {}

    @property
    def open(self) -> bool:
        """Whether any piece of work waits for answers, or is done elsewhere."""
        return any(view.open for view in self.views)

    @property
    def unsent(self) -> bool:
        """Whether any question has not been sent."""
        return any(asker.unsent for asker in (*self.views, *self.asking))

    def begin(self) -> None:
        """Lets every protocol begin all work that it can."""
        for view in tuple(self.views):
            self._attempt(view, view.begin)

    def _attempt(self, asker: Asker[D], step: Callable[[], None]) -> None:
        try:
            step()
        except BaseException as error:
            if self.failed is None:
                raise
            self.failed(asker, error)

    def send(self) -> list[SentQuestion[D]]:
        """The questions to send now: equal ones once, and none that a copy answers."""
        if not self.unsent:
            return []
        askers: list[Asker[D]] = [*self.views, *self.asking]
        wanted = [each for asker in askers for each in asker.take_unsent()]
        shared = Shared([each.question for each in wanted])
        sent: list[SentQuestion[D]] = [SentQuestion(question, []) for question in shared.questions]
        for each, place in zip(wanted, shared.places, strict=True):
            sent[place].wanting.append(each)
        self._out |= dict.fromkeys(sent)
        for asked in sent:
            asked.answer = self.router.answer(asked.question)
        return [asked for asked in sent if asked.answer is None]

    @property
    def unanswered(self) -> list[SentQuestion[D]]:
        """The questions that were sent and have no answer yet."""
        return [asked for asked in self._out if asked.answer is None]

    @property
    def holds_answers(self) -> bool:
        """Whether an answer is here that an asker has not received."""
        return any(asked.answer is not None for asked in self._out)

    def answered(self, asked: SentQuestion[D], answer: Answer[D]) -> None:
        """Takes in an answer that has arrived."""
        asked.answer = answer

    def missing(self) -> dict[str, int]:
        """Source → the version to receive before all answers here can be handed over."""
        newest: dict[str, int] = {}
        for asked, wanted in self._answers():
            source = asked.question.source
            newest[source] = max(_needed(asked, wanted), newest.get(source, 0))
        return {s: upto for s, upto in newest.items() if self.received.received(s) < upto}

    def ready(self) -> list[tuple[SentQuestion[D], WantedAnswer[D]]]:
        """The answers that may be handed over now, and to which askers, in this order."""
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

    def _answers(self) -> Iterator[tuple[SentQuestion[D], WantedAnswer[D]]]:
        for asked in self._out:
            if asked.answer is not None:
                yield from ((asked, wanted) for wanted in asked.wanting)

    def _has_turn(self, wanted: WantedAnswer[D], under_way: Any) -> bool:
        return not wanted.asker.fifo or wanted.key not in under_way

    def next_ones(self) -> list[tuple[SentQuestion[D], WantedAnswer[D]]]:
        """The ready answers any of which may come first; of a FIFO channel only its next one."""
        seen: set[Any] = set()
        found = []
        for asked, wanted in self.ready():
            if wanted.asker.fifo and wanted.key in seen:
                continue
            seen.add(wanted.key)
            found.append((asked, wanted))
        return found

    def hand_over(self, asked: SentQuestion[D], wanted: WantedAnswer[D]) -> None:
        """Hands one answer to one asker, unless that was dropped and does not want it any more."""
        if wanted not in asked.wanting:
            return
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
        """Hands over all answers that may be handed over, in their order."""
        while ready := self.ready():
            for asked, wanted in ready:
                self._attempt(wanted.asker, partial(self.hand_over, asked, wanted))

    def may_enqueue(self, view: Maintained[D], source: str) -> bool:
        """Whether updates of a source may be enqueued for a view now."""
        return not view.fifo or all(
            each.key != (view, source) for asked in self._out for each in asked.wanting
        )

    def drop(self, view: Maintained[D]) -> None:
        """Ends a view: it gets no more answers, and the updates kept for it are dropped.

        The copies of a source's relations end with the last view that reads the source.
        """
        self.views.remove(view)
        view.end()
        read = {source for left in self.views for source in left.mailbox.sources}
        building = [each for each in self.asking if not read.intersection(each.mailbox.sources)]
        for asker in building:
            self.asking.remove(asker)
            asker.mailbox.leave()
        for relation in [each for each in self.router.copies if each.source not in read]:
            self.received.left_by(self.router.copies.pop(relation))
        self._expect_nothing_for((view, *building))

    def _expect_nothing_for(self, gone: tuple[Asker[D], ...]) -> None:
        for asked in tuple(self._out):
            asked.wanting = [wanted for wanted in asked.wanting if wanted.asker not in gone]
            if not asked.wanting:
                del self._out[asked]

    def forget(self) -> None:
        """Drops the updates that no view and no copy needs any more."""
        self.router.advance()
        self.received.forget()

    def validate(self) -> None:
        """Raises ProtocolBug if an invariant of a view does not hold."""
        for view in self.views:
            view.validate()


def _needed(asked: SentQuestion[Any], wanted: WantedAnswer[Any]) -> int:
    """The version up to which the source has to be received: all that answer and view contain.

    A view that is ahead of others may stand at versions that have not been received again.
    """
    assert asked.answer is not None, "it has been answered"
    return max(asked.answer.newest, wanted.asker.mailbox.base(asked.question.source))


def _turn(message: tuple[SentQuestion[Any], WantedAnswer[Any]]) -> tuple[str, int]:
    """The sort key of an answer: by version within a FIFO channel, else in the order asked."""
    asked, wanted = message
    if not wanted.asker.fifo or asked.answer is None:
        return "", 0
    return asked.question.source, asked.answer.inclusion.version
