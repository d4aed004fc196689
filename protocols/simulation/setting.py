"""The setting of a run: views with protocols that can keep them, sources, first lines of a trace.

The parts that all runs over a scenario share are computed once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from protocols.checking import trace
from protocols.exchange.holdback import GlobalPart
from protocols.maintenance.registry import PROTOCOLS, Entry
from protocols.simulation.algebras import ALGEBRAS, Algebra
from protocols.simulation.scenario import Scenario
from protocols.simulation.source import MemorySource
from protocols.views.catalog import Catalog
from protocols.views.dialects import Dialect
from protocols.views.sql import parse_view
from protocols.views.tree import AnyView, TreeView

#: Keeps a further view that the protocol of the run cannot keep.
_BESIDE = PROTOCOLS["batched-sweep"]


@dataclass(frozen=True)
class Setting:
    """The parts that are the same in all lives of a view."""

    scenario: Scenario
    entry: Entry
    view: AnyView
    algebra: Algebra
    #: The global transactions, each with the sources that take part.
    globals: Mapping[str, GlobalPart]


def settings_of(scenario: Scenario, protocol: Entry, algebra: str) -> tuple[Setting, ...]:
    """The settings that all runs over a scenario share, one for each of its views."""
    first = setting_of(scenario, protocol, algebra)
    beside = [beside_of(scenario, number, protocol) for number in range(len(scenario.beside))]
    # The operators above inner joins work on columns only, and views of one job share answers.
    used = "frame" if any(isinstance(s.view, TreeView) for s in (first, *beside)) else algebra
    return tuple(replace(s, algebra=ALGEBRAS[used]) for s in (first, *beside))


@lru_cache(maxsize=64)
def parsed(name: str, sql: str, catalog: Catalog, dialect: Dialect | None) -> AnyView:
    """A view, parsed once: the scenarios of a shrinking differ in their rows and updates only."""
    return parse_view(name, sql, catalog, dialect)


@lru_cache(maxsize=16)
def beside_of(scenario: Scenario, number: int, protocol: Entry) -> Setting:
    """One of the further views, kept by the same protocol if it can."""
    sql = scenario.beside[number]
    alone = replace(scenario, name=f"{scenario.name or 'view'} {number + 2}", view=sql, beside=())
    view = parsed(alone.name, sql, scenario.catalog, scenario.dialect)
    return setting_of(alone, protocol if protocol.keeps(view) else _BESIDE, "bag")


@lru_cache(maxsize=16)
def setting_of(scenario: Scenario, protocol: Entry, algebra: str) -> Setting:
    """The parts that all runs over a scenario share; WrongUse if its view cannot be kept."""
    view = parsed(scenario.name or "view", scenario.view, scenario.catalog, scenario.dialect)
    protocol.refuse_view(view)
    participants: dict[str, set[str]] = {}
    for update in scenario.updates:
        if update.global_id is not None:
            protocol.refuse_global(update.global_id)
            participants.setdefault(update.global_id, set()).add(update.source)
    parts = {id_: GlobalPart(id_, frozenset(sources)) for id_, sources in participants.items()}
    # The operators above inner joins work on columns only.
    used = "frame" if isinstance(view, TreeView) else algebra
    return Setting(scenario, protocol, view, ALGEBRAS[used], parts)


def sources_of(scenario: Scenario) -> dict[str, MemorySource]:
    """The sources before any commit."""
    sources = {}
    for name in scenario.catalog.sources:
        initial = {r: rows for r, rows in scenario.initial.items() if r.source == name}
        updates = [update for update in scenario.updates if update.source == name]
        sources[name] = MemorySource(name, initial, updates)
    return sources


def run_event(setting: Setting, seed: int | None) -> trace.RunLine:
    """The first line of the trace."""
    scenario = setting.scenario
    initial = {
        (relation.source, relation.name): tuple(
            row for row, count in rows.counts.items() for _ in range(count)
        )
        for relation, rows in scenario.initial.items()
    }
    return trace.RunLine(
        setting.entry.name, scenario.view, scenario.catalog, initial, seed, scenario.dialect
    )


def commit_event(source: MemorySource, at: int = 0) -> trace.CommitLine:
    """Lets the source commit its next update; returns the line of the trace."""
    update = source.commit(at)
    changes = tuple(
        trace.SignedRow(relation.name, row, count)
        for relation, rows in update.changes.items()
        for row, count in rows.counts.items()
    )
    return trace.CommitLine(source.name, source.version, changes, update.global_id)
