"""The relations that a command is about: of a configuration, a catalog file or a workload."""

import threading
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

from cli.common import report
from protocols.errors import WrongUse
from protocols.explaining.advice import Indexes
from protocols.forms import refuse_unknown_fields
from protocols.simulation.scenario import FIELDS
from protocols.views.catalog import Catalog, catalog_from_json
from protocols.views.statistics import Statistics, statistics_in
from sources.simulated.workloads import NAMES, WORKLOADS
from sources.simulated.workloads import workload as workload_named

#: A person waits for it, so silent sources are asked again for no longer than this.
_PATIENCE_SECONDS = 10.0

Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        help="A configuration file; its running sources are asked for the relations.",
    ),
]
CatalogFile = Annotated[
    Path | None,
    typer.Option(
        "--catalog", help='A JSON file with "sources" and their relations, such as a scenario.'
    ),
]
Workload = Annotated[
    str | None,
    typer.Option("--workload", help=f"A built-in workload: {', '.join(WORKLOADS)}, {NAMES}."),
]


@dataclass(frozen=True)
class Described:
    """The sources' relations, and what is known about them beside their declarations."""

    catalog: Catalog
    indexes: Indexes = field(default_factory=dict)
    #: By `source.relation`, if sizes were wanted.
    statistics: Mapping[str, Statistics] = field(default_factory=dict)


def described(
    config: Path | None, catalog: Path | None, workload: str | None, *, sizes: bool = False
) -> Described:
    """The relations that one of the three names; WrongUse if it is not exactly one."""
    given = sum(each is not None for each in (config, catalog, workload))
    if given > 1:
        raise WrongUse(
            "give only one of --config, --catalog and --workload: each of them already describes"
            " the relations"
        )
    if config is not None:
        return _held_by_sources(config, sizes)
    if catalog is not None:
        return _written_down(catalog)
    if workload is not None:
        return Described(workload_named(workload).catalog)
    raise WrongUse(
        "say where the relations are described: give --config FILE, --catalog FILE or --workload"
        " NAME"
    )


def _written_down(file: Path) -> Described:
    try:
        form: Any = orjson.loads(file.read_bytes())
    except OSError as error:
        raise WrongUse(f"cannot read {file}: {error.strerror}") from None
    except ValueError as error:
        raise WrongUse(f"{file} is not JSON: {error}") from None
    sources = form.get("sources") if isinstance(form, dict) else None
    if not isinstance(sources, dict):
        raise WrongUse(f'{file}: "sources" has to map names of sources to their "relations"')
    try:
        refuse_unknown_fields("the catalog", form, FIELDS)
        return Described(catalog_from_json(sources), statistics=statistics_in(sources))
    except WrongUse as error:
        raise WrongUse(f"{file}: {error}") from None


def _held_by_sources(file: Path, sizes: bool) -> Described:
    """The descriptions of a configuration's sources."""
    # Imported here: this takes long, and only --config needs it.
    from streaming.intake.asking import Sources, catalog_in
    from streaming.settings.configuration import read_configuration
    from streaming.settings.declared import declared

    known = read_configuration(file)
    patience = min(known.job.patience_seconds, _PATIENCE_SECONDS)
    with closing(Sources(known.sources, patience, report, threading.Event())) as sources:
        found = sources.described()
        return Described(
            declared(catalog_in(found), known.sources),
            {name: each.indexes for name, each in found.items()},
            _sizes(known.sources, sources.statistics) if sizes else {},
        )


def _sizes(
    names: Mapping[str, object], ask: Callable[[str], Mapping[str, Statistics]]
) -> dict[str, Statistics]:
    return {f"{name}.{relation}": each for name in names for relation, each in ask(name).items()}
