"""`viewsweep sources fill` and `sources drive`: a workload in PostgreSQL and MariaDB."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import islice
from typing import Any

import psycopg
import pymysql
import pytest

from infra.localmariadb import LocalMariaDB
from infra.localpostgres import LocalPostgres
from sources.mariadb.connecting import address_in
from sources.simulated.workloads.retail import RETAIL
from tests.harness.running import ended

Run = Callable[..., tuple[int, str, str]]
Rows = Callable[[], Counter[tuple[Any, ...]]]
_READ = "SELECT * FROM orders"


@pytest.fixture(scope="module", params=["postgres", "mariadb"])
def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[list[Any], Rows]]:
    """The option that names an empty database, and what its orders are."""
    file = tmp_path_factory.mktemp("address") / "sales"
    if request.param == "postgres":
        with LocalPostgres() as server:
            file.write_text(server.dsn())
            yield ["--postgres-file", file], lambda: _in_postgres(file.read_text())
    else:
        with LocalMariaDB() as maria:
            with maria.connected() as connection, connection.cursor() as cursor:
                cursor.execute("CREATE DATABASE sales")
            file.write_text(maria.address("sales"))
            yield ["--mariadb-file", file], lambda: _in_mariadb(file.read_text())


def _in_postgres(address: str) -> Counter[tuple[Any, ...]]:
    with psycopg.connect(address) as connection:
        return Counter(connection.execute(_READ).fetchall())


def _in_mariadb(address: str) -> Counter[tuple[Any, ...]]:
    at = address_in(address)
    with (
        closing(pymysql.connect(host=at.host, port=at.port, user=at.user, db=at.database)) as wire,
        wire.cursor() as cursor,
    ):
        cursor.execute(_READ)
        return Counter(cursor.fetchall())


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return lambda *arguments: ended(["sources", *arguments], capsys, monkeypatch)


def test_a_database_is_filled_and_driven(place: tuple[list[Any], Rows], run: Run) -> None:
    where, rows = place
    options = ["sales", "--workload", "retail", "--scale", 20, "--seed", 3, *where]
    code, said, problem = run("fill", *options)
    assert (code, problem) == (0, "")
    assert "orders (60 rows)" in said
    content = RETAIL.source("sales", 20, 3)
    expected = Counter(content.initial_rows()["orders"].iter_rows())
    assert rows() == expected
    code, said, problem = run("drive", *options, "--transactions", 40, "--rate", 1000)
    assert (code, problem) == (0, "")
    assert "40 transactions committed" in said
    for transaction in islice(content.transactions(), 40):
        for change in transaction.changes:
            expected[change.row] += change.count
    assert rows() == +expected
    # Its tables are there.
    code, _, problem = run("fill", *options)
    assert code == 2
    assert "orders" in problem
    assert "already exists" in problem


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ([], "--postgres-env, --postgres-file, --mariadb-env or --mariadb-file"),
        (["--postgres-env", "NOWHERE"], "environment variable NOWHERE is not set"),
        (["--mariadb-file", "nowhere"], "nowhere cannot be read"),
    ],
)
def test_an_address_that_is_missing_is_named(run: Run, wrong: list[str], reason: str) -> None:
    code, _, problem = run("fill", "sales", "--workload", "retail", *wrong)
    assert code == 2
    assert reason in problem
