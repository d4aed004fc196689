"""`viewsweep simulate`: its first and last lines, its exit codes, and the files that it leaves."""

from pathlib import Path
from typing import Any

import orjson
import pytest
import typer
from typer.testing import CliRunner, Result

from cli.check import check
from cli.simulate import simulate
from protocols.checking.levels import DELIVERY
from protocols.maintenance.registry import PROTOCOLS, Entry
from tests.harness.places import ROOT

SCENARIOS = ROOT / "examples" / "scenarios"
FIGURE_5 = str(SCENARIOS / "figure-5.json")
TWO = str(SCENARIOS / "two-sources-three-updates.json")
app = typer.Typer()
app.command()(simulate)
checking = typer.Typer()
checking.command()(check)


def run(*words: str, directory: Path | None = None) -> Result:
    where = [] if directory is None else ["--failures", str(directory)]
    return CliRunner().invoke(app, [*words, *where])


def answer(result: Result) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(result.stdout)
    return found


def test_a_right_run_exits_0_with_the_knobs_first_and_the_command_last(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    result = run(FIGURE_5, "--protocol", "sweep", "--seed", "7", "--trace", str(trace))
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].startswith("protocol sweep, which claims complete-in-delivery-order")
    for knob in ("seed 7", "algebra", "stale", "partitions", "crashes", "slices", "arrive a:"):
        assert knob in lines[2]
    assert lines[-1] == f"reproduce: viewsweep simulate {FIGURE_5} --protocol sweep --seed 7"
    assert CliRunner().invoke(checking, [str(trace)]).exit_code == 0


def test_a_wrong_result_exits_1_and_is_written_down_small(tmp_path: Path) -> None:
    result = run(
        "--random", "--protocol", "naive", "--seeds", "1..12", "--json", directory=tmp_path
    )
    assert result.exit_code == 1
    found = answer(result)
    assert found["runs"] == 12
    assert found["wrong"]
    assert found["wrong"][0]["reached"] == "none"
    (path,) = found["files"]
    written = orjson.loads(Path(path).read_bytes())
    assert len(written["scenario"]["updates"]) <= 2
    replayed = run("--replay", path, "--json")
    assert replayed.exit_code == 1
    assert answer(replayed)["wrong"][0]["words"] == written["verdict"]["words"]
    assert run("--replay", path, "--protocol", "sweep").exit_code == 0


def test_the_seed_of_a_campaign_is_the_seed_of_a_run(tmp_path: Path) -> None:
    words = ("--random", "--protocol", "naive", "--no-shrink", "--json")
    many = answer(run(*words, "--seeds", "1..12", directory=tmp_path))["wrong"]
    seed = many[-1]["seed"]
    assert answer(run(*words, "--seed", str(seed), directory=tmp_path))["wrong"] == [many[-1]]


def test_a_campaign_says_what_it_did() -> None:
    result = run("--random", "--protocol", "sweep", "--seeds", "1..40", "--json", "--workers", "1")
    found = answer(result)
    assert result.exit_code == 0
    assert found["wrong"] == found["asked_too_much"] == found["broke"] == []
    assert found["bound_exceeded"] == 0
    assert found["concurrent_answers"] > 40
    assert found["runs_per_second"] > 0
    assert found["states"] > 40
    assert found["queries"] > 40


def test_a_campaign_without_concurrency_exits_1_and_says_why() -> None:
    result = run("--random", "--protocol", "sweep", "--seeds", "1..20", "--updates", "0")
    assert result.exit_code == 1
    assert "vacuous: only 0 answers in 20 runs" in result.stdout


def test_given_knobs_are_used_and_repeated() -> None:
    words = ("--algebra", "frame", "--stale", "--partitions", "2", "--crashes", "1")
    result = run(FIGURE_5, "--protocol", "sweep", *words, "--redelivery", "other")
    as_json = answer(run(FIGURE_5, "--protocol", "sweep", *words, "--json"))
    assert as_json["knobs"]["partitions"] == 2
    assert as_json["knobs"]["delays"]["arrive"].keys() == {"a", "b", "c"}
    assert "algebra frame, page" in result.stdout
    assert "stale yes" in result.stdout
    assert "partitions 2, crashes 1, redelivery other" in result.stdout
    last = result.stdout.splitlines()[-1]
    assert last.endswith("--algebra frame --stale --partitions 2 --crashes 1 --redelivery other")


def test_slices_are_for_protocols_whose_batches_may_be_cut() -> None:
    result = run(FIGURE_5, "--protocol", "batched-sweep", "--slices", "3")
    assert result.exit_code == 0
    assert "slices 3" in result.stdout
    refused = run(FIGURE_5, "--protocol", "sweep", "--slices", "3")
    assert refused.exit_code == 2
    assert "protocols that have: batched-sweep" in refused.stderr


def test_all_schedules_are_counted(tmp_path: Path) -> None:
    result = run(TWO, "--exhaustive", "--protocol", "sweep", "--json")
    assert (result.exit_code, answer(result)["schedules"]) == (0, 47)
    result = run(TWO, "--exhaustive", "--protocol", "naive", "--json", directory=tmp_path)
    assert result.exit_code == 1
    (path,) = answer(result)["files"]
    assert run("--replay", path).exit_code == 1
    assert run("--replay", path, "--protocol", "sweep").exit_code == 0


def test_all_schedules_over_sources_with_holes_are_tried_and_one_replays(tmp_path: Path) -> None:
    every = ("--exhaustive", "--reads", "holes", "--json")
    result = run(TWO, *every, "--protocol", "sweep")
    assert (result.exit_code, answer(result)["schedules"]) == (0, 1080)
    assert answer(result)["reproduce"].endswith("--reads holes")
    # The checker judges each wrong schedule, and without the last update there are thirty times
    # fewer of them.
    form = orjson.loads(Path(TWO).read_bytes())
    fewer = tmp_path / "fewer.json"
    fewer.write_bytes(orjson.dumps({**form, "updates": form["updates"][:2]}))
    result = run(str(fewer), *every, "--protocol", "naive", directory=tmp_path)
    assert (result.exit_code, answer(result)["schedules"]) == (1, 36)
    (path,) = answer(result)["files"]
    assert run("--replay", path).exit_code == 1
    replayed = run("--replay", path, "--protocol", "sweep")
    assert replayed.exit_code == 0
    assert "one of all schedules, reads holes" in replayed.stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "say what to run"),
        (("--random", FIGURE_5, "--protocol", "sweep"), "say what to run"),
        (("--random",), "--protocol sweep |"),
        (("--random", "--protocol", "weep"), "no protocol 'weep'"),
        (("--random", "--protocol", "sweep", "--seeds", "5"), "1..20000, not '5'"),
        (("--random", "--protocol", "sweep", "--seeds", "5..1"), "not '5..1'"),
        (("--random", "--protocol", "sweep", "--seed", "1", "--seeds", "1..2"), "either --seed"),
        (("--random", "--protocol", "sweep", "--algebra", "x"), "no algebra 'x'"),
        (("--random", "--protocol", "sweep", "--redelivery", "x"), "same or other, not 'x'"),
        (("--random", "--exhaustive", "--protocol", "sweep"), "cannot be combined with --random"),
        (("--exhaustive", "--protocol", "sweep"), "three-sources-four-updates.json"),
        (("nowhere.json", "--protocol", "sweep"), "nowhere.json cannot be read"),
        ((__file__, "--protocol", "sweep"), "is not JSON"),
        ((FIGURE_5, "--protocol", "strobe"), "needs the key"),
        (("--replay", FIGURE_5), "needs the field 'scenario'"),
        (("--random", "--protocol", "sweep", "--seeds", "1..2", "--trace", "x"), "--seed N"),
        ((FIGURE_5, "--protocol", "sweep", "--updates", "3"), "it needs --random"),
        ((FIGURE_5, "--protocol", "sweep", "--views"), "--views is for random scenarios"),
        (("--random", "--views", "--protocol", "lca"), "inner joins only"),
        ((TWO, "--exhaustive", "--protocol", "sweep", "--stale"), "--stale applies only"),
        ((TWO, "--exhaustive", "--protocol", "strobe", "--reads", "holes"), "strobe needs FIFO"),
        (
            (TWO, "--exhaustive", "--protocol", "sweep", "--reads", "x"),
            "versions, holes or windows",
        ),
        (("--random", "--protocol", "strobe", "--stale"), "strobe needs FIFO"),
        (("--random", "--protocol", "eca", "--reads", "holes"), "eca needs FIFO"),
        (("--random", "--protocol", "sweep", "--reads", "x"), "versions, holes or windows"),
    ],
)
def test_wrong_use_exits_2_and_names_the_thing(words: tuple[str, ...], says: str) -> None:
    result = run(*words)
    assert result.exit_code == 2, result.output
    assert says in " ".join(result.output.split())


def test_a_view_that_cannot_be_kept_is_refused_with_its_file_and_place(tmp_path: Path) -> None:
    form = orjson.loads(Path(FIGURE_5).read_bytes())
    file = tmp_path / "ordered.json"
    file.write_bytes(orjson.dumps({**form, "view": form["view"] + " ORDER BY 1"}))
    result = run(str(file), "--protocol", "batched-sweep", "--seed", "1")
    assert result.exit_code == 2
    assert f"simulate: {file}, its view, line 1, column " in result.stderr
    assert "ORDER BY is not supported" in result.stderr


def test_an_impossible_scenario_is_refused_with_its_file_and_place(tmp_path: Path) -> None:
    form = orjson.loads(Path(FIGURE_5).read_bytes())
    form["updates"][1]["changes"][0]["row"] = [9, 9]
    path = tmp_path / "impossible.json"
    path.write_bytes(orjson.dumps(form))
    result = run(str(path), "--protocol", "sweep")
    assert result.exit_code == 2
    assert "impossible.json: updates[1]: c.R3: the row [9, 9] is deleted, but" in result.output


def test_a_crash_of_viewsweep_exits_3_with_its_seed_and_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> Any:
        raise RuntimeError("no protocol today")

    monkeypatch.setitem(PROTOCOLS, "sweep", Entry("sweep", broken, "breaks", DELIVERY))
    words = ("--random", "--protocol", "sweep", "--seed", "3")
    result = run(*words, directory=tmp_path)
    assert result.exit_code == 3
    assert "seed 3: broke: RuntimeError: no protocol today" in result.stdout
    assert "Traceback" not in result.output
    assert "Traceback" in (tmp_path / "sweep-seed-3.traceback.txt").read_text()
    assert "Traceback" in run(*words, "--verbose", directory=tmp_path).output
    result = run(TWO, "--exhaustive", "--protocol", "sweep")
    assert result.exit_code == 3
    assert "schedule 1: broke: RuntimeError: no protocol today" in result.stdout


def test_random_views_are_a_family_of_their_own_and_say_what_they_covered() -> None:
    words = ("--random", "--views", "--protocol", "batched-sweep", "--seeds", "1..6")
    result = run(*words, "--workers", "1", "--json")
    found = answer(result)
    assert result.exit_code == 0, result.output
    assert found["shapes"] == {"view": 6}
    assert found["plans"] > 1
    assert sum(found["operators_met"].values()) > 0
    assert "--random --views --protocol batched-sweep" in found["reproduce"]
