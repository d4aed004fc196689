"""Rules while several sessions write, and after a crash; what a writer may and may not do."""

from collections.abc import Callable

import psycopg
import pytest
from psycopg import sql

from infra.localpostgres import LocalPostgres
from protocols.rules import functions
from tests.cases.airline import AIRLINE, SPECIAL_MEALS
from tests.harness.ruled import AIRLINE_TABLES, RuledDatabase

TWO_PSGR = "INSERT INTO air.psgr VALUES (1, 1, 1, 1, 1), (2, 2, 2, NULL, 2)"
TWO_RES = "INSERT INTO air.res VALUES (1, 1, 7, 1), (2, 1, 8, 1)"


def _without_turn(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(functions, "_take_turn", lambda _: "")


def test_two_sessions_that_do_not_see_each_other_s_rows_take_turns(
    database: Callable[..., RuledDatabase],
) -> None:
    ruled = database()
    ruled.install("kept", SPECIAL_MEALS)
    with ruled.connected() as one, ruled.connected() as other:
        one.execute("BEGIN")
        one.execute("INSERT INTO air.psgr VALUES (1, 1, 1, 1, 1)")
        other.execute("SET lock_timeout = '200ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            other.execute("INSERT INTO air.res VALUES (1, 1, 7, 1)")
        one.execute("COMMIT")
        other.execute("INSERT INTO air.res VALUES (1, 1, 7, 1)")
    assert (ruled.wrong(), ruled.rows("kept")) == ([], [(1, 1)])


def test_without_turns_a_row_that_joins_two_sessions_rows_is_lost(
    database: Callable[..., RuledDatabase], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control."""
    _without_turn(monkeypatch)
    ruled = database()
    ruled.install("kept", SPECIAL_MEALS)
    with ruled.connected() as one, ruled.connected() as other:
        one.execute("BEGIN")
        one.execute("INSERT INTO air.psgr VALUES (1, 1, 1, 1, 1)")
        other.execute("INSERT INTO air.res VALUES (1, 1, 7, 1)")
        one.execute("COMMIT")
    assert (ruled.wrong(), ruled.rows("kept")) == (["kept"], [])


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_session_with_an_older_snapshot_has_to_repeat_its_transaction(
    database: Callable[..., RuledDatabase], level: str
) -> None:
    ruled = database()
    ruled.install("kept", SPECIAL_MEALS)
    with ruled.connected() as one, ruled.connected() as other:
        other.execute(sql.SQL(f"BEGIN ISOLATION LEVEL {level}"))
        other.execute("SELECT count(*) FROM air.flight")
        one.execute("INSERT INTO air.psgr VALUES (1, 1, 1, 1, 1)")
        with pytest.raises(psycopg.errors.SerializationFailure):
            other.execute("INSERT INTO air.res VALUES (1, 1, 7, 1)")
    assert ruled.wrong() == []


def test_turns_are_taken_after_a_crash_of_the_server_too() -> None:
    """A crash empties the unlogged table with the row."""
    with LocalPostgres() as mortal:
        ruled = RuledDatabase(mortal, "crashed", AIRLINE_TABLES, AIRLINE)
        ruled.install("kept", SPECIAL_MEALS)
        ruled.execute("INSERT INTO air.psgr VALUES (1, 1, 1, 1, 1)")
        ruled.close()
        mortal.kill()
        mortal.start()
        with ruled.connected() as one, ruled.connected() as other:
            one.execute("BEGIN")
            one.execute("INSERT INTO air.res VALUES (1, 1, 7, 1)")
            other.execute("SET lock_timeout = '200ms'")
            with pytest.raises(psycopg.errors.LockNotAvailable):
                other.execute("INSERT INTO air.res VALUES (2, 1, 8, 1)")
            one.execute("COMMIT")
            assert one.execute("TABLE viewsweep.kept").fetchall() == [(1, 1)]


def test_a_writer_needs_no_rights_on_the_view(database: Callable[..., RuledDatabase]) -> None:
    ruled = database()
    ruled.install("kept", SPECIAL_MEALS)
    role = f"writer_{ruled.name}"
    ruled.execute(f"CREATE ROLE {role}; GRANT USAGE ON SCHEMA air TO {role}")
    ruled.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA air TO {role}")
    with ruled.connected() as writer:
        writer.execute(sql.SQL(f"SET ROLE {role}"))
        writer.execute(TWO_PSGR)
        writer.execute(TWO_RES)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            writer.execute("TABLE viewsweep.kept")
    assert (ruled.wrong(), ruled.rows("kept")) == ([], [(1, 1)])


def test_a_table_in_parts_is_refused(database: Callable[..., RuledDatabase]) -> None:
    ruled = database()
    ruled.execute("CREATE TABLE air.more () INHERITS (air.psgr)")
    with pytest.raises(psycopg.errors.RaiseException, match=r"air.psgr is not a plain table"):
        ruled.install("kept", SPECIAL_MEALS)
