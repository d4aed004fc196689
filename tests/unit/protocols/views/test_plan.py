"""The order in which a sweep takes in the atoms, and its question to each."""

from itertools import chain

import pytest

from protocols.algebra.expressions import conjuncts
from protocols.views.catalog import Catalog, catalog_from_json
from protocols.views.plan import Plan, plan
from tests.harness.innerjoins import parsed

COLUMNS = {"x": "BIGINT", "y": "BIGINT", "z": "BIGINT"}
CATALOG: Catalog = catalog_from_json(
    {s: {"relations": {"r": {"columns": COLUMNS}}} for s in ("a", "b", "c", "d", "e")}
)
FIVE = "FROM a.r A, b.r B, c.r C, d.r D, e.r E"
CHAIN = f"SELECT A.x {FIVE} WHERE A.y = B.x AND B.y = C.x AND C.y = D.x AND D.y = E.x"
STAR = f"SELECT A.x {FIVE} WHERE C.x = A.x AND C.x = B.x AND C.y = D.x AND C.y = E.x"
TRIANGLE = "SELECT A.x FROM a.r A, b.r B, c.r C WHERE A.y = B.x AND B.y = C.x AND C.y = A.x"


def _plan(sql: str, origin: int) -> Plan:
    view = parsed(sql, CATALOG)
    return plan(view, view.atoms[origin])


def _order(sql: str, origin: int) -> str:
    return "".join(step.atom.alias for step in _plan(sql, origin).steps)


@pytest.mark.parametrize("origin", range(5))
def test_on_a_chain_the_sweep_goes_left_then_right_as_in_figure_4(origin: int) -> None:
    left, right = "ABCDE"[:origin], "ABCDE"[origin + 1 :]
    assert _order(CHAIN, origin) == left[::-1] + right


def test_on_a_star_every_change_of_a_leaf_goes_through_the_centre() -> None:
    assert [_order(STAR, origin) for origin in range(5)] == ["CBDE", "CADE", "BADE", "CBAE", "CDBA"]


def test_on_a_cycle_the_closing_link_is_asked_with_the_last_atom() -> None:
    first, last = _plan(TRIANGLE, 1).steps
    assert (first.atom.alias, first.links) == ("A", (("B.x", "y"),))
    assert (last.atom.alias, last.links) == ("C", (("B.y", "x"), ("A.x", "y")))
    assert last.join_on == (("B.y", "C.x"), ("A.x", "C.y"))
    assert last.keys == (("x", "B.y"), ("y", "A.x"))


def test_two_links_to_one_column_need_one_key_column() -> None:
    sql = "SELECT A.x FROM a.r A, b.r B, c.r C WHERE A.y = B.y AND A.x = C.x AND B.x = C.x"
    last = _plan(sql, 0).steps[-1]
    assert last.join_on == (("A.x", "C.x"), ("B.x", "C.x"))
    assert [column for column, _ in last.keys] == ["x"]


def test_a_residual_is_tested_as_soon_as_its_columns_are_there_and_once() -> None:
    sql = CHAIN + " AND A.z < C.z AND A.z < E.z"
    residuals = parsed(sql, CATALOG).residuals
    assert len(residuals) == 2
    for origin in range(5):
        way = _plan(sql, origin)
        tested = [list(conjuncts(step.residual)) for step in way.steps if step.residual]
        assert sorted(map(str, chain.from_iterable(tested))) == sorted(map(str, residuals))
        assert way.residual is None
    assert [step.residual is not None for step in _plan(sql, 2).steps] == [False, True, False, True]


def test_a_residual_within_one_atom_belongs_to_its_condition_not_to_the_plan() -> None:
    way = _plan("SELECT A.x FROM a.r A, b.r B WHERE A.y = B.y AND A.x < A.z", 0)
    assert way.residual is None
    assert way.origin.condition is not None
