"""`compare`: the figures are those that algorithms.md derives, and the command prints them."""

import xml.etree.ElementTree as ET
from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner

from cli.compare import listed
from cli.main import command_line
from protocols.checking.levels import LEVELS
from protocols.errors import WrongUse
from protocols.maintenance.registry import DEFAULT, PROTOCOLS
from protocols.simulation.comparison import ComparisonSettings, compare
from protocols.simulation.pace import chain, cost

SMALL = ComparisonSettings(paces=(0, 4), sizes=(3,), relations=3, updates=30, runs=4)


@pytest.mark.parametrize(("n", "bound"), [(2, 2), (3, 3), (4, 5), (5, 7), (6, 9)])
def test_a_batch_over_a_chain_asks_2n_minus_3_questions_at_most(n: int, bound: int) -> None:
    """n + I - 1 with I = n - 2 inner relations, and the bound is reached."""
    assert cost(PROTOCOLS["batched-sweep"], n, 4, 60).most_questions == bound


@pytest.mark.parametrize("pace", [0, 1, 4])
def test_sweep_asks_n_minus_1_questions_whatever_the_pace(pace: float) -> None:
    assert [cost(PROTOCOLS["sweep"], n, pace, 40).most_questions for n in (2, 3, 4)] == [1, 2, 3]


@pytest.mark.parametrize(("n", "burst", "terms"), [(3, 12, 9), (3, 24, 17), (4, 12, 37)])
def test_the_message_of_eca_grows_as_derived(n: int, burst: int, terms: int) -> None:
    """algorithms.md, section 1: remote terms of the K-th question with no answers in between."""
    assert cost(PROTOCOLS["eca"], n, burst, burst).most_terms == terms


def test_strobe_shows_nothing_while_updates_keep_coming_and_nested_does() -> None:
    starving, nested = (cost(PROTOCOLS[name], 4, 4, 60) for name in ("strobe", "nested-sweep"))
    assert starving.installs_meanwhile == 0
    assert nested.installs_meanwhile > 0
    assert starving.installs >= 1, "it shows the end at least"


def test_at_pace_0_all_who_ask_one_update_at_a_time_show_each_of_them() -> None:
    for name in ("sweep", "parallel-sweep", "nested-sweep", "batched-sweep", "strobe", "eca"):
        assert cost(PROTOCOLS[name], 3, 0, 30).installs == 30, name


def test_the_chain_is_a_scenario_that_a_database_could_commit() -> None:
    for one_source in (True, False):
        scenario = chain(4, 50, one_source, seed=2)
        assert len(scenario.updates) == 50
        assert len(scenario.catalog.sources) == (1 if one_source else 4)


def test_levels_come_from_the_checker_and_the_control_is_found_out() -> None:
    found = compare(SMALL, lambda _: None)
    by_name = {line.entry.name: line for line in found.lines}
    assert by_name.keys() == PROTOCOLS.keys()
    assert by_name["naive"].below
    assert found.failed == ()
    assert all(line.reached is not None for line in found.lines if not line.entry.control)


def test_every_protocol_promises_a_level_and_is_in_the_table() -> None:
    assert {entry.level for entry in PROTOCOLS.values()} <= set(LEVELS)
    assert DEFAULT in PROTOCOLS
    table = listed()
    assert all(f"| {name} |" in table for name in PROTOCOLS)


def test_the_command_gives_json_a_plot_and_the_tables_of_a_file(tmp_path: Path) -> None:
    readme, plot = tmp_path / "README.md", tmp_path / "plot.svg"
    marks = [
        f"<!-- {word}{name} -->" for name in ("protocols", "compare") for word in ("", "end of ")
    ]
    readme.write_text("before\n" + "\n".join(marks) + "\nafter\n")
    options = ["-p", "sweep", "-p", "eca", "--updates", "20", "--runs", "2", "--relations", "3"]
    arguments = ["compare", *options, "--json", "--plot", str(plot), "--into", str(readme)]
    result = CliRunner().invoke(command_line(), arguments)
    assert result.exit_code == 0, result.output
    form = orjson.loads(result.stdout)
    assert [row["protocol"] for row in form["rows"]] == ["sweep", "eca"]
    assert {claim["words"].partition(":")[0] for claim in form["claims"]} == {"SWEEP", "ECA"}
    root = ET.fromstring(plot.read_text())
    assert len([e for e in root.iter() if e.get("aria-roledescription") == "line mark"]) == 4
    text = readme.read_text()
    assert text.startswith("before\n<!-- protocols -->\n| protocol |")
    assert text.endswith("<!-- end of compare -->\nafter\n")
    assert "| sweep | complete-in-delivery-order |" in text


def test_a_file_without_a_place_for_the_tables_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "README.md"
    file.write_text("nothing here")
    arguments = ["compare", "-p", "sweep", "--updates", "10", "--runs", "1", "--into", str(file)]
    result = CliRunner().invoke(command_line(), arguments)
    assert isinstance(result.exception, WrongUse)
    assert "lacks the lines that mark the place" in str(result.exception)
    assert file.read_text() == "nothing here"
