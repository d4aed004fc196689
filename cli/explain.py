"""`viewsweep explain` and `constructs`: the cost of keeping a view, before anything is created.

The relations of the sources come from a configuration (whose sources are asked), from a scenario's
"sources", or from a built-in workload. Exit code 2 for a view that cannot be kept.
"""

import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cli.markdown import put, table, write
from infra.options import taking
from protocols.analysis.drawing import as_mermaid
from protocols.analysis.svg import as_svg
from protocols.errors import ViewRefused, WrongUse
from protocols.explaining.advice import Indexes
from protocols.explaining.constructs import Construct
from protocols.explaining.constructs import constructs as all_constructs
from protocols.explaining.explanation import Explanation
from protocols.explaining.explanation import explain as explained
from protocols.explaining.page import page
from protocols.forms import refuse_unknown_fields
from protocols.simulation.scenario import FIELDS
from protocols.views.catalog import Catalog, catalog_from_json
from sources.simulated.workloads import NAMES, WORKLOADS
from sources.simulated.workloads import workload as workload_named
from streaming.settings.sqlfiles import sql_in

#: A person waits for it, so silent sources are asked again for no longer than this.
_PATIENCE_SECONDS = 10.0


@dataclass(frozen=True)
class ExplainOptions:
    """A view, its relations, and the form of the explanation."""

    view: Annotated[Path, typer.Argument(help="The SQL file of the view.", show_default=False)]
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            "-c",
            help="A configuration file; its running sources are asked for the relations.",
        ),
    ] = None
    catalog: Annotated[
        Path | None,
        typer.Option(help='A JSON file with "sources" and their relations, such as a scenario.'),
    ] = None
    workload: Annotated[
        str | None,
        typer.Option(help=f"A built-in workload: {', '.join(WORKLOADS)}, {NAMES}."),
    ] = None
    json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False
    svg: Annotated[
        Path | None, typer.Option(help="Draw the view's tree and graphs into this file.")
    ] = None
    mermaid: Annotated[
        bool, typer.Option("--mermaid", help="Print the view's tree and graphs as Mermaid.")
    ] = False

    def refuse_contradictions(self) -> None:
        """WrongUse unless the options name one set of relations and one form."""
        given = sum(each is not None for each in (self.config, self.catalog, self.workload))
        if given > 1:
            raise WrongUse(
                "give one of --config, --catalog and --workload: each names the relations"
            )
        if not given:
            raise WrongUse("name the relations: --config FILE, --catalog FILE or --workload NAME")
        if self.json and self.mermaid:
            raise WrongUse("either --json or --mermaid")


@taking(ExplainOptions)
def explain(options: ExplainOptions) -> None:
    """Explain a view: what it means, which questions its updates cost, and cheaper variants.

    For example: viewsweep explain examples/views/balance.sql --workload bank
    """
    options.refuse_contradictions()
    found = _explained(options.view, *_catalog(options))
    if options.svg is not None:
        write(options.svg, as_svg(found.drawing))
        _say(f"{options.svg}: drawn")
    if options.json:
        sys.stdout.write(orjson.dumps(found.to_json()).decode() + "\n")
    elif options.mermaid:
        sys.stdout.write(as_mermaid(found.drawing))
    else:
        # Without wrapping, which would break the lines of a tree.
        Console().out(page(found), end="", highlight=False)


def constructs(
    json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
    into: Annotated[
        Path | None,
        typer.Option(
            help="Replace the table in this file, between <!-- constructs --> and"
            " <!-- end of constructs -->."
        ),
    ] = None,
) -> None:
    """List the SQL that a view may use, with its cost per update, and the SQL that is refused."""
    found = list(all_constructs())
    if into is not None:
        put(into, _LISTED, listed())
        _say(f"{into}: table renewed")
    elif json:
        forms = [
            {"construct": e.name, "refused": e.refused, "questions": e.questions} for e in found
        ]
        sys.stdout.write(orjson.dumps(forms).decode() + "\n")
    else:
        console = Console() if Console().is_terminal else Console(width=120)
        shown = Table(box=None, pad_edge=False)
        for heading in _HEADINGS:
            shown.add_column(heading, overflow="fold")
        for each in found:
            shown.add_row(*(escape(cell) for cell in _cells(each)))
        console.print(shown)


def listed() -> str:
    """The table of constructs, in Markdown."""
    rows = [[cell.replace("|", "\\|") for cell in _cells(each)] for each in all_constructs()]
    return table(_HEADINGS, rows)


_LISTED = "constructs"
_HEADINGS = (
    "construct",
    "kept?",
    "questions per update: nothing remembered yet → everything remembered",
)


def _cells(construct: Construct) -> tuple[str, str, str]:
    return construct.name, construct.verdict, construct.questions


def _explained(file: Path, catalog: Catalog, indexed: Indexes) -> Explanation:
    sql = sql_in(file)
    try:
        return explained(file.stem, sql, catalog, indexed)
    except ViewRefused as error:
        raise WrongUse(f"{file}: {error}") from None


def _catalog(options: ExplainOptions) -> tuple[Catalog, Indexes]:
    """The sources' relations, and their indexes as far as they are known."""
    if options.config is not None:
        return _held_by_sources(options.config)
    if options.catalog is not None:
        return _written_down(options.catalog), {}
    return workload_named(options.workload or "").catalog, {}


def _written_down(file: Path) -> Catalog:
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
        return catalog_from_json(sources)
    except WrongUse as error:
        raise WrongUse(f"{file}: {error}") from None


def _held_by_sources(file: Path) -> tuple[Catalog, Indexes]:
    """The relations and indexes that a configuration's sources describe."""
    # Imported here: this takes long, and only --config needs it.
    from streaming.intake.asking import Sources, catalog_in
    from streaming.settings.configuration import read_configuration
    from streaming.settings.declared import declared

    known = read_configuration(file)
    patience = min(known.job.patience_seconds, _PATIENCE_SECONDS)
    sources = Sources(known.sources, patience, _say, threading.Event())
    try:
        described = sources.described()
        indexed = {name: each.indexes for name, each in described.items()}
        return declared(catalog_in(described), known.sources), indexed
    finally:
        sources.close()


def _say(message: str) -> None:
    Console(stderr=True).print(escape(message), highlight=False, soft_wrap=True)
