"""Attacks everything that takes input from outside, and prints the outcomes as a table.

    python -m bench.hostile [--short] [--seed 1] [--family records] [--json]

Exit code 0: every attack was survived or ended with a message, nothing was wrong, no traceback was
shown. 1: otherwise; the attack's line says why, and the directory of the run is kept.
"""

import importlib
import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bench.attacks import AttackOutcome, AttackSettings

#: Module of `bench.attacks` → a description of its attacks.
FAMILIES = {
    "records": "hostile records, read in columns and by record",
    "files": "damaged files of the warehouse, and a restart",
    "answers": "query servers that lie",
    "clients": "bad clients of the query server",
}


def main(
    short: Annotated[bool, typer.Option("--short", help="A few cases of each family.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 1,
    family: Annotated[
        list[str] | None, typer.Option(help=f"Only these: {', '.join(FAMILIES)}.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """Attack records, files, answers and the query server; exit code 0 if all is survived."""
    unknown = sorted(set(family or []) - set(FAMILIES))
    if unknown:
        raise typer.BadParameter(f"{unknown[0]}; there are {', '.join(FAMILIES)}")
    directory = Path(tempfile.mkdtemp(prefix="viewsweep-hostile-"))
    outcomes: dict[str, list[AttackOutcome]] = {}
    for name in family or FAMILIES:
        outcomes[name] = list(_told(name, AttackSettings(directory / name, short, seed)))
    if as_json:
        print(json.dumps({name: [asdict(each) for each in of] for name, of in outcomes.items()}))
    else:
        _show(outcomes)
    if not all(each.good for of in outcomes.values() for each in of):
        print(f"everything is kept in {directory}")
        raise typer.Exit(1)
    shutil.rmtree(directory, ignore_errors=True)


def survived(name: str, settings: AttackSettings) -> Iterator[AttackOutcome]:
    """The outcomes of one family's attacks."""
    settings.directory.mkdir(parents=True, exist_ok=True)
    yield from importlib.import_module(f"bench.attacks.{name}").outcomes(settings)


def _told(name: str, settings: AttackSettings) -> Iterator[AttackOutcome]:
    """The same, each printed when it is known: some families take minutes."""
    console = Console(stderr=True)
    console.print(f"{name}: {FAMILIES[name]}")
    start = time.monotonic()
    for outcome in survived(name, settings):
        word = "good" if outcome.good else "BAD"
        line = f"  {time.monotonic() - start:6.1f} s  {word}  {outcome.attack}: {outcome.result}"
        console.print(line, markup=False, highlight=False, soft_wrap=True)
        yield outcome


def _show(outcomes: dict[str, list[AttackOutcome]]) -> None:
    table = Table("family", "attack", "cases", "result", "", box=None)
    for name, of_family in outcomes.items():
        for each in of_family:
            word = "good" if each.good else "BAD"
            cells = (name, each.attack, f"{each.cases:,}", each.result, word)
            table.add_row(*map(escape, cells))
    Console().print(table)
    everything = [each for of_family in outcomes.values() for each in of_family]
    bad = sum(not each.good for each in everything)
    print(f"{sum(each.cases for each in everything):,} attacks, {bad} lines bad")


if __name__ == "__main__":
    typer.run(main)
