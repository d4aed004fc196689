"""One update, step by step: what was asked for it, what came back, what had to be taken out.

The answers are those that the job received (streaming/job/recording.py). A batch shares its
questions. For an inner join kept by SWEEP or its batched form the steps are worked out once more
from these answers, for this update alone: of each answer only the rows that match its own keys are
shown, and the result can be compared with what the job committed. For other views the questions of
the whole batch are shown.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from protocols.algebra.delta import COUNT, POSITION
from protocols.algebra.frame import Frame
from protocols.algebra.framelog import VERSION, FrameLog
from protocols.exchange.correction import restricted
from protocols.exchange.inclusion import Inclusion, Window
from protocols.exchange.mailbox import Mailbox
from protocols.exchange.questions import Joint, Query, Question, Snapshot
from protocols.maintenance.batched_sweep import BatchedSweep
from protocols.maintenance.registry import PROTOCOLS, QueryBound
from protocols.views.catalog import Relation
from protocols.views.tree import AnyView
from protocols.views.view import View
from streaming.job.recording import RecordedAnswer, RecordedBatch

#: The protocols whose result for an update is the sum of its steps.
_SWEEPS = ("sweep", "parallel-sweep", "pipelined-sweep", "batched-sweep")


@dataclass(frozen=True)
class Late:
    """A change of the asked relation that the answer contains, or lacks, against the position."""

    version: int
    #: Where it was delivered; None if it was not when the record was made.
    position: int | None
    rows: pl.DataFrame


@dataclass(frozen=True)
class Step:
    """One question, and what became of its answer."""

    relation: Relation
    #: The key sets that were asked for; empty if the relation was read whole.
    keys: tuple[pl.DataFrame, ...]
    #: Whether the keys are those of this update alone.
    own: bool
    copied: bool
    contains: str
    #: The version that the position needs.
    wanted: int
    #: First the rows that the changes below touch.
    answered: pl.DataFrame
    touched: int
    #: To be taken out: the answer contains these. To be added: it lacks these.
    too_much: tuple[Late, ...]
    lacking: tuple[Late, ...]
    #: The rows as of the position, first those that were touched.
    corrected: pl.DataFrame
    mended: int


@dataclass(frozen=True)
class Walk:
    """An update, from its changes at the sources to the change of the view."""

    first: int
    last: int
    #: Relation → its changes in the update.
    committed: Mapping[Relation, pl.DataFrame]
    steps: tuple[Step, ...]
    #: The change of the view that the steps give; None if they cannot be worked out.
    change: pl.DataFrame | None
    too_large: bool = False


def walk(view: AnyView, protocol: str, batch: RecordedBatch, position: int) -> Walk:
    """The update at this position, as far as it is known."""
    if batch.too_large:
        return Walk(batch.first, batch.last, {}, (), None, too_large=True)
    mailbox = _mailbox(view, batch)
    committed = {r: mailbox.change(r, position) for r in view.relations}
    found = _Found(view, protocol, batch, mailbox, position)
    steps, change = found.worked_out()
    return Walk(
        batch.first,
        batch.last,
        {relation: each.data for relation, each in committed.items() if each is not None},
        tuple(steps),
        change,
    )


def _mailbox(view: AnyView, batch: RecordedBatch) -> Mailbox[Frame]:
    """The mailbox as it was for the batch."""
    logs = {relation: FrameLog() for relation in view.relations}
    mailbox = Mailbox[Frame](logs, batch.vector, batch.first - 1)
    newest = dict(batch.vector)
    for name, which in zip(batch.order.sources, range(len(batch.order.sources)), strict=True):
        versions = batch.order.version[batch.order.source == which]
        newest[name] = max(newest[name], int(versions.max(initial=0)))
    for each in batch.answers:
        source = each.question.source
        newest[source] = max(newest[source], each.found.version)
    for source, version in newest.items():
        if version > batch.vector[source]:
            rows = {r: c for r, c in batch.changes.items() if r.source == source}
            mailbox.receive(source, version, rows)
    mailbox.deliver_as(batch.order)
    return mailbox


class _Found:
    """The steps of one update."""

    def __init__(
        self,
        view: AnyView,
        protocol: str,
        batch: RecordedBatch,
        mailbox: Mailbox[Frame],
        position: int,
    ) -> None:
        self._view = view
        self._protocol = protocol
        self._batch = batch
        self._mailbox = mailbox
        self._position = position

    def worked_out(self) -> tuple[list[Step], pl.DataFrame | None]:
        """The steps, and the change that they give if that can be worked out."""
        view = self._view
        if isinstance(view, View) and self._protocol in _SWEEPS:
            found = self._swept(view)
            if found is not None:
                return found
        return [self._step(each, each.question, False) for each in self._asked()], None

    def _asked(self) -> list[RecordedAnswer]:
        """The answers for this position; those of its batch, if that shares them."""
        bound = PROTOCOLS[self._protocol].questions
        asked = [a for a in self._batch.answers if not isinstance(a.question, Joint)]
        own = [a for a in asked if a.question.position == self._position]
        if own and bound is not QueryBound.BATCHED:
            return own
        later = [a.question.position for a in asked if a.question.position >= self._position]
        return [a for a in asked if later and a.question.position == min(later)]

    def _swept(self, view: View) -> tuple[list[Step], pl.DataFrame] | None:
        """Sweeps this update by itself, over the recorded answers; None if one is missing."""
        steps: list[Step] = []
        work = BatchedSweep(view, self._mailbox).change(self._position, self._position)
        snapshots: list[Snapshot[Frame]] | None = None
        try:
            while True:
                questions = next(work) if snapshots is None else work.send(snapshots)
                snapshots = []
                for question in questions:
                    answer = self._covering(question)
                    if answer is None or isinstance(question, Joint):
                        return None
                    steps.append(self._step(answer, question, True))
                    rows = _matching(answer.found.rows, question)
                    snapshots.append(Snapshot(rows, answer.found.version))
        except StopIteration as done:
            change = done.value
        if change is None:
            nothing = {name: type_.dtype for name, type_ in view.schema.items()}
            return steps, pl.DataFrame(schema={**nothing, COUNT: pl.Int64})
        return steps, change.consolidated().data.drop(POSITION)

    def _covering(self, question: Question[Frame]) -> RecordedAnswer | None:
        """An answer that has all rows for this question."""
        for each in self._batch.answers:
            asked = each.question
            if (
                isinstance(asked, Query)
                and isinstance(question, Query)
                and asked.relation == question.relation
                and asked.condition == question.condition
                and asked.columns == question.columns
                and asked.position >= self._position
                and _covers(asked.keys, question.keys)
            ):
                return each
        return None

    def _step(self, answer: RecordedAnswer, question: Question[Frame], own: bool) -> Step:
        assert isinstance(question, Query), "no other protocol's questions are recorded here"
        relation = question.relation
        wanted = self._mailbox.version_at(relation.source, self._position)
        version = answer.found.version
        too_much = tuple(self._late(question, wanted, version))
        lacking = tuple(self._late(question, version, wanted))
        rows = _matching(answer.found.rows, question)
        corrected = rows
        for each in too_much:
            corrected = corrected.plus(Frame(each.rows).negated())
        for each in lacking:
            corrected = corrected.plus(Frame(each.rows))
        late = [each.rows for each in (*too_much, *lacking)]
        answered, touched = _touched_first(relation, rows.data, late)
        right, mended = _touched_first(relation, corrected.consolidated().data, late)
        return Step(
            relation,
            tuple(keys.data.drop(COUNT, strict=False) for keys in question.keys or ()),
            own,
            answer.answer.copied,
            _in_words(answer.answer.inclusion),
            wanted,
            answered,
            touched,
            too_much,
            lacking,
            right,
            mended,
        )

    def _late(self, question: Query[Frame], after: int, upto: int) -> Iterable[Late]:
        """The changes in versions (after, upto] that match the question."""
        rows = self._batch.changes.get(question.relation)
        if rows is None or after >= upto:
            return
        source = question.relation.source
        known = self._mailbox.version_at(source, self._mailbox.last_position)
        between = rows.filter(pl.col(VERSION).is_between(after, upto, closed="right"))
        for (version,), part in between.group_by(VERSION, maintain_order=True):
            found = restricted(Frame(part.drop(VERSION)), question)
            if not found.is_empty():
                at = self._position_of(source, int(str(version))) if version <= known else None
                yield Late(int(str(version)), at, found.data)

    def _position_of(self, source: str, version: int) -> int | None:
        order = self._batch.order
        which = (order.source == order.sources.index(source)) & (order.version == version)
        found = order.position[which]
        return int(found[0]) if len(found) else None


def _touched_first(
    relation: Relation, rows: pl.DataFrame, late: Sequence[pl.DataFrame]
) -> tuple[pl.DataFrame, int]:
    """The rows, first those of which a late change has the key, and how many these are."""
    if not late:
        return rows, 0
    names = [name for name in rows.columns if name != COUNT]
    by = list(relation.key) if relation.key and set(relation.key) <= set(names) else names
    touching = pl.concat(late).select(by).unique()
    first = rows.join(touching, on=by, how="semi", nulls_equal=True)
    rest = rows.join(touching, on=by, how="anti", nulls_equal=True)
    return pl.concat([first, rest]), first.height


def _matching(rows: Frame, question: Query[Frame]) -> Frame:
    """The rows of an answer that match the keys of a question; its condition they satisfy."""
    return restricted(rows, replace(question, condition=None))


def _covers(asked: Sequence[Frame] | None, wanted: Sequence[Frame] | None) -> bool:
    """Whether every key that is wanted was asked for."""
    if asked is None or wanted is None:
        return asked is None
    return all(
        any(
            have.columns == want.columns and want.apart(have, have.columns)[1].is_empty()
            for have in asked
        )
        for want in wanted
    )


def _in_words(inclusion: Inclusion) -> str:
    if isinstance(inclusion, Window):
        return f"all up to version {inclusion.low:,}, and perhaps some up to {inclusion.high:,}"
    said = f"all up to version {inclusion.upto:,}"
    for words, numbers in (("and also", inclusion.besides), ("but not", inclusion.without)):
        if numbers:
            said += f", {words} {', '.join(map(str, numbers))}"
    return said
