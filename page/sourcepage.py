"""The page of one source: what it publishes and promises, and how it answers."""

from typing import Any

from page.lake import view_in
from protocols.errors import ViewsweepError, WrongUse
from protocols.exchange.inclusion import IN_WORDS
from protocols.views.catalog import Relation
from streaming.figures.answers import LATENCY_BOUNDS
from streaming.figures.status import JobStatus
from streaming.settings.configuration import Configuration, SourceSettings


def source_page(
    configuration: Configuration, status: JobStatus | None, name: str
) -> dict[str, Any]:
    """Everything about a source; the address of a database, which may hold a password, is not."""
    settings = configuration.sources.get(name)
    if settings is None:
        raise WrongUse(f"there is no source {name!r}: {', '.join(configuration.sources)}")
    known = next((s for s in (status.sources if status else ()) if s.name == name), None)
    relations, views = _read_by(configuration, name)
    return {
        "settings": settings,
        "place": _place(settings),
        "known": known,
        "promise": None if known is None else IN_WORDS[known.reads],
        "relations": sorted(relations, key=lambda relation: relation.name),
        "views": views,
        "copies": {} if status is None else status.copies,
        "latencies": None if known is None else known.answers.latencies,
        "labels": _labels(),
    }


def _place(settings: SourceSettings) -> str:
    database = settings.database
    if database is None:
        return settings.address
    where = database.file if database.env is None else f"environment variable {database.env}"
    return f"a {database.kind} database; its address is in {where}"


def _read_by(configuration: Configuration, source: str) -> tuple[set[Relation], list[str]]:
    """The relations of a source that stored views read, and these views."""
    relations: set[Relation] = set()
    views = []
    for name in configuration.views:
        try:
            found = view_in(configuration.warehouse, name).relations_of(source)
        except ViewsweepError:
            continue
        if found:
            relations.update(found)
            views.append(name)
    return relations, views


def _labels() -> list[str]:
    """The intervals of the histogram, each by its upper end."""
    ends = [f"{b * 1000:g} ms" if b < 1 else f"{b:g} s" for b in LATENCY_BOUNDS]
    return [*ends, f"> {LATENCY_BOUNDS[-1]:g} s"]
