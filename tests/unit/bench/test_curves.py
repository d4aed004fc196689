"""The drawn costs: bounds that hold, bytes that fall, plots that show them."""

import xml.etree.ElementTree as ET
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner

from bench.burst import Burst, BurstSettings
from bench.curves import QUICK, BatchCost, by_base, by_batch, by_relations, charts, cost, main
from infra.charts import drawn

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
    """Figures shared by several tests."""

    batches: dict[str, list[BatchCost]]
    bases: dict[int, list[BatchCost]]
    relations: list[BatchCost]


@pytest.fixture(scope="module")
def measured() -> Measured:
    return Measured(by_batch(_TINY), by_base(_TINY), by_relations(_TINY))


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
    picture = ET.fromstring(drawn(charts(measured.batches, measured.bases, measured.relations)))
    roles = [element.get("aria-roledescription") for element in picture.iter()]
    assert roles.count("line mark") == 6 + 3 + 2 * 2 + 2
    assert roles.count("point") == 6 * 3 + 3 * 3 + 2 * 2 * 2 + 2 * 7


def test_the_command_prints_the_figures_and_draws(tmp_path: Path) -> None:
    import typer

    app = typer.Typer()
    app.command()(main)
    plot = tmp_path / "costs.svg"
    done = CliRunner().invoke(app, ["--quick", "--into", str(plot)])
    assert done.exit_code == 0, done.output
    assert set(orjson.loads(done.stdout)) == {"threads", "by_batch", "by_base", "by_relations"}
    assert plot.read_text().startswith("<svg")
