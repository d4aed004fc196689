"""The first phase of a job: it checks sources, topics and tables before a run begins."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing

from streaming.intake.asking import Sources, catalog_in, digests_in, refuse_reset, versions_in
from streaming.intake.firstvector import Beginnings
from streaming.intake.resuming import Resuming
from streaming.intake.topics import ends_of_topics
from streaming.job.context import Context
from streaming.job.storedview import StoredView
from streaming.settings.configuration import ViewSettings
from streaming.settings.declared import declared
from warehouse.standing import Standing


class Checked:
    """The state of sources, topics and tables before any work; raises if a run cannot begin."""

    def __init__(self, context: Context, settings: Sequence[ViewSettings]) -> None:
        known = context.configuration
        used = {s.name: s for view in settings for s in known.sources_of(view).values()}
        topics = {source.name: source.topic for source in used.values()}
        with ExitStack() as made:
            patience, most = known.job.patience_seconds, known.job.answer_megabytes
            self.sources = Sources(used, patience, context.report, context.stopping, most)
            made.enter_context(closing(self.sources))
            #: Source → its topic's first and next offset. Read before the versions: updates after
            #: these versions are at or after these offsets.
            self.ends: Mapping[str, tuple[int, int]] = ends_of_topics(known.bootstrap, topics)
            statuses = self.sources.statuses()
            self._versions, digests = versions_in(statuses), digests_in(statuses)
            self._resuming = Resuming(known.bootstrap, topics, self.ends, self.sources, digests)
            #: The vectors of views that have no state yet.
            self.beginnings = Beginnings(
                known, self.sources, self.ends, statuses, context.report, context.stopping
            )
            catalog = declared(catalog_in(statuses), known.sources)
            for source in used.values():
                source.refuse_unknown_copies(catalog)
            self.views = [StoredView(known, each, catalog, context.report) for each in settings]
            #: The standings of the views that have a state.
            self.standings = {
                stored.view.name: self.standing(stored.tables.standing())
                for stored in self.views
                if stored.tables.exists
            }
            self._made = made.pop_all()

    def standing(self, standing: Standing) -> Standing:
        """The standing, with the offsets from which on the topics have the updates after it."""
        refuse_reset(standing.vector, self._versions)
        return self._resuming.checked(standing)

    def close(self) -> None:
        """Closes the connections to the sources."""
        self._made.close()
