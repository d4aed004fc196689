"""Views that crash the optimizer of DuckDB 2.0, and are still judged."""

import duckdb
import pytest

from protocols.checking.plans import executed, judging

_DISTINCT = (
    "SELECT DISTINCT t2.v AS c4 FROM r0 AS t1 FULL JOIN r1 AS t2 ON t1.x = t2.y"
    " WHERE t1.x NOT IN (SELECT t3.y FROM r1 AS t3 WHERE t3.id = t2.id)"
)
_TESTED = "SELECT t0.c4 FROM ({0}) AS t0 WHERE t0.c4 BETWEEN 0 AND t0.c4"


@pytest.mark.parametrize(
    ("view", "kind"),
    [
        (_TESTED.format(_DISTINCT), duckdb.InternalException),
        (
            _TESTED.format(f"({_DISTINCT}) UNION ALL (SELECT count(*) FROM r1 GROUP BY x)"),
            duckdb.Error,
        ),
    ],
)
def test_plans_are_made_without_the_optimizer(view: str, kind: type[duckdb.Error]) -> None:
    columns = "(id BIGINT, x VARCHAR, v BIGINT, y VARCHAR)"
    with judging(duckdb.connect()) as database:
        for name in ("r0", "r1"):
            database.execute(f"CREATE TABLE {name} {columns}")
        with pytest.raises(duckdb.Error) as fallen:
            database.execute(view)
        assert fallen.type is kind
        assert executed(database, view).fetchall() == []


def test_what_is_wrong_stays_wrong() -> None:
    with duckdb.connect() as database, pytest.raises(duckdb.BinderException):
        executed(database, "SELECT nothing")
