"""A view and its tables, before anything runs."""

from collections.abc import Callable, Mapping

from protocols.errors import WrongUse
from protocols.exchange.inclusion import IN_WORDS
from protocols.maintenance.registry import Entry, protocol
from protocols.views.catalog import Catalog
from protocols.views.sql import parse_view
from sources.port import Description
from streaming.settings.configuration import Configuration, ViewSettings
from warehouse.mending import mend
from warehouse.staging import discard_pages
from warehouse.tables import ViewTables
from warehouse.upkeep import UpkeepSettings


class StoredView:
    """A view that its protocol can keep, and its tables, repaired."""

    def __init__(
        self,
        configuration: Configuration,
        settings: ViewSettings,
        catalog: Catalog,
        report: Callable[[str], None],
    ) -> None:
        self.entry: Entry = protocol(settings.protocol)
        self.view = parse_view(settings.name, settings.sql, catalog, settings.dialect)
        self.entry.refuse_view(self.view)
        self._refuse_copies(configuration)
        mend(configuration.warehouse, self.view, report)
        self.tables = ViewTables(configuration.warehouse, self.view, report)
        self.tables.allows_too_few = self.entry.control
        self.upkeep = UpkeepSettings(
            configuration.job.current_every_seconds,
            configuration.job.upkeep_every_seconds,
            configuration.job.readers_minutes,
            settings.history_hours,
        )

    def _refuse_copies(self, known: Configuration) -> None:
        """WrongUse if a copy would answer questions of a protocol that needs FIFO."""
        copied = (r for r in self.view.relations if known.sources[r.source].keeps_copy_of(r.name))
        relation = next(copied, None) if self.entry.fifo else None
        if relation is not None:
            raise WrongUse(
                f"{known.file}: sources.{relation.source}.keep.{relation.name} is 'full', but view"
                f" {self.view.name} reads {relation} with protocol {self.entry.name}, which needs"
                " answers and updates to arrive in one order; the answers of a copy do not. Leave"
                " the key out, or choose a protocol such as batched-sweep"
            )

    def refuse_sources(self, described: Mapping[str, Description]) -> None:
        """WrongUse if a source's answers are not of one version, and the protocol needs FIFO."""
        for source in self.view.sources:
            reads = described[source].reads
            if self.entry.fifo and reads != "versions":
                raise WrongUse(
                    f"view {self.view.name}: protocol {self.entry.name} needs every answer to come"
                    f" from a single version, but source {source} gives {IN_WORDS[reads]}. Choose a"
                    " protocol that compares versions, such as sweep or batched-sweep"
                )

    def resume(self) -> None:
        """Repairs the tables after an interrupted run, so that the view can go on from them."""
        discard_pages(self.tables)
        self.tables.recover_progress()
        self.tables.follow()
