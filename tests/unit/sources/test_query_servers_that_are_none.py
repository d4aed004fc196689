"""Wrong addresses, and servers that answer like no query server: one message each.

The server is a real one, on a real port; the test only chooses its answers.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from pyarrow import flight

from sources.wire.client import SourceClient
from tests.harness.running import ended

GOOD: dict[str, Any] = {
    "source": "a",
    "version": 0,
    "published": 0,
    "topic": "a",
    "relations": {"r": {"columns": {"id": "BIGINT"}, "key": ["id"]}},
    "indexes": {"r": []},
}


class Saying(flight.FlightServerBase):  # type: ignore[misc]
    """Answers every action with the same results."""

    def __init__(self, results: list[bytes]) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self.results = results

    def do_action(self, _context: Any, _action: Any) -> Iterator[Any]:
        yield from map(flight.Result, self.results)


@contextmanager
def saying(*results: bytes) -> Iterator[str]:
    with Saying(list(results)) as server:
        yield f"grpc://127.0.0.1:{server.port}"


Run = Callable[..., tuple[int, str]]


@pytest.fixture
def viewsweep(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command; returns its exit code and its one message."""

    def run(*arguments: object) -> tuple[int, str]:
        code, _, said = ended(arguments, capsys, monkeypatch)
        [message] = said.splitlines()
        assert message.startswith("viewsweep: ")
        return code, message

    return run


def configured(directory: Path, address: str) -> Path:
    (directory / "v.sql").write_text("SELECT id FROM a.r")
    file = directory / "warehouse.toml"
    file.write_text(
        '[warehouse]\npath = "lake"\n[kafka]\nbootstrap = "127.0.0.1:1"\n'
        f'[sources.a]\naddress = "{address}"\n[views.v]\nsql = "v.sql"\n'
    )
    return file


def without(field: str) -> bytes:
    return orjson.dumps({name: value for name, value in GOOD.items() if name != field})


def having(**fields: Any) -> bytes:
    return orjson.dumps({**GOOD, **fields})


@pytest.mark.parametrize(
    ("results", "complaint"),
    [
        ([b"<html>"], "invalid JSON"),
        ([b"\xff\xfe"], "invalid JSON"),
        ([b""], "invalid JSON"),
        ([], "0 results instead of one"),
        ([orjson.dumps(GOOD)] * 2, "2 results instead of one"),
        ([b"[1]"], "not a JSON object"),
        ([b"null"], "not a JSON object"),
        ([without("version")], "does not report 'version'"),
        ([without("source")], "does not report 'source'"),
        ([without("relations")], "does not report 'relations'"),
        ([having(version="seven")], "'version' as \"seven\""),
        ([having(version="7")], "'version' as \"7\""),
        ([having(version=-1)], "'version' as -1"),
        ([having(version=1.5)], "'version' as 1.5"),
        ([having(version=True)], "'version' as true"),
        ([having(version=2**64 - 1)], "'version' as 18446744073709551615"),
        ([having(source=7)], "'source' as 7"),
        ([having(published="x")], "'published' as \"x\""),
        ([having(last_global=-1)], "'last_global' as -1"),
        ([having(topic=3)], "'topic' as 3"),
        ([having(indexes=[])], "'indexes' as []"),
        ([having(indexes={"r": "id"})], "'indexes' as {"),
        ([having(relations=[])], "'relations' as []"),
        ([having(relations={"r": 3})], "its status is wrong"),
        ([having(identity=5)], "'identity' as 5"),
        ([having(reads="snapshots")], "'reads' as \"snapshots\"; it should be 'versions',"),
        ([having(reads=["holes"])], "'reads' as [\"holes\"]"),
        (
            [having(keys={})],
            "its status is wrong: what it says: unknown field 'keys'",
        ),
        (
            [having(relations={"r": {**GOOD["relations"]["r"], "rows": []}})],
            "its status is wrong: relation a.r: unknown field 'rows'",
        ),
        (
            [having(relations={"r": {**GOOD["relations"]["r"], "keys": [["x"]]}})],
            "its status is wrong: relation a.r: further key column 'x' is not among its columns",
        ),
        ([having(relations={"r": {"columns": {"id": "UUID"}}})], "its status is wrong"),
        ([having(relations={"r": {"columns": {"id": "BIGINT"}, "key": 3}})], "its status is wrong"),
    ],
)
def test_a_status_that_is_none_is_named_by_every_command_that_asks_for_it(
    results: list[bytes], complaint: str, tmp_path: Path, viewsweep: Any
) -> None:
    transactions = tmp_path / "t.json"
    transactions.write_text('{"changes": [{"relation": "r", "row": [1], "count": 1}]}')
    with saying(*results) as address:
        config = configured(tmp_path, address)
        for arguments in (
            ["sources", "status", "--address", address],
            ["sources", "apply", transactions, "--address", address],
            ["explain", tmp_path / "v.sql", "--config", config],
        ):
            code, message = viewsweep(*arguments)
            assert (code, complaint in message, address in message) == (3, True, True), message


def test_a_status_without_what_is_optional_is_good() -> None:
    with (
        saying(
            orjson.dumps({"source": "a", "version": 3, "relations": GOOD["relations"]})
        ) as address,
        SourceClient(address) as client,
    ):
        status = client.status()
    assert (status["published"], status["topic"], status["indexes"]) == (0, None, {"r": []})
    assert status["reads"] == "versions"


ADDRESSES = ["http://127.0.0.1:80", "https://x:1", "127.0.0.1:80", "grpc://h:99999", "grpc://a b"]


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_that_is_none_is_refused_at_the_command_line(
    address: str, tmp_path: Path, viewsweep: Any
) -> None:
    (tmp_path / "t.json").write_text("{}")
    for command in (["status"], ["apply", tmp_path / "t.json"]):
        code, message = viewsweep("sources", *command, "--address", address)
        assert code == 2
        assert f"'{address}' is not the address of a query server" in message


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_that_is_none_is_refused_with_its_key_in_the_configuration(
    address: str, tmp_path: Path, viewsweep: Any
) -> None:
    config = configured(tmp_path, address)
    for command in (["run"], ["explain", tmp_path / "v.sql"]):
        code, message = viewsweep(*command, "--config", config)
        assert code == 2
        assert f"sources.a.address: '{address}' is not the address of a query server" in message


@pytest.mark.parametrize(
    "broker", ["http://127.0.0.1:9092", "a b:9092", "x:port", "", "h:1,ftp://"]
)
def test_a_broker_that_is_none_is_refused_before_anything_is_ready(
    broker: str, tmp_path: Path, viewsweep: Any
) -> None:
    code, message = viewsweep("sources", "serve", tmp_path / "s.db", "--broker", broker)
    assert code == 2
    assert "is not the address of a Kafka broker" in message
    config = configured(tmp_path, "grpc://127.0.0.1:1")
    config.write_text(
        config.read_text().replace('127.0.0.1:1"\n[sources', f'{broker or " "}"\n[sources')
    )
    code, message = viewsweep("run", "--config", config)
    assert code == 2
    assert "kafka.bootstrap" in message
    assert "is not the address of a Kafka broker" in message
