"""The drawn costs: bounds that hold, bytes that fall, plots that show them."""

import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
import pytest
import typer
from typer.testing import CliRunner, Result

from bench import curves
from bench.burst import Burst, BurstSettings
from bench.curves import QUICK, BatchCost, Sizes, by_base, by_batch, by_relations, cost, main

_TINY = replace(QUICK, batches=(1, 20, 400), bases=(2_000, 4_000), base=3_000, batch=100)


@pytest.mark.parametrize(
    ("name", "bound"),
    # n + I - 1, counted by hand: the inner atoms are o and c, then p, then p and o.
    [("chain4", 5), ("star4", 4), ("tree5", 6), ("chain8", 13), ("star8", 8)],
)
def test_a_large_batch_asks_exactly_as_often_as_the_bound_says(name: str, bound: int) -> None:
    burst = Burst(BurstSettings(name, base_rows=2_000, updates=2_000))
    found = cost(burst, 400)
    assert found.most_questions == found.bound == bound


@dataclass(frozen=True)
class Measured:
    """A run of the command, and the figures that it was made of."""

    batches: dict[str, list[BatchCost]]
    bases: dict[int, list[BatchCost]]
    relations: list[BatchCost]
    done: Result
    plot: Path


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    plot = tmp_path_factory.mktemp("curves") / "costs.svg"
    figures: dict[str, Any] = {}

    def noting(measure: Callable[[Sizes], Any]) -> Callable[[Sizes], Any]:
        def noted(sizes: Sizes) -> Any:
            figures[measure.__name__] = measure(sizes)
            return figures[measure.__name__]

        return noted

    app = typer.Typer()
    app.command()(main)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(curves, "QUICK", _TINY)
        for measure in (by_batch, by_base, by_relations):
            patch.setattr(curves, measure.__name__, noting(measure))
        done = CliRunner().invoke(app, ["--quick", "--into", str(plot)])
    assert done.exit_code == 0, done.output
    return Measured(figures["by_batch"], figures["by_base"], figures["by_relations"], done, plot)


def test_questions_stay_within_the_bound_and_bytes_per_update_fall(measured: Measured) -> None:
    for costs in measured.batches.values():
        assert all(each.most_questions <= each.bound for each in costs)
        assert all(
            large.bytes_per_update < small.bytes_per_update for small, large in pairwise(costs[1:])
        )


def test_bases_and_relations_are_varied_one_at_a_time(measured: Measured) -> None:
    bases = measured.bases
    assert [c.batch for costs in bases.values() for c in costs] == [10, 10, 100, 100]
    for costs in bases.values():
        assert [(c.workload, c.base_rows) for c in costs] == [("chain4", 2_000), ("chain4", 4_000)]
    found = measured.relations
    assert [c.workload for c in found] == [f"chain{n}" for n in range(2, 9)]
    assert {(c.base_rows, c.batch) for c in found} == {(3_000, 100)}
    assert all(c.engine_us_per_update > 0 for c in found)


def test_the_plots_are_drawn_with_a_line_for_each_series(measured: Measured) -> None:
    picture = ET.fromstring(measured.plot.read_text())
    roles = [element.get("aria-roledescription") for element in picture.iter()]
    assert roles.count("line mark") == 6 + 3 + 2 * 2 + 2
    assert roles.count("point") == 6 * 3 + 3 * 3 + 2 * 2 * 2 + 2 * 7


def test_the_command_prints_the_figures_and_draws(measured: Measured) -> None:
    printed = orjson.loads(measured.done.stdout)
    assert set(printed) == {"threads", "by_batch", "by_base", "by_relations"}
    assert printed["by_relations"] == [asdict(each) for each in measured.relations]
    assert measured.plot.read_text().startswith("<svg")
