"""`viewsweep sources inspect`: what a job would see of its sources."""

import json
import random
from pathlib import Path

import duckdb
import pytest
from typer.testing import CliRunner

from cli.main import command_line
from tests.harness.world import World

RUNNER = CliRunner()


def inspected(file: Path, *options: str) -> str:
    ended = RUNNER.invoke(command_line(), ["sources", "inspect", "--config", str(file), *options])
    assert ended.exit_code == 0, ended.output
    return ended.stdout


def test_sizes_and_ends_are_those_of_the_databases(world: World) -> None:
    world.commit_at_random(random.Random(3), 40)
    world.wait_until_published()
    found = json.loads(inspected(world.write_configuration(), "--json"))
    assert found.keys() == world.sources.keys()
    for name, source in world.sources.items():
        said = found[name]
        assert (said["version"], said["published"]) == (source.database.version,) * 2
        assert said["reads"] == "versions"
        [partition] = said["partitions"]
        assert partition["topic"] == source.topic
        assert partition["next"] >= source.database.version
        for relation in source.catalog:
            of = said["relations"][relation.name]
            assert of["columns"] == relation.to_json()["columns"]
            with source.database.snapshot() as (cursor, _):
                truth = _counted(cursor, relation.name, relation.column_names)
            assert (of["rows"], of["distinct"]) == truth


def _counted(
    cursor: duckdb.DuckDBPyConnection, name: str, columns: tuple[str, ...]
) -> tuple[int, dict[str, int]]:
    """Exact, which estimates of so few values are as well."""
    counts = ", ".join(f'count(DISTINCT "{column}")' for column in columns)
    row = cursor.execute(f"SELECT count(*), {counts} FROM relations.{name}").fetchone()
    assert row is not None
    return row[0], dict(zip(columns, row[1:], strict=True))


def test_a_person_reads_keys_topics_and_sizes(world: World) -> None:
    text = inspected(world.write_configuration(), "--source", "a")
    source = world.sources["a"]
    assert f"source a: version {source.database.version}" in text
    assert f"topic {source.topic}, partition 0: offsets 0 to" in text
    assert "source b" not in text
    assert "rows; " in text


@pytest.mark.parametrize(("option", "part"), [("nowhere", "there is no [sources.nowhere]")])
def test_an_unknown_source_is_named(world: World, option: str, part: str) -> None:
    file = world.write_configuration()
    ended = RUNNER.invoke(
        command_line(), ["sources", "inspect", "--config", str(file), "--source", option]
    )
    assert ended.exit_code != 0
    assert part in str(ended.exception)
