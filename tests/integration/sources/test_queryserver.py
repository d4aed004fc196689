"""Questions over Arrow Flight to a query server in a separate process."""

import datetime
import decimal
import json
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import polars as pl
import pytest
from pyarrow import flight

from protocols.algebra.delta import COUNT
from protocols.algebra.expressions import And, Column, Comparison, IsNull, Literal, Not
from protocols.algebra.frame import Frame
from protocols.algebra.types import column_type
from protocols.errors import SourceViolation, Unreachable, WrongUse
from protocols.exchange.questions import Page, Query
from protocols.views.catalog import Relation, catalog_from_json
from sources.simulated.database import SourceDatabase
from sources.simulated.queryserver import Endpoint, QueryServer, is_loopback
from sources.transaction import RowChange, Transaction
from sources.wire.client import CommitStopped, SourceClient
from sources.wire.messages import encode_query
from tests.harness.places import ROOT
from tests.harness.waiting import patience

CATALOG = catalog_from_json(
    {
        "a": {
            "relations": {
                "many": {"columns": {"id": "BIGINT", "link": "BIGINT"}, "key": ["id"]},
                "typed": {
                    "columns": {
                        "b": "BIGINT",
                        "d": "DOUBLE",
                        "p": "DECIMAL(10,2)",
                        "w": "DECIMAL(38,0)",
                        "s": "VARCHAR",
                        "t": "BOOLEAN",
                        "y": "DATE",
                        "m": "TIMESTAMP",
                    }
                },
            }
        }
    }
)
MANY, TYPED = CATALOG.relations
INITIAL = 2000
ROW = (
    -1,
    math.inf,
    decimal.Decimal("-0.05"),
    decimal.Decimal("9" * 38),
    "ä",
    True,
    datetime.date(1, 1, 1),
    datetime.datetime(2024, 2, 29, 1, 2, 3, 4),
)

SERVING = """
import itertools, json, sys, threading
from pathlib import Path
from sources.simulated.database import SourceDatabase
from sources.simulated.queryserver import Endpoint, QueryServer
from sources.transaction import RowChange, Transaction

path, committing, options = sys.argv[1], sys.argv[2] == "committing", json.loads(sys.argv[3])
for name in ("tls_certificate", "tls_key"):
    options[name] = Path(options[name]) if name in options else None
database = SourceDatabase.open(Path(path))
server = QueryServer(database, Endpoint(**options), "topic-of-a")
stop = threading.Event()

def commit():
    # Version v moves the sum of link by 1 and leaves the number of rows alone.
    for n in itertools.count(database.version):
        if stop.is_set():
            return
        row = n % 2000
        old = (row, n // 2000)
        new = (row, n // 2000 + 1)
        database.commit(Transaction((RowChange("many", old, -1), RowChange("many", new, 1))))

writer = threading.Thread(target=commit)
if committing:
    writer.start()
print(server.address, flush=True)
sys.stdin.read()
stop.set()
if committing:
    writer.join()
server.stop()
database.close()
"""


@dataclass
class Served:
    address: str
    process: "subprocess.Popen[str]"


@contextmanager
def served(path: Path, *, committing: bool = False, **options: Any) -> Iterator[Served]:
    mode = "committing" if committing else "quiet"
    process = subprocess.Popen(
        [sys.executable, "-c", SERVING, str(path), mode, json.dumps(options)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    with process:
        assert process.stdout is not None
        assert process.stdin is not None
        address = process.stdout.readline().strip()
        assert address, "the server did not start"
        try:
            yield Served(address, process)
        finally:
            process.stdin.close()
            process.wait(patience())


def made(directory: Path) -> Path:
    path = directory / "a.db"
    many = pl.DataFrame({"id": range(INITIAL), "link": [0] * INITIAL}, schema_overrides=INT)
    SourceDatabase.create(path, "a", CATALOG, {"many": many}).close()
    return path


INT = {"id": pl.Int64(), "link": pl.Int64()}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(made(tmp_path_factory.mktemp("server"))) as running:
        yield running


@pytest.fixture
def client(server: Served) -> Iterator[SourceClient]:
    with SourceClient(server.address) as connected:
        yield connected


def keys(**columns: list[Any]) -> Frame:
    data = pl.DataFrame(columns, schema={name: MANY.type_of(name).dtype for name in columns})
    return Frame(data.with_columns(pl.lit(1, pl.Int64).alias(COUNT)))


def test_an_answer_has_rows_version_and_sizes(client: SourceClient) -> None:
    query = Query(MANY, ("link", "id"), None, (keys(id=[7, 9, 9]),))
    answer = client.ask(query)
    assert sorted(answer.rows.data.rows()) == [(0, 7, 1), (0, 9, 1)]
    assert answer.rows.columns == ("link", "id")
    assert answer.inclusion.version == client.status()["version"]
    assert answer.bytes_sent == len(encode_query(query))
    assert answer.bytes_received == 32


def test_every_type_arrives_as_the_catalog_has_it(client: SourceClient) -> None:
    declared = {name: type_.dtype for name, type_ in TYPED.columns} | {COUNT: pl.Int64()}
    everything: Query[Frame] = Query(TYPED, TYPED.column_names)
    assert dict(client.ask(everything).rows.data.schema) == declared
    nulls = (None,) * len(ROW)
    client.commit([Transaction((RowChange("typed", ROW, 2), RowChange("typed", nulls, 1)))])
    answer = client.ask(everything)
    assert dict(answer.rows.data.schema) == declared
    assert sorted(answer.rows.data.rows(), key=str) == sorted(
        [(*ROW, 1), (*ROW, 1), (*nulls, 1)], key=str
    )
    for number, (name, type_) in enumerate(TYPED.columns):
        condition = Comparison(Column(name), "=", Literal(ROW[number], type_))
        assert client.ask(Query(TYPED, (name,), condition)).rows.data.height == 2
    unknown = And((Not(IsNull(Column("b"))), IsNull(Column("s"))))
    assert client.ask(Query(TYPED, (), unknown)).rows.data.rows() == []
    assert client.ask(Query(TYPED, ())).rows.data.rows() == [(1,), (1,), (1,)]


def test_a_million_keys_fit_into_one_question(client: SourceClient) -> None:
    answer = client.ask(Query(MANY, ("id",), None, (keys(id=list(range(1000, 1_001_000))),)))
    assert answer.bytes_sent > 8_000_000
    assert sorted(answer.rows.data["id"]) == list(range(1000, INITIAL))


def test_pages_follow_the_key(client: SourceClient) -> None:
    first = client.ask(Query(MANY, ("id",), None, None, Page(None, 3))).rows.data
    second = client.ask(Query(MANY, ("id",), None, None, Page((2,), 3))).rows.data
    assert (first["id"].to_list(), second["id"].to_list()) == ([0, 1, 2], [3, 4, 5])


def test_the_status_tells_what_there_is_and_not_where(client: SourceClient) -> None:
    status = client.status()
    assert status["source"] == "a"
    assert status["topic"] == "topic-of-a"
    assert status["published"] == 0
    assert client.relations() == {"many": MANY, "typed": TYPED}
    assert ".db" not in json.dumps(status)


def test_commits_stop_at_the_first_one_refused(client: SourceClient) -> None:
    def insert(id_: int) -> Transaction:
        return Transaction((RowChange("many", (id_, 0), 1),))

    before = client.status()["version"]
    with pytest.raises(CommitStopped, match="a row with this key") as caught:
        client.commit([insert(-1), insert(-2), insert(-1), insert(-3)])
    assert (caught.value.committed, caught.value.version) == (2, before + 2)
    found = client.ask(Query(MANY, ("id",), None, (keys(id=[-1, -2, -3]),))).rows.data
    assert sorted(found["id"]) == [-2, -1]
    undo = [Transaction((RowChange("many", (id_, 0), -1),)) for id_ in (-1, -2)]
    assert client.commit(undo) == before + 4
    with pytest.raises(WrongUse, match="no relation 'none'"):
        client.commit([Transaction((RowChange("none", (1,), 1),))])


def altered(change: Callable[[dict[str, Any]], object]) -> bytes:
    line, _, rest = encode_query(Query(MANY, ("id",), None, (keys(id=[1]),))).partition(b"\n")
    header = orjson.loads(line)
    change(header)
    return orjson.dumps(header) + b"\n" + rest


@pytest.mark.parametrize(
    ("ticket", "reason"),
    [
        (b"", "not JSON"),
        (b"SELECT * FROM many", "not JSON"),
        (b"[1]\n", "not a JSON object"),
        (b"{}\n", "lacks 'source'"),
        (b"\xff\xfe\n\0", "not JSON"),
        (altered(lambda h: h.update(source="b")), "this is source a"),
        (altered(lambda h: h.update(relation="none")), "no relation 'none'"),
        (altered(lambda h: h.update(relation=["many"])), "is not a name"),
        (altered(lambda h: h.update(schema={"columns": {"id": "BLOB"}})), "unknown type"),
        (altered(lambda h: h.update(schema={"columns": {"id": "BIGINT"}})), "assumes the schema"),
        (altered(lambda h: h.update(columns=["id", "count(*)"])), "names an unknown column"),
        (altered(lambda h: h.update(columns=5)), "malformed"),
        (altered(lambda h: h.update(condition=["like", {"column": "id"}, 1])), "not a condition"),
        (
            altered(lambda h: h.update(condition=["is null", {"column": "x"}])),
            "names an unknown column",
        ),
        (altered(lambda h: h.update(keys=[10**9])), "bytes of keys are announced"),
        (altered(lambda h: h.update(keys="many")), "malformed"),
        (altered(lambda h: h.update(page={"after": ["x"], "limit": 1})), "is not a BIGINT"),
        (altered(lambda h: h.update(page={"after": None, "limit": "1; DROP"})), "malformed"),
        (altered(dict)[:-40] + b"\0" * 40, "malformed"),
    ],
)
def test_a_strange_ticket_is_refused_and_the_server_goes_on(
    server: Served, client: SourceClient, ticket: bytes, reason: str
) -> None:
    raw = flight.connect(server.address)
    with raw, pytest.raises(flight.FlightServerError, match=reason) as caught:
        raw.do_get(flight.Ticket(ticket)).read_all()
    assert caught.value.extra_info == b"refused"
    assert client.ask(Query(MANY, ("id",), None, (keys(id=[1]),))).rows.data.height == 1


def test_a_refused_question_is_a_violation_that_names_the_source(client: SourceClient) -> None:
    renamed = Relation("a", "many", (*MANY.columns[:1], ("lnk", column_type("BIGINT"))), ("id",))
    with pytest.raises(SourceViolation, match=r"source a at grpc://127.*assumes the schema"):
        client.ask(Query(renamed, ("id",)))
    with pytest.raises(WrongUse, match="unknown action 'shutdown'"):
        client._act("shutdown", b"", 10)


def test_rows_and_version_are_one_snapshot_under_sixteen_clients(tmp_path: Path) -> None:
    """The sum of link is the version, and the number of rows is constant; commits still succeed."""
    seen: list[list[int]] = [[] for _ in range(16)]
    faults: list[BaseException] = []

    def ask(client: SourceClient, versions: list[int]) -> None:
        try:
            while len(set(versions)) < 8:
                answer = client.ask(Query(MANY, ("link",)), timeout=patience())
                assert answer.rows.data.height == INITIAL
                assert answer.rows.data["link"].sum() == answer.inclusion.version
                versions.append(answer.inclusion.version)
        except BaseException as fault:
            faults.append(fault)

    with served(made(tmp_path), committing=True) as running, SourceClient(running.address) as one:
        asking = [threading.Thread(target=ask, args=(one, versions)) for versions in seen]
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join()
    assert not faults
    assert all(versions == sorted(versions) for versions in seen)


def test_fifty_clients_at_once_get_their_own_answers(server: Served) -> None:
    """Each has its own connection; all ask before the first one is answered."""
    together = threading.Barrier(50)

    def ask(number: int) -> list[int]:
        with SourceClient(server.address) as client:
            together.wait(patience())
            wanted = keys(id=[number, number + 50])
            answers = [client.ask(Query(MANY, ("id",), None, (wanted,))) for _ in range(5)]
        [ids] = {tuple(sorted(answer.rows.data["id"])) for answer in answers}
        return list(ids)

    with ThreadPoolExecutor(50) as clients:
        assert list(clients.map(ask, range(50))) == [[n, n + 50] for n in range(50)]


def test_commits_go_on_during_a_question_and_do_not_get_into_its_answer(tmp_path: Path) -> None:
    """The question lasts as long as the test wants: it holds its snapshot until it is released."""
    with SourceDatabase.open(made(tmp_path)) as database:
        with database.snapshot() as (cursor, version):
            before = cursor.execute("SELECT sum(link) FROM relations.many").fetchall()
            for n in range(50):
                old, new = ((n, 0), -1), ((n, 1), 1)
                changes = tuple(RowChange("many", row, count) for row, count in (old, new))
                assert database.commit(Transaction(changes)) == version + n + 1
            with database.snapshot() as (_, meanwhile):
                assert meanwhile == version + 50
            assert cursor.execute("SELECT sum(link) FROM relations.many").fetchall() == before
        with database.snapshot() as (cursor, later):
            assert later == version + 50
            assert cursor.execute("SELECT sum(link) FROM relations.many").fetchall() == [(50,)]


def test_a_client_finds_a_restarted_source_again(tmp_path: Path) -> None:
    path = made(tmp_path)
    query = Query(MANY, ("id",), None, (keys(id=[1]),))
    with served(path) as running, SourceClient(running.address) as client:
        client.ask(query)
        os.kill(running.process.pid, signal.SIGKILL)
        running.process.wait()
        for _ in range(3):
            with pytest.raises(Unreachable, match=r"source a at grpc://.* does not answer"):
                client.ask(query, timeout=5)
        port = int(running.address.rpartition(":")[2])
        with served(path, port=port):
            deadline = time.monotonic() + patience()
            while True:
                try:
                    answer = client.ask(query, timeout=5)
                except Unreachable:
                    assert time.monotonic() < deadline, "it was never found again"
                else:
                    break
        assert answer.rows.data.height == 1


def test_a_source_that_does_not_answer_in_time_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"grpc://127.0.0.1:{silent.getsockname()[1]}"
        with (
            SourceClient(address, source="a") as client,
            pytest.raises(Unreachable, match=f"source a at {address} does not answer"),
        ):
            client.status(timeout=0.3)


def test_an_address_that_is_none_is_wrong_use() -> None:
    with pytest.raises(WrongUse, match="is not the address of a query server"):
        SourceClient("127.0.0.1:5")


def test_a_port_in_use_is_wrong_use(server: Served, tmp_path: Path) -> None:
    port = int(server.address.rpartition(":")[2])
    with (
        SourceDatabase.open(made(tmp_path)) as database,
        pytest.raises(WrongUse, match="source a: cannot listen at grpc://127"),
    ):
        QueryServer(database, Endpoint(port=port))


# ------------------------------------------------------------------------------------ TLS, token


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    directory = tmp_path_factory.mktemp("tls")
    certificate, key = directory / "cert.pem", directory / "key.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost"
    subprocess.run(
        [
            *command.split(),
            *("-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"),
            *("-out", str(certificate), "-keyout", str(key)),
        ],
        check=True,
        capture_output=True,
    )
    return certificate, key


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "warehouse.example"])
def test_off_loopback_needs_tls_and_a_token(host: str, certificate: tuple[Path, Path]) -> None:
    cert, key = certificate
    for options in (
        {},
        {"token": "t"},
        {"tls_certificate": cert, "tls_key": key},
    ):
        with pytest.raises(WrongUse, match=r"--tls-cert, --tls-key\) and a token"):
            Endpoint(host, **options)
    assert not is_loopback(host)
    Endpoint(host, token="t", tls_certificate=cert, tls_key=key)


def test_half_of_tls_or_an_empty_token_is_refused(certificate: tuple[Path, Path]) -> None:
    with pytest.raises(WrongUse, match="both a certificate"):
        Endpoint(tls_certificate=certificate[0])
    for token in ("", "göheim", "a\nb"):
        with pytest.raises(WrongUse, match="printable ASCII"):
            Endpoint(token=token)
        with pytest.raises(WrongUse, match="printable ASCII"):
            SourceClient("grpc://127.0.0.1:1", token)


def test_with_tls_and_token_only_who_has_both_gets_in(
    tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    cert, key = certificate
    options: dict[str, Any] = {
        "token": "geheim",
        "tls_certificate": str(cert),
        "tls_key": str(key),
    }
    roots = cert.read_bytes()
    with served(made(tmp_path), host="0.0.0.0", **options) as running:
        address = running.address.replace("0.0.0.0", "127.0.0.1")
        assert address.startswith("grpc+tls://")
        with SourceClient(address, "geheim", roots) as client:
            assert client.status()["source"] == "a"
            assert client.ask(Query(MANY, ("id",))).rows.data.height == INITIAL
        for token in (None, "geheim2", "gehei", "Geheim"):
            with (
                SourceClient(address, token, roots) as client,
                pytest.raises(WrongUse, match="needs a token"),
            ):
                client.ask(Query(MANY, ("id",)))
        with SourceClient(address, "geheim") as client, pytest.raises(Unreachable):
            client.status(timeout=5)
        plain = address.replace("grpc+tls", "grpc")
        with SourceClient(plain, "geheim") as client, pytest.raises(Unreachable):
            client.status(timeout=5)


def test_a_token_alone_is_checked_on_loopback(tmp_path: Path) -> None:
    with served(made(tmp_path), token="geheim") as running:
        with SourceClient(running.address, "geheim") as client:
            assert client.status()["source"] == "a"
        with SourceClient(running.address) as client, pytest.raises(WrongUse, match="token"):
            client.commit([])
