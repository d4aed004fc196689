"""`viewsweep sources doctor` names what is missing, and its statements mend it."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import pytest

from infra.localbroker import LocalBroker
from infra.localpostgres import LocalPostgres
from tests.cases.stories import KEYED
from tests.harness.databases import DatabaseWorld
from tests.harness.postgres import PostgresDatabase
from tests.harness.running import ended
from tests.harness.topics import add_partitions

Doctor = Callable[..., tuple[int, dict[str, str]]]


@pytest.fixture
def world(
    broker: LocalBroker, server: LocalPostgres, topic: str, tmp_path: Path
) -> Iterator[DatabaseWorld]:
    with DatabaseWorld(tmp_path, broker.bootstrap, topic, KEYED).on(server) as world:
        world.publish()
        yield world


@pytest.fixture
def doctor(
    world: DatabaseWorld, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Doctor:
    """Runs the command for one source: its exit code, and what is missing → how it is mended."""
    file = world.write_configuration()

    def run(database: PostgresDatabase, *more: object) -> tuple[int, dict[str, str]]:
        arguments = ["sources", "doctor", "--config", file, "--source", database.name, "--json"]
        slot = ["--slot", f"s_{database.database}"]
        code, said, problem = ended([*arguments, *slot, *more], capsys, monkeypatch)
        assert said, problem
        found = orjson.loads(said)[database.name]
        return code, {each["what"]: each["mend"] for each in found}

    return run


def test_each_thing_that_is_missing_is_named_and_mended(
    world: DatabaseWorld, doctor: Doctor
) -> None:
    database = world.databases["a"]
    assert doctor(database) == (0, {})
    statements = [
        "ALTER TABLE r REPLICA IDENTITY DEFAULT",
        "DROP PUBLICATION viewsweep; CREATE PUBLICATION viewsweep",
        "ALTER PUBLICATION viewsweep SET (publish = 'insert')",
    ]
    with database.connected() as connection:
        for statement in statements:
            connection.execute(statement)
        code, lacks = doctor(database)
        assert code == 1
        assert set(lacks) == {
            "r: its changes do not show whole rows",
            "publication viewsweep leaves out some operations",
        }
        for mend in lacks.values():
            connection.execute(mend)
        code, lacks = doctor(database)
        assert set(lacks) == {"r: publication viewsweep does not have it"}
        connection.execute(lacks.popitem()[1].partition(",")[0])
        assert doctor(database) == (0, {})


def test_a_login_that_may_not_read_a_table(world: DatabaseWorld, doctor: Doctor) -> None:
    database = world.databases["a"]
    role = f"reader_{database.database}"
    with database.connected() as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN")
        file = database.place.partition('"')[2].rstrip('"')
        (world.directory / file).write_text(database.address.replace("postgres@", f"{role}@"))
        code, lacks = doctor(database)
        assert (code, list(lacks)) == (1, ["the login is not allowed to read table public.r"])
        connection.execute(lacks.popitem()[1].partition(",")[0])
    assert doctor(database) == (0, {})


def test_tables_that_no_view_uses_are_noted_only(
    world: DatabaseWorld,
    doctor: Doctor,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    database = world.databases["a"]
    with database.connected() as connection:
        connection.execute("CREATE TABLE unused (id bigint PRIMARY KEY, tags text[])")
    noted = "unused: its changes do not show whole rows"
    code, lacks = doctor(database)
    assert (code, list(lacks)) == (0, [noted])
    file = world.directory / "warehouse.toml"
    options = ["--config", file, "--source", "a", "--slot", f"s_{database.database}"]
    code, said, _ = ended(["sources", "doctor", *options], capsys, monkeypatch)
    assert code == 0
    assert "source a: ready, nothing is missing" in said
    assert noted in said
    with database.connected() as connection:
        connection.execute(lacks[noted])
    [left] = doctor(database)[1]
    assert left == "unused.tags: its type text[] is not one that views can hold"


def test_a_connector_that_does_not_run_and_a_topic_with_two_partitions(
    world: DatabaseWorld, doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cli.doctor._SECONDS", 2.0)
    database = world.databases["a"]
    code, lacks = doctor(database, "--slot", "other", "--publication", "nothing")
    assert code == 1
    assert lacks.pop("there is no publication nothing").endswith("nothing FOR ALL TABLES")
    assert lacks.pop("there is no replication slot other").startswith("start the connector")
    assert not lacks
    world.connect.kill()
    code, lacks = doctor(database)
    assert code == 1
    assert any(re.search("has not arrived in topic .* Start the connector", what) for what in lacks)
    add_partitions(world.bootstrap, database.topic, 2)
    code, lacks = doctor(database)
    assert any(
        "has 2 partitions; a connector's topic must have exactly one" in what for what in lacks
    )


def test_the_connector_s_configuration_is_printed_without_the_password(
    world: DatabaseWorld, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = world.write_configuration()
    (world.directory / "a.address").write_text("postgresql://me:secret@db:5433/shop")
    code, said, _ = ended(["sources", "connector", "a", "--config", file], capsys, monkeypatch)
    form = orjson.loads(said)
    assert code == 0
    assert "secret" not in said
    assert form["transforms.one.replacement"] == world.databases["a"].topic
    assert (form["database.hostname"], form["database.port"]) == ("db", "5433")
    assert form["database.user"] == "debezium"
