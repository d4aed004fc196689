"""`viewsweep advise`: what would have to be stored so that a view needs no question at all."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import orjson
import typer
from rich.console import Console

from cli.catalogs import CatalogFile, Config, Described, Workload, described
from infra.options import taking
from protocols.errors import WrongUse
from protocols.selfmaintenance.advice import Advice
from protocols.selfmaintenance.advice import advise as advised
from protocols.selfmaintenance.page import page
from streaming.settings.sqlfiles import sql_in


@dataclass(frozen=True)
class AdviseOptions:
    """A view, its relations, and what may be relied on."""

    view: Annotated[Path, typer.Argument(help="The SQL file of the view.", show_default=False)]
    config: Config = None
    catalog: CatalogFile = None
    workload: Workload = None
    together: Annotated[
        list[str] | None,
        typer.Option(
            help="Sources that commit together, for example a,b: every transaction that spans"
            " several of them is a global transaction. Foreign keys between these sources are then"
            " assumed to hold. Repeat the option for further groups of sources.",
            show_default=False,
        ),
    ] = None
    json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False


@taking(AdviseOptions)
def advise(options: AdviseOptions) -> None:
    """Show what to store alongside a view so that keeping it needs no questions at all.

    It is computed from keys, foreign keys and the columns that updates change.
    Nothing is stored: jobs do not read auxiliary views yet.

    For example: viewsweep advise examples/auxiliary/cal_toy_sales.sql
    --catalog examples/auxiliary/department_stores.json
    """
    known = described(options.config, options.catalog, options.workload, sizes=True)
    together = [_sources(each, known) for each in options.together or ()]
    found = _advised(options.view, known, together)
    if options.json:
        sys.stdout.write(orjson.dumps(found.to_json()).decode() + "\n")
    else:
        # Without wrapping, which would break the lines of a statement.
        Console().out(page(found), end="", highlight=False)


def _sources(text: str, known: Described) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in known.catalog.sources:
            there = ", ".join(known.catalog.sources)
            raise WrongUse(
                f"--together {text}: there is no source {name!r}; choose one of: {there}"
            )
    if len(set(names)) < 2:
        raise WrongUse(f"--together {text}: name at least two sources, such as --together a,b")
    return names


def _advised(file: Path, known: Described, together: list[tuple[str, ...]]) -> Advice:
    sql = sql_in(file)
    try:
        return advised(file.stem, sql, known.catalog, known.statistics, together)
    except WrongUse as error:
        raise WrongUse(f"{file}: {error}") from None
