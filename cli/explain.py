"""`viewsweep explain` and `constructs`: the cost of keeping a view, before anything is created.

The relations of the sources come from a configuration (whose sources are asked), from a scenario's
"sources", or from a built-in workload. Exit code 2 for a view that cannot be kept.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import orjson
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cli.catalogs import CatalogFile, Config, Workload, described
from cli.common import report
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
from protocols.views.catalog import Catalog
from protocols.views.dialects import Dialect, dialect_named
from streaming.settings.sqlfiles import sql_in


@dataclass(frozen=True)
class ExplainOptions:
    """A view, its relations, and the form of the explanation."""

    view: Annotated[Path, typer.Argument(help="The SQL file of the view.", show_default=False)]
    config: Config = None
    catalog: CatalogFile = None
    workload: Workload = None
    dialect: Annotated[
        str | None,
        typer.Option(
            help="duckdb or postgres: where they differ about numbers, the view means this one."
        ),
    ] = None
    json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False
    svg: Annotated[
        Path | None, typer.Option(help="Draw the view's tree and graphs into this file.")
    ] = None
    mermaid: Annotated[
        bool, typer.Option("--mermaid", help="Print the view's tree and graphs as Mermaid.")
    ] = False


@taking(ExplainOptions)
def explain(options: ExplainOptions) -> None:
    """Explain a view: what it means, which questions its updates trigger, and cheaper variants.

    For example: viewsweep explain examples/views/balance.sql --workload bank
    """
    if options.json and options.mermaid:
        raise WrongUse("give either --json or --mermaid, not both")
    known = described(options.config, options.catalog, options.workload)
    found = _explained(options.view, known.catalog, known.indexes, dialect_named(options.dialect))
    if options.svg is not None:
        write(options.svg, as_svg(found.drawing))
        report(f"{options.svg}: drawn")
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
        report(f"{into}: table renewed")
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
    "supported?",
    "questions per update: nothing remembered yet → everything remembered",
)


def _cells(construct: Construct) -> tuple[str, str, str]:
    return construct.name, construct.verdict, construct.questions


def _explained(
    file: Path, catalog: Catalog, indexed: Indexes, dialect: Dialect | None
) -> Explanation:
    sql = sql_in(file)
    try:
        return explained(file.stem, sql, catalog, indexed, dialect)
    except ViewRefused as error:
        raise WrongUse(f"{file}: {error}") from None
