"""One life of the warehouse: from a start, or a crash, to the next crash.

The driver, the mailboxes and the protocols are those of production (exchange/driver.py). This file
adds the record of the events, and the simulated sources.

A crash loses everything in it: mailboxes, held-back transactions, protocols and their open
questions, messages on their way. Only the journals (the visible states) and the sources last. A new
life begins at the position and the vector of the last visible state, so the sources send all later
updates again, and answers to questions of an earlier life are dropped.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any

import numpy as np

from protocols.algebra.bag import bag
from protocols.exchange.copying import Copying
from protocols.exchange.correction import snapshot
from protocols.exchange.delivery import Channel, Delivery
from protocols.exchange.driver import Driver, SentQuestion
from protocols.exchange.inclusion import Prefix
from protocols.exchange.mailbox import Group, Mailbox, Received
from protocols.exchange.maintained import Maintained, WantedAnswer
from protocols.exchange.protocol import Install, Work
from protocols.exchange.questions import Answer, Joint, Question, Snapshot
from protocols.exchange.slices import Slice
from protocols.exchange.together import finish
from protocols.maintenance.firststate import next_stretch
from protocols.maintenance.tree_sweep import validate
from protocols.simulation.answering import Answering
from protocols.simulation.elsewhere import Part, Parted, SimulatedExecutors, same_deliveries
from protocols.simulation.journal import Journal, VisibleState
from protocols.simulation.kept import LivingView, Opened
from protocols.simulation.setting import Setting
from protocols.simulation.source import CommitProperties, MemorySource
from protocols.views.catalog import Relation
from protocols.views.partials import total
from protocols.views.tree import TreeView

#: After one in so many installs, the memories of a view's operators are validated.
_VALIDATED = 16


class Life:
    """The warehouse while it runs."""

    def __init__(
        self,
        views: Sequence[tuple[Setting, Journal, Mapping[str, int]]],
        sources: Mapping[str, MemorySource],
        executors: SimulatedExecutors | None = None,
    ) -> None:
        """`views`: each with its record and the vector that it begins at, all over one reading."""
        self._sources = sources
        self._executors = executors
        self._algebra = views[0][0].algebra
        self.answering = Answering(self._algebra, sources)
        relations = dict.fromkeys(r for setting, _, _ in views for r in setting.view.relations)
        begin = {name: min(vector[name] for _, _, vector in views) for name in sources}
        logs = {relation: self._algebra.log() for relation in relations}
        self.received: Received[Any] = Received(logs, begin)
        self.driver: Driver[Any] = Driver(self.received)
        self.views = [self._kept(number, *view) for number, view in enumerate(views)]
        #: The questions that were sent and not answered.
        self.open: list[Opened] = []

    def _kept(
        self, number: int, setting: Setting, journal: Journal, vector: Mapping[str, int]
    ) -> LivingView:
        mailbox = Mailbox(self.received, vector, max(journal.position, 0))
        delivery = self._delivery(setting, mailbox)
        name, note = setting.view.name, self._noting(number)
        wanted = None if self._executors is None else self._executors.want
        maintained = Maintained(name, mailbox, delivery, note=note, elsewhere=wanted)
        self.driver.views.append(maintained)
        return LivingView(setting, journal, maintained, recorded=mailbox.start)

    def _delivery(
        self, setting: Setting, mailbox: Mailbox[Any], channel: Channel[Any] | None = None
    ) -> Delivery[Any]:
        commits, refuse = (
            CommitProperties(self._sources, setting.globals),
            setting.entry.refuse_global,
        )
        return Delivery(mailbox, list(self._sources), commits, refuse, channel)

    def _noting(
        self, number: int
    ) -> Callable[[WantedAnswer[Any], Answer[Any], Snapshot[Any]], None]:
        def note(wanted: WantedAnswer[Any], answer: Answer[Any], found: Snapshot[Any]) -> None:
            self._told(self.views[number], wanted, answer, found)

        return note

    def _through_a_channel(self, number: int, kept: LivingView) -> Maintained[Any]:
        """The view again, for a protocol that relies on FIFO."""
        before = kept.maintained.mailbox
        logs = {relation: self._algebra.log() for relation in kept.setting.view.relations}
        mailbox: Mailbox[Any] = Mailbox(logs, before.vector_at(before.start), before.start)
        channel = Channel(self.received, mailbox, self._as_received)
        self.received.left_by(before)
        delivery = self._delivery(kept.setting, mailbox, channel)
        name, note = kept.setting.view.name, self._noting(number)
        return Maintained(name, mailbox, delivery, fifo=True, note=note)

    def _as_received(self, relation: Relation, changes: Any, version: int) -> Any:
        rows = self._algebra.rows(changes)
        return self._algebra.changes(dict(relation.columns), version, rows)

    def begin(self, page: int, copied: Iterable[Relation] = ()) -> None:
        """Starts every view, with its first state if it has none yet.

        Copies of the relations `copied` are built beside that.
        """
        for relation in copied:
            Copying(self.driver, relation, page, _untold)
        for number, kept in enumerate(self.views):
            if kept.journal.states:
                self._begin_to_maintain(number, kept)
            else:
                kept.maintained.run(_first_state(kept, page))
        self._follow()

    @property
    def loading(self) -> bool:
        """Whether a first state is being made."""
        return any(kept.loading for kept in self.views)

    @property
    def idle(self) -> bool:
        return not self.driver.open

    # -- updates -------------------------------------------------------------------------------

    def arrive(self, source: MemorySource) -> None:
        """Receives the next update of a source: known, but without a position."""
        version = self.received.received(source.name) + 1
        changes = {
            relation: self._algebra.changes(dict(relation.columns), version, rows)
            for relation, rows in source.updates[version - 1].changes.items()
            if relation in self.received.logs
        }
        self.received.receive(source.name, version, changes)

    def may_enqueue(self, kept: LivingView) -> dict[str, int]:
        """Source → the version up to which its updates may be enqueued for a view now."""
        if kept.loading and kept.setting.entry.fifo:
            return {}  # its channel begins with the protocol
        received, enqueued = self.received.received, kept.maintained.delivery.enqueued
        return {
            name: received(name)
            for name in self._sources
            if received(name) > enqueued[name] and self.driver.may_enqueue(kept.maintained, name)
        }

    def enqueue_upto(
        self, kept: LivingView, ends: Mapping[str, int], most: int | None = None
    ) -> bool:
        """Enqueues received updates in order of commit time; returns whether more wait."""
        more = kept.maintained.enqueue_upto(ends, most)
        self._begin(kept)
        return more

    def enqueue_each(self, kept: LivingView, group: Group) -> None:
        """Enqueues these updates, in this order."""
        names = tuple(dict.fromkeys(source for source, _ in group))
        which = np.array([names.index(source) for source, _ in group], np.int64)
        versions = np.array([version for _, version in group], np.int64)
        kept.maintained.enqueue_each(names, which, versions)
        self._begin(kept)

    def next_again(self, kept: LivingView) -> Group | None:
        """The group to deliver again next, if all of it is here and may be enqueued."""
        ends = self.may_enqueue(kept)
        if not kept.again or any(ends.get(s, 0) < version for s, version in kept.again[0]):
            return None
        return kept.again[0]

    def _begin(self, kept: LivingView) -> None:
        kept.maintained.begin()
        self._follow()

    # -- questions -----------------------------------------------------------------------------

    def send(self) -> None:
        """Sends all questions, equal ones once."""
        for asked in self.driver.send():
            for wanted in asked.wanting:
                self._record_question(wanted)
            self.open.append(Opened(asked, self._sources[asked.question.source].version))

    def _record_question(self, wanted: WantedAnswer[Any]) -> None:
        kept = next((kept for kept in self.views if kept.asks(wanted.asker)), None)
        if kept is None or wanted in kept.ids:
            return  # for a copy, or asked again
        question = wanted.question
        name = "*" if isinstance(question, Joint) else question.relation.name
        keys = self.answering.keys_of(question)
        kept.ids[wanted] = kept.journal.asked(question.position, question.source, name, keys)

    def answered(self, opened: Opened, answer: Answer[Any]) -> None:
        """Takes in the answer of a source, which is on its way then."""
        self.open.remove(opened)
        self.driver.answered(opened.asked, answer)

    def hand_over(self, message: tuple[SentQuestion[Any], WantedAnswer[Any]]) -> None:
        """Hands an answer to a view that wants it."""
        self.driver.hand_over(*message)
        self._follow()

    def _told(
        self, kept: LivingView, wanted: WantedAnswer[Any], answer: Answer[Any], found: Snapshot[Any]
    ) -> None:
        self._record_deliveries(kept)
        question = wanted.question
        version = kept.mailbox.version_at(question.source, question.position)
        if self.answering.differs(question, answer, version):
            kept.journal.differed(question.position)
        asked = kept.ids.pop(wanted, None)
        if asked is None:
            kept.journal.answered_by_a_copy(question.position)
            return
        rows = len(self._algebra.rows(answer.rows).counts)
        kept.journal.answered(asked, found.version, rows)

    # -- batches that are swept elsewhere ------------------------------------------------------

    @property
    def waiting_parts(self) -> list[Part]:
        """The slices that no process sweeps yet."""
        return [part for kept in self.views for part in kept.parts if not part.begun]

    def begin_part(self, part: Part) -> None:
        """Lets a process begin to sweep a slice."""
        part.begin()
        self._follow()

    def _hand_out(self, number: int, kept: LivingView) -> None:
        for stretch in kept.maintained.take_stretches():
            assert self._executors is not None, "it said that it wants the stretch"
            slices = self._executors.cut(kept.mailbox, stretch)
            kept.parted.append(Parted(stretch, [self._part(number, kept, s) for s in slices]))

    def _part(self, number: int, kept: LivingView, slice_: Slice) -> Part:
        setting, mailbox = kept.setting, same_deliveries(kept.mailbox, self.received)
        assert setting.entry.stretch is not None, "its protocol has begun a stretch"
        delivery, note = self._delivery(setting, mailbox), self._noting(number)
        maintained = Maintained(setting.view.name, mailbox, delivery, note=note)
        self.driver.views.append(maintained)
        return Part(slice_, maintained, setting.entry.stretch(setting.view, mailbox))

    def _take_swept(self, kept: LivingView) -> None:
        for parted in [each for each in kept.parted if each.swept]:
            kept.parted.remove(parted)
            for part in parted.parts:
                self.driver.views.remove(part.maintained)
                self.received.left_by(part.maintained.mailbox)
            kept.maintained.swept(parted.stretch, parted.change)

    # -- visible states ------------------------------------------------------------------------

    def _follow(self) -> None:
        """Records deliveries and visible states; a first state lets its protocol begin."""
        for number, kept in enumerate(self.views):
            self._record_deliveries(kept)
            self._take_swept(kept)
            self._hand_out(number, kept)
            installs = kept.maintained.take_installs()
            for install in installs:
                self._show(kept, install)
                if kept.loading:
                    self._begin_to_maintain(number, kept)
            if installs:
                self._validate(kept)

    def _validate(self, kept: LivingView) -> None:
        """Validates the memories of a view's operators now and then, outside the run's events."""
        view, position = kept.setting.view, kept.journal.position
        if not isinstance(view, TreeView) or kept.setting.entry.control:
            return
        if Random(f"{view.name} {position}").randrange(_VALIDATED) == 0:
            ask = partial(self._as_of, kept.mailbox, position)
            finish(validate(view, kept.mailbox, kept.memories, position), ask)

    def _as_of(
        self, mailbox: Mailbox[Any], position: int, questions: Sequence[Question[Any]]
    ) -> list[Snapshot[Any]]:
        """The answers of the sources from their contents at a position."""
        found = []
        for question in questions:
            contained = Prefix(mailbox.version_at(question.source, position))
            answer = self.answering.from_state(question, contained)
            found.append(snapshot(self.received, question, answer))
        return found

    def _record_deliveries(self, kept: LivingView) -> None:
        last = kept.mailbox.last_position
        if kept.recorded == last:
            return
        delivered = kept.mailbox.deliveries(kept.recorded, last)
        for position, number, version in zip(
            delivered.position.tolist(),
            delivered.source.tolist(),
            delivered.version.tolist(),
            strict=True,
        ):
            source = delivered.sources[number]
            kept.journal.delivered(((source, version),), position)
            if kept.again and (source, version) == kept.again[0][-1]:
                kept.again.popleft()
        kept.recorded = last

    def _show(self, kept: LivingView, install: Install[Any]) -> None:
        for state in install.each():
            change = None if state.change is None else self._algebra.rows(state.change)
            vector = kept.mailbox.vector_at(state.position)
            kept.journal.shown(VisibleState(state.position, vector, change), state.skipped)

    def _begin_to_maintain(self, number: int, kept: LivingView) -> None:
        """Starts the protocol, once the view has a state."""
        kept.loading = False
        setting = kept.setting
        if setting.entry.fifo:
            kept.maintained = self._through_a_channel(number, kept)
            self.driver.views[number] = kept.maintained

        def contents() -> Any:
            held = bag(list(setting.view.schema), ())
            for state in kept.journal.states:
                held = held if state.change is None else held.plus(state.change)
            return self._algebra.delta(setting.view.schema, held)

        kept.maintained.start(
            setting.entry.begin_with(setting.view, kept.mailbox, contents, kept.memories)
        )
        kept.maintained.begin()
        self._follow()

    def forget(self) -> None:
        """Drops updates that no cut after the last visible states needs."""
        for kept in self.views:
            kept.mailbox.forget(kept.journal.position)
        self.driver.forget()


def _untold(_rows: int, _complete: bool) -> None:
    """Ignores the progress of a copy."""


def _first_state(kept: LivingView, limit: int) -> Work[Any]:
    """Reads all pages of the first state and installs it at position 0."""
    parts, after = [], None
    while True:
        view, mailbox = kept.setting.view, kept.mailbox
        part = yield from next_stretch(view, mailbox, after, limit, kept.memories)
        if part.rows is not None:
            parts.append(part.rows)
        if part.last_key is None:
            return [Install(0, total(parts))]
        after = part.last_key
