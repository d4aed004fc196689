"""One life of the warehouse: from a start, or a crash, to the next crash.

Everything in here is lost in a crash: the mailbox, what is held back, the protocol and its open
questions, the messages on their way. What lasts is in the journal (the states that were shown) and
at the sources. A new life begins at the position and the vector of the last visible state, so the
sources send again everything behind it, and answers to questions of an earlier life reach nobody.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from protocols.algebra.bag import Bag, Row, bag
from protocols.algebra.expressions import Condition
from protocols.exchange.correction import came_too_late, can_be_used, snapshot, widened
from protocols.exchange.holdback import GlobalPart, HoldBack
from protocols.exchange.inclusion import Inclusion, Prefix, Window
from protocols.exchange.mailbox import Group, Mailbox, Received
from protocols.exchange.protocol import Install, Maintaining, Work
from protocols.exchange.questions import Answer, Joint, Query, Question, Snapshot
from protocols.maintenance.firststate import next_stretch
from protocols.maintenance.registry import Entry
from protocols.operators.memory import Memories
from protocols.simulation.algebras import Algebra
from protocols.simulation.journal import Journal, VisibleState
from protocols.simulation.scenario import Scenario
from protocols.simulation.source import SimulatedSource, cut_page, restricted
from protocols.views.partials import total
from protocols.views.tree import AnyView

#: A relation cut by conditions, and what was read of each part.
Parts: TypeAlias = tuple[tuple[Condition, Prefix], ...]


@dataclass(frozen=True)
class Setting:
    """What is the same in all lives."""

    scenario: Scenario
    entry: Entry
    view: AnyView
    algebra: Algebra
    #: The global transactions, each with the sources that take part.
    globals: Mapping[str, GlobalPart]


@dataclass(eq=False)
class Opened:
    """A question that is under way."""

    id: int
    question: Question[Any]
    #: The version of its source when it was asked: no part of the answer is older, unless stale.
    asked_at: int
    piece: "Piece"
    answer: Answer[Any] | None = None
    #: What was made of the answer and handed over.
    found: Snapshot[Any] | None = None

    def __post_init__(self) -> None:
        self.source = self.question.source

    @property
    def handed_over(self) -> bool:
        return self.found is not None


@dataclass(eq=False)
class Piece:
    """A piece of work that a protocol has begun, and its current round."""

    work: Work[Any]
    round: list[Opened] = field(default_factory=list)


class Life:
    """The warehouse while it runs."""

    def __init__(
        self,
        setting: Setting,
        sources: Mapping[str, SimulatedSource],
        journal: Journal,
        vector: Mapping[str, int],
    ) -> None:
        self._setting = setting
        self._algebra = setting.algebra
        self._sources = sources
        self._journal = journal
        logs = {relation: self._algebra.log() for relation in setting.view.relations}
        self.received: Received[Any] = Received(logs, vector)
        self.mailbox = Mailbox(self.received, vector, max(journal.position, 0))
        self.held = HoldBack(sources)
        #: What could be delivered next; None when it has to be looked up again.
        self._ready: list[Group] | None = None
        #: Per source what happened there and is on its way (None stands for an update); in use
        #: only while `in_turn`.
        self.channels: dict[str, deque[Opened | None]] = {name: deque() for name in sources}
        #: Source → the oldest version that the mailbox can correct an answer from.
        self.oldest = dict(vector)
        #: What was delivered before the crash and has to be delivered again first, in this order.
        self.again: deque[Group] = deque()
        self._memories = Memories()
        #: None until the view has its first state.
        self._protocol: Maintaining[Any] | None = None
        self._pieces: list[Piece] = []
        self._beginning = False

    def begin(self, page: int) -> None:
        """Goes to work: with the first state if there is none yet."""
        if self._journal.states:
            self._begin_to_maintain()
        else:
            self._start(self._first_state(page))

    @property
    def in_turn(self) -> bool:
        """Whether updates and answers of a source come in one channel, in their order."""
        return self._setting.entry.fifo and self._protocol is not None

    @property
    def loading(self) -> bool:
        """Whether the first state is being made."""
        return self._protocol is None

    @property
    def idle(self) -> bool:
        return not self._pieces

    def open(self) -> Iterator[Opened]:
        """All questions of the current rounds."""
        for piece in self._pieces:
            yield from piece.round

    # -- updates -------------------------------------------------------------------------------

    def arrive(self, source: SimulatedSource) -> None:
        """The next update of a source is received: known, but without a position."""
        version = self.mailbox.received(source.name) + 1
        update = source.updates[version - 1]
        relations = self._setting.view.relations
        changes = {
            relation: self._algebra.changes(dict(relation.columns), version, rows)
            for relation, rows in update.changes.items()
            if relation in relations
        }
        self.mailbox.receive(source.name, version, changes)
        part = None if update.global_id is None else self._setting.globals[update.global_id]
        self.held.arrived(source.name, version, part)
        self._ready = None
        if self.in_turn:
            # It may take a part of a global transaction before that can be delivered.
            self._begin_work()

    def ready(self) -> list[Group]:
        """What may be delivered next."""
        if self._ready is None:
            self._ready = self.held.ready()
            if self.again:
                self._ready = [group for group in self._ready if group == self.again[0]]
        return self._ready

    def deliver(self, group: Group) -> None:
        """A group gets the next position, and the protocol may begin with it."""
        self.held.take(group)
        self._ready = None
        if self.again:
            self.again.popleft()
        self._journal.delivered(group, self.mailbox.deliver(*group))
        self._begin_work()

    # -- questions -----------------------------------------------------------------------------

    def evaluated(self, question: Question[Any], contained: Prefix) -> Answer[Any]:
        """What the source answers from a state with these transactions."""
        source = self._sources[question.source]
        if isinstance(question, Joint):
            rows = source.joined(self._terms(question), question.view, contained.upto)
            return Answer(self._algebra.delta(self._setting.view.schema, rows), contained)
        rows, last = self._asked_of(question, contained), None
        if question.page is not None:
            rows, last = cut_page(question.relation, rows, question.page)
        return self._answer(question, rows, contained, last)

    def evaluated_in_parts(self, query: Query[Any], parts: Parts) -> Answer[Any]:
        """The same for a relation whose parts (condition, contents) are read one by one."""
        rows = bag(query.relation.column_names, ())
        for condition, contained in parts:
            rows = rows.plus(self._asked_of(query, contained).where(condition))
        newest = max((contained for _, contained in parts), key=lambda prefix: prefix.upto)
        return self._answer(query, rows, newest, None, parts)

    def evaluated_in_window(
        self, query: Query[Any], window: Window, moments: Callable[[], Sequence[int]]
    ) -> Answer[Any]:
        """The same for rows that are read one by one, those of each key at the drawn moments."""
        asked = widened(query)
        assert isinstance(asked, Query)
        rows = self._restricted(
            asked, self._sources[query.source].read_in(query.relation, window, moments)
        )
        last = None
        if asked.page is not None:
            rows, last = cut_page(asked.relation, rows, asked.page)
        return self._answer(asked, rows, window, last)

    def _answer(
        self,
        query: Query[Any],
        rows: Bag,
        contained: Inclusion,
        last: Row | None,
        parts: Parts = (),
    ) -> Answer[Any]:
        if rows.columns != query.columns:
            rows = rows.select([(column, column) for column in query.columns])
        delta = self._algebra.delta(dict(query.relation.columns), rows)
        return Answer(delta, contained, last, parts=parts)

    def _asked_of(self, query: Query[Any], contained: Prefix) -> Bag:
        held = self._sources[query.source].shown(query.relation, contained)
        return self._restricted(query, held)

    def _restricted(self, query: Query[Any], held: Bag) -> Bag:
        keys = None if query.keys is None else [self._algebra.rows(k) for k in query.keys]
        return restricted(held, query.condition, keys)

    def _terms(self, question: Joint[Any]) -> list[dict[int, Bag]]:
        return [
            {index: self._algebra.rows(rows) for index, rows in term.items()}
            for term in question.terms
        ]

    def can_be_used(self, opened: Opened) -> bool:
        """Whether everything that the answer contains has been received."""
        answer = opened.answer
        return answer is not None and can_be_used(self.received, opened.question, answer)

    def hand_over(self, opened: Opened) -> None:
        """An answer reaches the protocol; with the last one of a round its work goes on.

        One that lacks what is forgotten here is asked for again.
        """
        answer = opened.answer
        assert answer is not None
        if came_too_late(self.received, opened.question, answer):
            opened.answer = None
            return
        opened.found = snapshot(self.received, opened.question, answer)
        if self._differs(opened.question, answer):
            self._journal.differed(opened.question.position)
        rows = len(self._algebra.rows(answer.rows).counts)
        self._journal.answered(opened.id, opened.found.version, rows)
        round_ = opened.piece.round
        if all(other.handed_over for other in round_):
            self._go_on(opened.piece, [o.found for o in round_ if o.found is not None])

    def _differs(self, question: Question[Any], answer: Answer[Any]) -> bool:
        """Does the answer differ from what the relation held at the position it is for?"""
        wanted = Prefix(self.mailbox.version_at(question.source, question.position))
        if answer.inclusion == wanted and not answer.parts:
            return False
        due = self.evaluated(question, wanted).rows
        told = answer.rows.select([(name, name) for name in due.columns])
        return bool(self._algebra.rows(due) != self._algebra.rows(told))

    # -- the protocol at work ------------------------------------------------------------------

    def _begin_work(self) -> None:
        """Lets the protocol begin whatever it can.

        A piece that ends at once leads here again; the loop that is under way then goes on, or a
        long row of such pieces would nest as deep.
        """
        if self._beginning:
            return
        self._beginning = True
        while self._protocol is not None and (work := self._protocol.begin()) is not None:
            self._start(work)
        self._beginning = False

    def _start(self, work: Work[Any]) -> None:
        piece = Piece(work)
        self._pieces.append(piece)
        self._go_on(piece, None)

    def _go_on(self, piece: Piece, answers: list[Snapshot[Any]] | None) -> None:
        """Sends a round's answers to a piece of work, which asks the next round or is done."""
        try:
            asked = next(piece.work) if answers is None else piece.work.send(answers)
        except StopIteration as done:
            self._pieces.remove(piece)
            self._install(done.value)
            self._begin_work()
            return
        piece.round = [self._ask(piece, question) for question in asked]

    def _ask(self, piece: Piece, question: Question[Any]) -> Opened:
        if isinstance(question, Joint):
            sets, name = [rows for term in question.terms for rows in term.values()], "*"
        else:
            sets, name = list(question.keys or ()), question.relation.name
        keys = sum(len(self._algebra.rows(each).counts) for each in sets)
        id_ = self._journal.asked(question.position, question.source, name, keys)
        return Opened(id_, question, self._sources[question.source].version, piece)

    def _install(self, installs: list[Install[Any]]) -> None:
        for state in (one for install in installs for one in install.each()):
            change = None if state.change is None else self._algebra.rows(state.change)
            vector = self.mailbox.vector_at(state.position)
            self._journal.shown(VisibleState(state.position, vector, change), state.skipped)
        if self._protocol is None:
            self._begin_to_maintain()

    def _first_state(self, limit: int) -> Work[Any]:
        """All pages of the first state, which is then installed at position 0."""
        parts, after = [], None
        while True:
            part = yield from next_stretch(
                self._setting.view, self.mailbox, after, limit, self._memories
            )
            if part.rows is not None:
                parts.append(part.rows)
            if part.last_key is None:
                return [Install(0, total(parts))]
            after = part.last_key

    def _begin_to_maintain(self) -> None:
        """The view has a state, so the protocol can start on what comes after it."""
        setting = self._setting
        self._protocol = setting.entry.begin_with(
            setting.view, self.mailbox, self._contents, self._memories
        )
        if self.in_turn:
            for source in self._sources.values():
                missing = source.version - self.mailbox.received(source.name)
                self.channels[source.name].extend([None] * missing)

    def _contents(self) -> Any:
        """The rows of the view now."""
        held = bag(list(self._setting.view.schema), ())
        for state in self._journal.states:
            held = held if state.change is None else held.plus(state.change)
        return self._algebra.delta(self._setting.view.schema, held)

    def forget(self) -> None:
        """Drops what no cut behind the last visible state needs."""
        position = self._journal.position
        self.mailbox.forget(position)
        self.oldest = self.mailbox.vector_at(position)
