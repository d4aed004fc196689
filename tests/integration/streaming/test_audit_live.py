"""`viewsweep audit` over real sources, topics and tables: what it finds, and that it is right.

One world for all: each test damages something, looks, and mends it.
"""

import random
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest
from deltalake import DeltaTable

from cli import main as commandline
from infra.localbroker import LocalBroker
from page.statusjson import status_from
from streaming.figures.status import JobStatus
from streaming.liveview import facts
from tests.harness.waiting import eventually
from tests.harness.world import World, start


@dataclass
class Auditing:
    """The command over a world whose sources are ahead of the view."""

    world: World
    capsys: pytest.CaptureFixture[str]
    patch: pytest.MonkeyPatch

    def __call__(self, *options: str) -> tuple[int, dict[str, Any]]:
        arguments = ["viewsweep", "audit", "v", "--json", *options]
        config = ["--config", str(self.world.directory / "warehouse.toml")]
        self.patch.setattr(sys, "argv", arguments + config)
        with pytest.raises(SystemExit) as ended:
            commandline.main()
        said = self.capsys.readouterr()
        assert "Traceback" not in said.err
        return int(ended.value.code or 0), orjson.loads(said.out) if said.out else {"err": said.err}

    @property
    def table(self) -> Path:
        return self.world.directory / "tables/v"


@pytest.fixture(scope="module")
def kept(broker: LocalBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A view that was kept for a while; then the sources went on without it."""
    dice = random.Random(5)
    with World(tmp_path_factory.mktemp("audited"), broker.bootstrap, "audited") as world:
        world.publish()
        world.commit_at_random(dice, 60)
        world.wait_until_published()
        with world.job(protocol="batched-sweep") as job:
            start(job)
            for _ in range(3):
                world.commit_at_random(dice, 20)
                world.wait_until_published()
                job.take(world.records_after(job))
            job.running.finish()
        world.commit_at_random(dice, 60)
        world.wait_until_published()
        yield world


@pytest.fixture
def audit(
    kept: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Auditing]:
    """The tables are as before when the test is over."""
    monkeypatch.setattr(commandline, "_leave", sys.exit)
    monkeypatch.delenv("VIEWSWEEP_BROKER", raising=False)
    auditing = Auditing(kept, capsys, monkeypatch)
    aside = auditing.table.with_name("aside")
    shutil.copytree(auditing.table, aside)
    yield auditing
    shutil.rmtree(auditing.table)
    aside.rename(auditing.table)


def test_a_view_holds_though_its_sources_went_on(audit: Auditing) -> None:
    for options in (["--fraction", "1"], ["--fraction", "0.3"], ["--rows", "7"], []):
        code, found = audit(*options)
        assert (code, found["verdict"]) == (0, "holds"), found
        assert found["questions"] > 0
    assert found["vector"] != audit.world.versions


@pytest.mark.parametrize("table", ["changes", "current"])
def test_a_row_changed_in_delta_by_hand_is_found(audit: Auditing, table: str) -> None:
    delta = DeltaTable(audit.table / table)
    delta.update({"t": "'forged'"}, predicate="id = 7")
    code, found = audit("--fraction", "1")
    assert (code, found["verdict"]) == (1, "differs")
    named = found["differences"]
    assert {each["table"] for each in named} == {table}
    assert any(each["row"][1] == "forged" and each["due"] == 0 for each in named)
    # Without all rows: what is drawn finds it sooner or later.
    assert any(audit("--fraction", "0.4")[0] == 1 for _ in range(40))


def test_rows_taken_out_of_delta_are_found(audit: Auditing) -> None:
    DeltaTable(audit.table / "current").delete("id = 7")
    code, found = audit("--fraction", "1")
    assert code == 1
    assert all(each["stored"] < each["due"] for each in found["differences"])
    assert any(audit("--fraction", "0.4")[0] == 1 for _ in range(40))


def parquet_in(table: Path) -> Path:
    """The largest file that the table's log names."""
    files = [Path(str(uri).removeprefix("file://")) for uri in DeltaTable(table).file_uris()]
    return max(files, key=lambda file: file.stat().st_size)


@pytest.mark.parametrize("table", ["changes", "current"])
@pytest.mark.parametrize("damage", ["inside", "cut"])
def test_a_damaged_parquet_file_is_found(audit: Auditing, table: str, damage: str) -> None:
    file = parquet_in(audit.table / table)
    content = bytearray(file.read_bytes())
    if damage == "inside":
        content[4:60] = bytes(255 - byte for byte in content[4:60])
    else:
        del content[-40:]
    file.write_bytes(content)
    code, found = audit("--rows", "3")
    assert (code, found["verdict"]) == (1, "differs"), found
    assert found["troubles"] or found["differences"]
    if damage == "cut":
        assert file.name in found["troubles"][0]


def test_a_source_that_changed_without_publishing_is_found(audit: Auditing) -> None:
    database = audit.world.sources["a"].database
    change = "UPDATE {} SET t = 'silent' WHERE id = 7"
    [(table,)] = database._connection.execute(
        "SELECT table_schema || '.' || table_name FROM information_schema.tables"
        " WHERE table_name = 'r'"
    ).fetchall()
    [(before,)] = database._connection.execute(f"SELECT t FROM {table} WHERE id = 7").fetchall()
    try:
        database._connection.execute(change.format(table))
        code, found = audit("--fraction", "1")
        assert code == 1
        assert any("silent" in each["row"] for each in found["differences"])
    finally:
        database._connection.execute(f"UPDATE {table} SET t = ? WHERE id = 7", [before])
    assert audit("--fraction", "1")[0] == 0


def test_wrong_use_is_said(audit: Auditing) -> None:
    for options in (["--fraction", "2"], ["--fraction", "0.1", "--rows", "3"]):
        code, found = audit(*options)
        assert code == 2
        assert "fraction" in found["err"]


def _differs(status: JobStatus) -> bool:
    audited = status.views[0].audit
    return audited is not None and not audited.holds


def test_a_job_audits_its_views_by_itself(audit: Auditing) -> None:
    world = audit.world
    with world.job(protocol="batched-sweep", audit_every='"1s"') as job:
        start(job)
        eventually(lambda: job.status().views[0].audit is not None, "an audit was made")
        found = job.status().views[0].audit
        assert found is not None
        assert found.holds
        assert found.questions > 0
        DeltaTable(audit.table / "changes").update({"t": "'forged'"}, predicate="id > 0")
        eventually(lambda: _differs(job.status()), "the audit found it")
        status = job.status()
        found = status.views[0].audit
        assert found is not None
        assert "an audit found wrong rows in" in facts(status)
        assert any("forged" in report for report in world.reports)
        form = orjson.loads(orjson.dumps(status.to_json()))
        assert form["views"]["v"]["audit"]["verdict"] == "differs"
        back = status_from(form).views[0].audit
        assert back is not None
        assert (back.differences, back.position) == (found.differences, found.position)
