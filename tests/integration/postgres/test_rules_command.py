"""`viewsweep rules`: prints, installs, checks and removes; what it says about what is wrong."""

from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import psycopg
import pytest
from psycopg import sql

from infra.localpostgres import LocalPostgres
from tests.cases.airline import FF_RES, SOURCES, SPECIAL_MEALS
from tests.harness.ruled import AIRLINE_TABLES
from tests.harness.running import ended

Run = Callable[..., tuple[int, str, str]]
_numbers = iter(range(100))


@pytest.fixture
def viewsweep(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Run:
    """Runs the command in a directory with two views and a catalog of the airline."""
    (tmp_path / "special_meals.sql").write_text(SPECIAL_MEALS)
    (tmp_path / "ff_res.sql").write_text(FF_RES)
    (tmp_path / "air.json").write_bytes(orjson.dumps({"sources": SOURCES}))
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        code, out, err = ended(("rules", *arguments), capsys, monkeypatch)
        return code, out, " ".join(err.split())

    return run


@pytest.fixture
def airline(server: LocalPostgres) -> Iterator[psycopg.Connection]:
    """A database with the airline's tables and some rows."""
    name = f"airline_{next(_numbers)}"
    with psycopg.connect(server.dsn(), autocommit=True) as made:
        made.execute(sql.SQL(f"CREATE DATABASE {name}"))
    with psycopg.connect(server.dsn(name), autocommit=True) as connection:
        connection.execute(sql.SQL(AIRLINE_TABLES))
        connection.execute("SET search_path = air")
        connection.execute("INSERT INTO psgr VALUES (1, 1, 1, 1, 1), (2, 2, 2, 2, 2)")
        connection.execute("INSERT INTO res VALUES (1, 1, 7, 1)")
        yield connection


def _dsn(connection: psycopg.Connection) -> str:
    place = connection.info
    return f"postgresql://{place.user}@{place.host}:{place.port}/{place.dbname}"


def test_a_view_is_installed_kept_checked_and_removed(
    viewsweep: Run, airline: psycopg.Connection
) -> None:
    dsn = _dsn(airline)
    for _ in range(2):
        code, out, said = viewsweep("special_meals.sql", "--install", dsn)
        assert (code, out) == (0, ""), said
        assert "res is safe: its key (flight_id, seat) is bound" in said
        assert "view special_meals: 1 rows in viewsweep.special_meals, kept by rules" in said
    airline.execute("INSERT INTO res VALUES (2, 2, 7, 2)")
    assert len(airline.execute("TABLE viewsweep.special_meals").fetchall()) == 2
    assert viewsweep("special_meals.sql", "--check", "--on", dsn)[:2] == (0, "")
    airline.execute("UPDATE viewsweep.special_meals SET meal = 9 WHERE seat = 2")
    code, out, said = viewsweep("special_meals.sql", "--check", "--on", dsn)
    assert (code, sorted(out.splitlines())) == (1, ["has too much: (2, 9)", "lacks: (2, 2)"])
    assert "is not what its query gives" in said
    code, out, _ = viewsweep("special_meals.sql", "--check", "--on", dsn, "--json")
    assert (code, orjson.loads(out)["equal"]) == (1, False)
    assert viewsweep("special_meals.sql", "--install", dsn, "--check")[0] == 0
    assert viewsweep("special_meals.sql", "--drop", "--on", dsn)[0] == 0
    assert viewsweep("special_meals.sql", "--drop", "--on", dsn)[0] == 0
    left = "SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal"
    assert airline.execute(left).fetchone() == (0,)
    code, _, said = viewsweep("special_meals.sql", "--check", "--on", dsn)
    assert code == 2
    assert 'the database refuses: relation "viewsweep.special_meals" does not exist' in said


def test_a_printed_script_does_the_same(viewsweep: Run, airline: psycopg.Connection) -> None:
    given = ("special_meals.sql", "--catalog", "air.json", "--dialect", "postgres")
    code, script, _ = viewsweep(*given)
    assert code == 0
    airline.execute("CREATE PUBLICATION viewsweep FOR ALL TABLES")
    airline.execute("SET search_path = ''")
    for _ in range(2):
        airline.execute(sql.SQL(script))
        airline.execute("INSERT INTO air.res VALUES (2, 2, 7, 2)")
        airline.execute("DELETE FROM air.res WHERE res_id < 2")
        assert airline.execute("TABLE viewsweep.special_meals").fetchall() == [(2, 2)]
        airline.execute("DELETE FROM air.res")
        airline.execute("INSERT INTO air.res VALUES (1, 1, 7, 1)")
    assert airline.execute("TABLE viewsweep.special_meals").fetchall() == [(1, 1)]
    code, query, _ = viewsweep(*given, "--check")
    assert (code, airline.execute(sql.SQL(query)).fetchall()) == (0, [])
    code, removal, _ = viewsweep("special_meals.sql", "--drop")
    airline.execute(sql.SQL(removal))
    assert airline.execute("SELECT to_regclass('viewsweep.special_meals')").fetchone() == (None,)
    code, out, _ = viewsweep(*given, "--json")
    form = orjson.loads(out)
    assert (code, form["key"], form["script"]) == (0, ["seat"], script)
    assert [each["deleted"] for each in form["references"][0]] == ["alone", "alone"]


def test_what_is_wrong_is_said_without_a_password(
    viewsweep: Run, airline: psycopg.Connection
) -> None:
    code, _, said = viewsweep("ff_res.sql", "--install", _dsn(airline))
    assert code == 2
    assert "ff_res.sql: line 1, column 8: rows may occur twice" in said
    assert "no row occurs twice in: SELECT DISTINCT psgr.ffn FROM" in said
    code, _, said = viewsweep("ff_res.sql")
    assert (code, "say where the relations are described" in said) == (2, True)
    code, _, said = viewsweep("ff_res.sql", "--drop", "--check")
    assert (code, "--drop stands alone" in said) == (2, True)
    code, _, said = viewsweep("ff_res.sql", "--on", _dsn(airline))
    assert (code, "say what to do there" in said) == (2, True)
    for wrong in (
        "postgresql://me:secret@127.0.0.1:1/shop",
        "postgresql://me:secret@127.0.0.1:one/shop",
        "postgresql://me:sec@secret@127.0.0.1:1/shop",
        "host=127.0.0.1 port=1 password=secret",
        "host=127.0.0.1 password=se cret secret",
        "secret",
    ):
        code, out, said = viewsweep("special_meals.sql", "--install", wrong)
        assert (code in (2, 3), "secret" in out + said) == (True, False), said
