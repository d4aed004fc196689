"""The first phase of a job: it checks sources, topics and tables before a run begins."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial

from protocols.telling import Told
from sources.history import UNKNOWN
from sources.partitions import Ends
from sources.topics import ends_of
from streaming.intake.asking import Sources, catalog_in, refuse_reset, versions_in
from streaming.intake.firstvector import Beginnings
from streaming.job.context import Context
from streaming.job.storedview import StoredView
from streaming.settings.configuration import ViewSettings
from streaming.settings.declared import declared
from warehouse.mending import mend_logs
from warehouse.standing import Standing, latest_in


class Checked:
    """The state of sources, topics and tables before any work; raises if a run cannot begin."""

    def __init__(self, context: Context, settings: Sequence[ViewSettings]) -> None:
        known = context.configuration
        used = {s.name: s for view in settings for s in known.sources_of(view).values()}
        with ExitStack() as made:
            self.sources = Sources(
                used,
                known.job.patience_seconds,
                context.report,
                context.stopping,
                known.job.answer_megabytes,
                context.measures.answers,
            )
            made.enter_context(closing(self.sources))
            #: Source → the ends of its partitions. Read before the versions: updates after these
            #: versions are at or after these offsets.
            topics = {source.name: source.topics for source in used.values()}
            self.ends: Mapping[str, Ends] = ends_of(known.kafka, topics)
            for each in settings:
                mend_logs(known.warehouse / each.name, partial(_about, context.report, each.name))
            self.sources.begin(known.kafka, self.ends, latest_in(known.warehouse, used))
            described = self.sources.described()
            self._versions = versions_in(described)
            #: Source → what it promises of its answers.
            self.reads = {name: each.reads for name, each in described.items()}
            self._kafka = known.kafka
            #: The vectors of views that have no state yet.
            self.beginnings = Beginnings(
                known, self.sources, self.ends, described, context.report, context.stopping
            )
            catalog = declared(catalog_in(described), known.sources)
            for source in used.values():
                source.refuse_unknown_copies(catalog)
            self.views = [StoredView(known, each, catalog, context.report) for each in settings]
            for stored in self.views:
                stored.refuse_sources(described)
            #: The standings of the views that have a state.
            self.standings = {
                stored.view.name: self.standing(stored.tables.standing())
                for stored in self.views
                if stored.tables.exists
            }
            self._made = made.pop_all()

    def standing(self, standing: Standing) -> Standing:
        """The standing, with the tokens from which on the topics have the updates after it.

        SourceViolation when a source has another history, or a topic lacks these updates.
        """
        refuse_reset(standing.vector, self._versions)
        tokens = {
            source: self.sources.resumed(
                self._kafka,
                source,
                self.ends[source],
                standing.vector[source],
                token,
                standing.digests.get(source, UNKNOWN),
            )
            for source, token in standing.tokens.items()
        }
        return replace(standing, tokens=tokens)

    def close(self) -> None:
        """Closes the connections to the sources."""
        self._made.close()


def _about(report: Callable[[str], None], view: str, message: str) -> None:
    report(Told(f"view {view}: {message}", view=view))
