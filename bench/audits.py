"""Audits of simulated views: false alarms, and what planted defects cost to find. For `make soak`.

    python -m bench.audits [--stretches 10000] [--planted 5] [--first 0]

First, states of random views are audited while their sources go on (tests/harness/
simulatedaudits.py): nothing may be found. Then defects are planted into runs, and every state that
they make wrong is audited twice: all of it, and by stretches. The table says how many rows these
had looked at when they found the first difference. Exit code 1 if there was a false alarm, or if an
audit of all rows found nothing.
"""

from random import Random
from statistics import median
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from protocols.auditing.handles import covers_of
from protocols.maintenance.registry import PROTOCOLS
from protocols.simulation.campaign import Campaign, Family
from protocols.simulation.setting import setting_of
from tests.harness.plantedinruns import SLIPS, hunted
from tests.harness.simulatedaudits import audited, states

_ENTRY = PROTOCOLS["batched-sweep"]
_FAMILIES: tuple[Family, ...] = ("views", "joins")


def main(
    stretches: Annotated[int, typer.Option(min=0, help="Stretches of right views.")] = 10_000,
    planted: Annotated[int, typer.Option(min=0, help="Wrong runs of each defect.")] = 5,
    first: Annotated[int, typer.Option(min=0, help="The first seed.")] = 0,
) -> None:
    """Audit simulated views; exit code 1 after a false alarm, or if a defect was not found."""
    wrong = _right_views(stretches, first) if stretches else False
    wrong = (_planted(planted, first) if planted else False) or wrong
    raise typer.Exit(1 if wrong else 0)


def _right_views(wanted: int, seed: int) -> bool:
    """Audits right views until there were so many stretches; True after a false alarm."""
    views: set[str] = set()
    whole = audits = stretches = rows = questions = ahead = alarms = 0
    while stretches < wanted:
        campaign = Campaign(_ENTRY, family=_FAMILIES[seed % 4 == 3], double_checked=0)
        outcome = campaign.run(seed).outcome
        assert outcome is not None
        view = setting_of(campaign.shaped(seed).scenario, _ENTRY, "bag").view
        views.add(view.sql)
        whole += not covers_of(view)
        random = Random(seed)
        for state in states(view, outcome):
            found, asked = audited(view, outcome, state, random.randint(1, 6), random)
            audits, stretches = audits + 1, stretches + found.stretches
            rows, questions = rows + found.rows, questions + asked.questions
            ahead += asked.ahead
            if found.wrong or found.troubles:
                alarms += 1
                print(f"FALSE ALARM: seed {seed}, position {state[0]}: {found}\n{view.sql}")
        seed += 1
    print(
        f"{stretches:,} stretches in {audits:,} audits of {len(views):,} views ({whole:,} runs with"
        f" views that are one stretch): {rows:,} rows, {questions:,} questions, {ahead:,} answers"
        f" ahead of the position; {alarms} false alarms"
    )
    return alarms > 0


def _planted(runs: int, first: int) -> bool:
    """Audits runs with planted defects; True if a wrong state was not found by looking at all."""
    table = Table(
        "planted", "wrong states", "found", "by stretches", "rows: median", "most", box=None
    )
    missed = False
    for name in SLIPS:
        hunt = hunted(name, range(first, first + 100 * runs), runs)
        missed = missed or hunt.found < hunt.wrong or not hunt.wrong
        table.add_row(
            name,
            f"{hunt.wrong:,}",
            f"{hunt.found:,}",
            f"{hunt.found_by_stretches:,}",
            f"{median(hunt.looked_at):g}" if hunt.looked_at else "-",
            f"{max(hunt.looked_at)}" if hunt.looked_at else "-",
        )
    Console().print(table)
    return missed


if __name__ == "__main__":
    typer.run(main)
