"""Forged claims in the traces of right runs: how many are refused. Part of `make soak`.

    python -m bench.forgedclaims [--runs 100] [--first 0]

For each protocol, random scenarios are run in the simulator. The trace of each run has to be valid;
then a state is shown too early in it, and a claimed vector is changed to one at which the view is
something else, and both have to be refused. Exit code 1 if one of these fails.
"""

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from protocols.maintenance.registry import PROTOCOLS
from protocols.simulation.campaign import Family
from tests.harness.forging import Forgeries


def main(
    runs: Annotated[int, typer.Option(min=1, help="Runs of each protocol.")] = 100,
    first: Annotated[int, typer.Option(min=0, help="The first seed.")] = 0,
) -> None:
    """Forge the traces of right runs; exit code 1 if a forgery passes."""
    table = Table("protocol", "runs", "not valid", "early", "elsewhere", "not refused", box=None)
    wrong = False
    for name, family in _planned():
        found = Forgeries().over(PROTOCOLS[name], range(first, first + runs), family)
        wrong = wrong or bool(found.not_valid or found.not_refused)
        table.add_row(
            name if family == "joins" else f"{name}, {family}",
            f"{found.runs:,}",
            f"{len(found.not_valid):,}",
            f"{found.forged['early']:,}",
            f"{found.forged['elsewhere']:,}",
            f"{len(found.not_refused):,}",
        )
        for seed, kind in found.not_refused:
            Console(stderr=True).print(f"{name}: seed {seed}, {kind} was not refused")
    Console().print(table)
    raise typer.Exit(1 if wrong else 0)


def _planned() -> list[tuple[str, Family]]:
    right = [name for name, entry in PROTOCOLS.items() if not entry.control]
    return [*((name, "joins") for name in right), ("batched-sweep", "views")]


if __name__ == "__main__":
    typer.run(main)
