"""The first state of a view: read in pages from its sources while they go on committing."""

from collections.abc import Callable
from functools import partial

from protocols.algebra.frame import Frame, empty_frame
from protocols.exchange.correction import ahead
from protocols.exchange.mailbox import Mailbox
from protocols.exchange.questions import Query, Question, Snapshot
from protocols.exchange.together import finish
from protocols.maintenance.firststate import next_stretch, root_of
from protocols.operators.memory import Memories
from protocols.telling import Told
from protocols.views.catalog import Relation
from streaming.figures.measuring import Measures
from streaming.intake.reading import Reading
from streaming.job.storedview import StoredView
from warehouse.staging import staging_of
from warehouse.standing import Standing

Report = Callable[[str], None]


class FirstState:
    """Reads a view at one vector while the sources go on committing; can be interrupted."""

    def __init__(
        self,
        stored: StoredView,
        begins: Callable[[], Standing],
        refuse: Callable[[Standing], object],
        memories: Memories,
        measures: Measures,
        report: Report,
    ) -> None:
        """At the vector of an earlier attempt if there is one and `refuse` does not raise, else at
        that of `begins`."""
        view = stored.view
        self._view, self._tables, self._report = view, stored.tables, report
        self._memories = memories
        self._measures = measures
        root = root_of(view)
        self._from = "all of its relations" if root is None else str(root)
        key = () if root is None else tuple(root.type_of(column) for column in root.key)
        self._staging = staging_of(stored.tables, key, refuse, report)
        if self._staging.standing is None:
            self._staging.begin(begins())
        else:
            words = f"view {view.name}: going on with the first state, {self._rows}"
            report(Told(words, view=view.name))
        assert self._staging.standing is not None
        #: The vector that it is read at.
        self.standing = self._staging.standing

    def read(self, reading: Reading, limit: int) -> None:
        """Reads page by page, until the first state is complete and visible."""
        staging = self._staging
        self._check(reading)
        self._tables.define()
        mailbox = Mailbox(reading.received, self.standing.vector, self.standing.position)
        ask = partial(self._ask, reading, mailbox)
        while not staging.finished:
            task = next_stretch(self._view, mailbox, staging.last_key, limit, self._memories)
            part = finish(task, ask)
            staging.add(None if part.rows is None else part.rows.data, part.last_key)
            words = f"view {self._view.name}: first state, {self._rows} so far"
            self._report(Told(words, view=self._view.name))
        staging.finish()
        self._tables.follow()

    def _check(self, reading: Reading) -> None:
        """Asks each source for no rows, before the vector from its status is kept.

        The answer's version has to be the vector's, or one that comes after the vector's tokens.
        """
        asked = {relation.source: relation for relation in self._view.relations}
        reading.look_up([_for_nothing(relation) for relation in asked.values()])

    def _ask(
        self, reading: Reading, mailbox: Mailbox[Frame], questions: list[Question[Frame]]
    ) -> list[Snapshot[Frame]]:
        found = [rows for _, rows in reading.look_up(questions)]
        for question, rows in zip(questions, found, strict=True):
            self._measures.corrected += ahead(mailbox, question, rows) > 0
        return found

    @property
    def _rows(self) -> str:
        return f"{self._staging.rows:,} rows from {self._from}"


def _for_nothing(relation: Relation) -> Question[Frame]:
    """A question with an empty set of keys, which no row of the relation matches."""
    (name, type_), *_ = relation.columns
    return Query(relation, (name,), keys=(empty_frame({name: type_}),))
