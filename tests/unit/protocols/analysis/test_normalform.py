"""The normal form of outer-join views: the examples of Larson and Zhou, and views without one."""

import pytest

from protocols.analysis.block import block_of, outer_blocks
from protocols.analysis.normalform import NoNormalForm, NormalForm, normal_form
from protocols.analysis.wording import as_json, condition_text
from protocols.views.binding.select import Binder
from protocols.views.binding.statement import Text
from protocols.views.catalog import ForeignKey
from protocols.views.sql import parse_view
from protocols.views.tree import TreeView
from tests.cases.paper_views import (
    LETTERS,
    LINEITEM_TO_ORDERS,
    LINEITEM_TO_PART,
    OJ_VIEW,
    TPCH,
    V1,
    V2,
    V3,
    block,
    foreign_key,
    relation,
)


def _form(sql: str, *keys: ForeignKey) -> NormalForm:
    return normal_form(block(sql, TPCH if "tpch." in sql else LETTERS).block, keys)


def _sources(form: NormalForm) -> set[frozenset[str]]:
    return {term.sources for term in form.terms}


def _sets(*names: str) -> set[frozenset[str]]:
    return {frozenset(name.split()) for name in names}


def _conditions(form: NormalForm, aliases: str) -> set[str]:
    term = next(term for term in form.terms if term.sources == frozenset(aliases.split()))
    return {condition_text(condition) for condition in term.conditions}


def test_example_2_has_the_seven_terms_of_v1_with_their_conditions() -> None:
    form = _form(V1)
    expected = {
        "t u r s": {"r.s = s.r", "r.t = t.r", "t.u = u.t"},
        "t u r": {"r.t = t.r", "t.u = u.t"},
        "t r s": {"r.t = t.r", "r.s = s.r"},
        "t r": {"r.t = t.r"},
        "r s": {"r.s = s.r"},
        "r": set(),
        "s": set(),
    }
    assert _sources(form) == _sets(*expected)
    for aliases, conditions in expected.items():
        assert _conditions(form, aliases) == conditions


def test_example_11_has_the_six_terms_of_v2_with_their_selections() -> None:
    form = _form(V2)
    on_c, on_o = "customer.c_nationkey = 1", "orders.o_orderdate > 3"
    co, ol = "customer.c_custkey = orders.o_custkey", "orders.o_orderkey = l.l_orderkey"
    expected = {
        "customer orders l": {on_c, on_o, co, ol},
        "customer orders": {on_c, on_o, co},
        "orders l": {on_o, ol},
        "customer": {on_c},
        "orders": {on_o},
        "l": set(),
    }
    assert _sources(form) == _sets(*expected)
    for aliases, conditions in expected.items():
        assert _conditions(form, aliases) == conditions


def test_table_1_counts_the_four_terms_of_v3() -> None:
    """COLP, COL, C and P; lineitem and orders are one inner join, so they only occur together."""
    lo = "lineitem orders"
    assert _sources(_form(V3)) == _sets(f"c {lo} p", f"c {lo}", "c", "p")


def test_example_1_has_three_types_of_rows_because_each_lineitem_has_its_part() -> None:
    assert _sources(_form(OJ_VIEW)) == _sets("p o l", "o l", "p", "o")
    assert _sources(_form(OJ_VIEW, LINEITEM_TO_PART)) == _sets("p o l", "p", "o")


def test_a_foreign_key_that_may_be_null_leaves_the_child_alone_at_times() -> None:
    optional = foreign_key(TPCH, "lineitem", "l_partkey", "part", mandatory=False)
    assert _sources(_form(OJ_VIEW, optional)) == _sets("p o l", "o l", "p", "o")
    restricted = OJ_VIEW.replace("= o_orderkey)", "= o_orderkey AND l_partkey > 7)")
    assert _sources(_form(restricted, optional)) == _sets("p o l", "p", "o")


def test_a_key_column_of_the_child_is_never_null() -> None:
    """l_orderkey is in lineitem's key, so its foreign key to orders need not be mandatory."""
    optional = foreign_key(TPCH, "lineitem", "l_orderkey", "orders", mandatory=False)
    view = "SELECT * FROM tpch.lineitem l LEFT JOIN tpch.orders o ON l_orderkey = o_orderkey"
    assert _sources(_form(view, optional)) == _sets("l o")


def test_a_parent_that_is_selected_may_be_missing_all_the_same() -> None:
    view = (
        "SELECT * FROM tpch.lineitem l LEFT JOIN tpch.orders o"
        " ON l_orderkey = o_orderkey AND o_orderdate > 3"
    )
    assert _sources(_form(view, LINEITEM_TO_ORDERS)) == _sets("l o", "l")


def test_parents_of_parents_follow_from_a_chain_of_keys() -> None:
    view = (
        "SELECT * FROM tpch.lineitem l LEFT JOIN (SELECT * FROM tpch.orders, tpch.customer"
        " WHERE o_custkey = c_custkey) oc ON l_orderkey = o_orderkey"
    )
    both = (LINEITEM_TO_ORDERS, foreign_key(TPCH, "orders", "o_custkey", "customer"))
    assert _sources(_form(view, LINEITEM_TO_ORDERS)) == _sets("l orders customer", "l")
    assert _sources(_form(view, *both)) == _sets("l orders customer")


def test_a_condition_above_takes_away_the_terms_that_it_rejects() -> None:
    """Even if reading the SQL has already turned the full join into a left one."""
    sql = "SELECT r.id, s.id AS s FROM db.r r FULL JOIN db.s s ON r.s = s.r WHERE s.x > 1"
    as_written = block_of(Binder(Text(sql), LETTERS).query(Text(sql).query(), {})[0]).block
    assert str(as_written) == "(r ⟗ s where s.x > 1)"
    for form in (_form(sql), normal_form(as_written)):
        assert _sources(form) == _sets("r s", "s")
        assert "s.x > 1" in _conditions(form, "r s")
        assert _conditions(form, "s") == {"s.x > 1"}


def test_a_condition_that_lets_padded_rows_through_has_no_normal_form() -> None:
    view = "SELECT r.id FROM db.r r LEFT JOIN db.s s ON r.s = s.r WHERE s.x = r.x OR s.x IS NULL"
    with pytest.raises(NoNormalForm, match=r"s\.x = r\.x OR s\.x IS NULL.*rows \{r\}.*s is padded"):
        _form(view)


def test_a_condition_for_null_on_what_is_never_padded_does_no_harm() -> None:
    form = _form("SELECT r.id FROM db.r r LEFT JOIN db.s s ON r.s = s.r WHERE r.x IS NULL")
    assert _sources(form) == _sets("r s", "r")
    assert _conditions(form, "r") == {"r.x IS NULL"}


def test_conditions_on_computed_columns_speak_of_what_they_are_computed_from() -> None:
    form = _form(
        "SELECT r.id, q.y FROM db.r r"
        " LEFT JOIN (SELECT s.r + s.x AS y FROM db.s s) q ON r.s = q.y AND q.y > r.x"
    )
    assert _conditions(form, "r s") == {"r.s = (s.r + s.x)", "(s.r + s.x) > r.x"}


def test_a_group_below_a_join_is_a_leaf_of_its_own() -> None:
    form = _form(
        "SELECT r.id, q.n FROM db.r r LEFT JOIN (SELECT s.r, count(*) AS n"
        " FROM db.s s JOIN db.t t ON s.x = t.x GROUP BY s.r) q ON r.s = q.r"
    )
    assert _sources(form) == {frozenset({"r", "γ(s ⋈ t)"}), frozenset({"r"})}
    assert form.relations == {"r": relation(LETTERS, "r"), "γ(s ⋈ t)": None}


def test_blocks_below_groups_and_unions_are_found() -> None:
    inner = "SELECT s.r AS k, t.id AS i FROM db.s s LEFT JOIN db.t t ON s.x = t.x"
    view = parse_view(
        "v",
        f"SELECT k, count(i) AS n FROM ({inner}) q GROUP BY k"
        " UNION ALL SELECT u.t, u.x FROM db.u u FULL JOIN db.r r ON u.x = r.x",
        LETTERS,
    )
    assert isinstance(view, TreeView)
    found = [block_of(node).block for node in outer_blocks(view.root)]
    assert list(map(str, found)) == ["s ⟕ t", "u ⟗ r"]


def test_a_term_prints_its_conditions_and_becomes_json() -> None:
    term = next(term for term in _form(V1).terms if term.sources == {"r", "s"})
    assert str(term) == "{r, s} where r.s = s.r"
    assert as_json(term) == {"aliases": ["r", "s"], "conditions": ["r.s = s.r"]}
