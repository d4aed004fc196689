"""The outer joins that `explain` reports are those of the SQL, read by hand.

Relations r, s, t and u have the key `id` and the columns `x`, `y` and `c`.
"""

import pytest

from protocols.analysis.outerjoins import BlockAnalysis
from protocols.explaining.explanation import Explanation, explain
from protocols.explaining.page import page
from protocols.views.catalog import catalog_from_json

_COLUMNS = dict.fromkeys(("id", "x", "y", "c"), "BIGINT")
LETTERS = catalog_from_json(
    {"db": {"relations": {name: {"columns": _COLUMNS, "key": ["id"]} for name in "rstu"}}}
)


def explained(sql: str) -> Explanation:
    return explain("v", sql, LETTERS)


def blocks(sql: str) -> list[str]:
    return [each.block for each in explained(sql).outer_joins]


def terms(sql: str) -> list[str]:
    """The terms of the one block of a view."""
    (block,) = explained(sql).outer_joins
    assert isinstance(block, BlockAnalysis)
    return list(map(str, block.form.terms))


def left_joined(query: str) -> str:
    """The SQL of r left-joined with a query over other relations by x."""
    return f"SELECT r.id, q.x AS q FROM db.r r LEFT JOIN ({query}) q ON q.x = r.x"


# -- joined subqueries and groups ------------------------------------------------------------------


def test_a_union_in_an_outer_join_is_no_inner_join() -> None:
    sql = left_joined("SELECT x FROM db.s UNION ALL SELECT x FROM db.u")
    assert blocks(sql) == ["r ⟕ (s ⊎ u)"]
    assert terms(sql) == ["{r, (s ⊎ u)} where r.x = (s ⊎ u).x", "{r}"]


def test_a_union_without_all_is_one_of_different_rows() -> None:
    assert blocks(left_joined("SELECT x FROM db.s UNION SELECT x FROM db.u")) == ["r ⟕ δ(s ⊎ u)"]


@pytest.mark.parametrize(
    ("operation", "symbol"),
    [("INTERSECT", "∩"), ("INTERSECT ALL", "∩ all"), ("EXCEPT", "-"), ("EXCEPT ALL", "- all")],
)
def test_what_both_sides_or_one_of_them_have_is_no_group_of_all(
    operation: str, symbol: str
) -> None:
    sql = left_joined(f"SELECT x FROM db.s WHERE y > 3 {operation} SELECT x FROM db.u")
    both = f"(s {symbol} u)"
    assert blocks(sql) == [f"r ⟕ {both}"]
    assert terms(sql) == [f"{{r, {both}}} where r.x = {both}.x", "{r}"]
    told = page(explained(sql)).partition("Outer joins\n")[2]
    assert f"maintenance, update of {both}" in told
    assert f"D together: Δ{both} ⋈ r" in told


def test_set_operations_in_an_outer_join_are_nested_as_in_the_text() -> None:
    left = "SELECT x FROM db.s INTERSECT SELECT x FROM db.t EXCEPT SELECT x FROM db.u"
    assert blocks(left_joined(left)) == ["r ⟕ ((s ∩ t) - u)"]
    right = "SELECT x FROM db.s EXCEPT (SELECT x FROM db.t INTERSECT SELECT x FROM db.u)"
    assert blocks(left_joined(right)) == ["r ⟕ (s - (t ∩ u))"]
    groups = "SELECT x, MAX(y) AS y FROM db.s GROUP BY x INTERSECT SELECT x, y FROM db.u"
    assert blocks(left_joined(groups)) == ["r ⟕ (γ(s) ∩ u)"]


def test_exists_in_an_outer_join_is_no_inner_join() -> None:
    query = "SELECT s.x FROM db.s s WHERE {} (SELECT 1 FROM db.t t WHERE t.x = s.y)"
    sql = left_joined(query.format("EXISTS"))
    assert blocks(sql) == ["r ⟕ (s ⋉ t)"]
    assert terms(sql) == ["{r, (s ⋉ t)} where r.x = (s ⋉ t).x", "{r}"]
    assert blocks(left_joined(query.format("NOT EXISTS"))) == ["r ⟕ (s ▷ t)"]


def test_distinct_in_an_outer_join_is_not_the_relation() -> None:
    sql = left_joined("SELECT DISTINCT x FROM db.s WHERE y > 3")
    assert blocks(sql) == ["r ⟕ δ(s)"]
    assert terms(sql) == ["{r, δ(s)} where r.x = δ(s).x", "{r}"]


def test_an_outer_join_below_a_group_stays_one() -> None:
    sql = left_joined(
        "SELECT s.x, COUNT(*) AS n FROM db.s s LEFT JOIN db.t t ON s.id = t.x GROUP BY s.x"
        " HAVING COUNT(*) > 2"
    )
    assert blocks(sql) == ["r ⟕ γ(s ⟕ t)", "s ⟕ t"]


def test_rows_chosen_by_a_subquery_in_an_outer_join_are_told_as_such() -> None:
    """NOT IN counts its subquery twice, which must not show here."""
    chosen = left_joined("SELECT x FROM db.s WHERE c NOT IN (SELECT c FROM db.t)")
    assert blocks(chosen) == ["r ⟕ σ[t](s)"]
    assert terms(chosen) == ["{r, σ[t](s)} where r.x = σ[t](s).x", "{r}"]
    both = left_joined(
        "SELECT x FROM db.s WHERE c NOT IN (SELECT c FROM db.t) AND y > ALL (SELECT y FROM db.u)"
    )
    assert blocks(both) == ["r ⟕ σ[t, u](s)"]


def test_what_is_no_relation_is_updated_as_one() -> None:
    (block,) = explained(left_joined("SELECT x FROM db.s UNION ALL SELECT x FROM db.u")).outer_joins
    assert isinstance(block, BlockAnalysis)
    assert [(each.alias, each.primary) for each in block.updates] == [
        ("r", "Δr ⟕ (s ⊎ u)"),
        ("(s ⊎ u)", "Δ(s ⊎ u) ⋈ r"),
    ]


def test_an_inner_join_with_a_group_says_both() -> None:
    """The condition, too, shows which of them is a relation and which is not."""
    sql = (
        "SELECT r.id, t.id AS t FROM db.r r JOIN (SELECT x, MAX(y) AS y FROM db.s GROUP BY x) q"
        " ON q.x = r.x LEFT JOIN db.t t ON t.y = q.y"
    )
    assert blocks(sql) == ["(r ⋈ γ(s)) ⟕ t"]
    assert terms(sql) == [
        "{r, γ(s), t} where r.x = γ(s).x AND γ(s).max = t.y",
        "{r, γ(s)} where r.x = γ(s).x",
    ]


# -- conditions with subqueries --------------------------------------------------------------------

JOINED = "SELECT r.id, s.id AS s FROM db.r r LEFT JOIN db.s s ON s.x = r.x"


@pytest.mark.parametrize(
    "condition",
    [
        "r.c NOT IN (SELECT c FROM db.t)",
        "r.c < ALL (SELECT c FROM db.t)",
        "r.c = (SELECT MAX(c) FROM db.t WHERE t.x = r.y) OR r.y = 1",
        "r.y = 1 OR EXISTS (SELECT 1 FROM db.t t WHERE t.x = r.y)",
        "EXISTS (SELECT 1 FROM db.t t WHERE t.x = r.y)",
        "r.c IN (SELECT c FROM db.t)",
    ],
)
def test_a_subquery_in_where_leaves_the_outer_join_below_its_normal_form(condition: str) -> None:
    sql = f"{JOINED} WHERE {condition}"
    assert blocks(sql) == ["r ⟕ s"]
    assert terms(sql) == ["{r, s} where r.x = s.x", "{r}"]
    told = page(explained(sql)).partition("Outer joins\n")[2]
    for internal in ("equal", "known", "rows <", "t_2"):
        assert internal not in told.partition("\nKeys\n")[0]


def test_a_subquery_in_the_select_list_does_too() -> None:
    sql = JOINED.replace("r.id,", "r.id, (SELECT COUNT(*) FROM db.t t WHERE t.x = r.y) AS n,")
    assert terms(sql) == ["{r, s} where r.x = s.x", "{r}"]


def test_the_orphans_of_a_view_with_a_subquery_are_not_told_from_its_rows() -> None:
    """A row that the condition hides is still a partner."""
    (block,) = explained(f"{JOINED} WHERE r.c NOT IN (SELECT c FROM db.t)").outer_joins
    assert isinstance(block, BlockAnalysis)
    assert [each.reads for each in block.updates[1].deletion] == [("s",)]
    (plain,) = explained(JOINED).outer_joins
    assert isinstance(plain, BlockAnalysis)
    assert [each.from_view for each in plain.updates[1].deletion] == [True]


def test_without_an_outer_join_in_the_text_none_is_told_of() -> None:
    sql = "SELECT r.id FROM db.r r WHERE r.c NOT IN (SELECT c FROM db.t)"
    assert not explained(sql).outer_joins
    assert "Outer joins" not in page(explained(sql))


# -- on the page -----------------------------------------------------------------------------------


def words_of(sql: str) -> str:
    return " ".join(page(explained(sql)).split())


def test_secondary_deltas_are_on_the_page() -> None:
    told = words_of(JOINED)
    assert "I: orphans {r} that are part of a new row {r, s} leave the view: from the view" in told
    assert (
        "I: parts {r} of deleted rows {r, s} enter the view as orphans, unless a row of the view"
        " contains them: from the view"
    ) in told


def test_the_columns_that_a_secondary_delta_lacks_are_on_the_page() -> None:
    told = words_of(JOINED.replace("r.id,", "r.x,"))
    assert "leave the view: from s; with r.id in the select list the view would do" in told


def test_the_counters_of_a_group_are_on_the_page() -> None:
    """s.y may be NULL in a row of s, and r.id is in every row."""
    told = words_of(
        "SELECT r.x, SUM(s.y) AS total, MAX(r.id) AS last"
        " FROM db.r r LEFT JOIN db.s s ON s.x = r.x GROUP BY r.x"
    )
    assert "a group counts its rows, those with s and those in which s.y is not NULL" in told
    assert "SUM(s.y) is NULL when the number of rows in which s.y is not NULL is 0" in told
    assert "MAX(r.id) is NULL when the number of rows is 0" in told


def test_no_column_is_advised_for_orphans_below_a_group() -> None:
    """A group cannot be taken apart into its rows, whatever it shows."""
    told = words_of(
        "SELECT r.x, COUNT(*) AS n FROM db.r r LEFT JOIN db.s s ON s.x = r.x GROUP BY r.x"
    )
    assert "enter the view as orphans, unless a row of the view contains them: from s" in told
    assert "the view would do" not in told
