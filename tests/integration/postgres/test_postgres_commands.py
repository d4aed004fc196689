"""Commands over PostgreSQL sources: inspect, explain, run on Spark; and what is refused."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

from infra.localbroker import LocalBroker
from infra.localpostgres import LocalPostgres
from tests.cases.stories import KEYED
from tests.harness.databases import DatabaseWorld
from tests.harness.places import ROOT
from tests.harness.running import ran
from warehouse.tables import ViewTables


def said(*arguments: object) -> tuple[int, str]:
    """The exit code and the output of a command; the job runs in a process of its own."""
    if arguments[0] == "run":
        command = [sys.executable, "-m", "cli.main", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    else:
        done = ran(arguments, ROOT)
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def test_a_view_is_inspected_explained_and_kept_by_spark(
    broker: LocalBroker, server: LocalPostgres, topic: str, tmp_path: Path
) -> None:
    with DatabaseWorld(tmp_path, broker.bootstrap, topic, KEYED).on(server) as world:
        world.publish()
        world.commit_at_random(random.Random(5), 20)
        database = world.databases["a"]
        with database.connected() as connection:
            connection.execute("CREATE TABLE odd (id bigint, i interval)")
            connection.execute("CREATE TABLE half (id bigint PRIMARY KEY)")
            connection.execute("ALTER TABLE odd REPLICA IDENTITY FULL")
        world.number_from_here()
        file = world.write_configuration()
        code, text = said("sources", "inspect", "--config", file)
        assert (code, "gives snapshots with exceptions" in text) == (0, True), text
        assert "not for views: odd.i: its type interval" in text
        assert "not for views: half: its changes do not show whole rows: ALTER TABLE" in text
        code, text = said("explain", tmp_path / "v.sql", "--config", file)
        assert code == 0, text
        code, text = said("run", "--config", file, "--once")
        assert code == 0, text
        world.commit_at_random(random.Random(6), 20)
        world.wait_until_published()
        code, text = said("run", "--config", file, "--once")
        assert code == 0, text
        with world.job() as job:
            job.check()
            assert world.assert_complete(ViewTables(tmp_path / "tables", job.view)) > 10
        code, text = said("trace", tmp_path / "trace.jsonl", "--config", file)
        assert code == 0, text
        code, text = said(
            "check", tmp_path / "trace.jsonl", "--level", "complete-in-delivery-order"
        )
        assert (code, "VALID" in text) == (0, True), text
        # The view is behind now, and so are the numbers that it knows.
        world.commit_at_random(random.Random(7), 20)
        world.wait_until_published()
        for amount in (("--fraction", "1"), ("--rows", "5")):
            code, text = said("audit", "v", "--config", file, *amount)
            assert (code, "HOLDS" in text) == (0, True), text


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ("postgres_env = 'NO_SUCH_VARIABLE_HERE'", "NO_SUCH_VARIABLE_HERE is not set"),
        ("postgres_file = 'nowhere.dsn'", "cannot be read"),
        ("postgres_env = 'A'\naddress = 'grpc://127.0.0.1:1'", "exclude each other"),
        ("address = 'grpc://127.0.0.1:1'\nschema = 'x'", "belongs to postgres_env"),
        ("postgres_env = 'A'\ntoken_env = 'B'", "belongs to address"),
    ],
)
def test_wrong_settings_are_named(lines: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "v.sql").write_text("SELECT id FROM a.r")
    file = tmp_path / "warehouse.toml"
    file.write_text(
        '[warehouse]\npath = "lake"\n[kafka]\nbootstrap = "127.0.0.1:1"\n[sources.a]\n'
        f'{lines}\n[views.v]\nsql = "v.sql"\n'
    )
    code, text = said("explain", tmp_path / "v.sql", "--config", file)
    assert (code, problem in text) == (2, True), text
