"""The primary delta as Larson and Zhou derive it: expressions (4), (6) and (7), and its limits."""

import pytest

from protocols.algebra import expressions as ex
from protocols.analysis.block import Block, Joined, JoinKind, NullIf, leaves
from protocols.analysis.leftdeep import left_deep
from protocols.analysis.primarydelta import primary_delta, simplified
from protocols.analysis.wording import conditions_text
from protocols.errors import WrongUse
from tests.cases.paper_views import (
    LETTERS,
    LINEITEM_TO_ORDERS,
    LINEITEM_TO_PART,
    OJ_VIEW,
    TPCH,
    U_TO_T,
    V1,
    V1_WITH_KEY,
    V3,
    block,
    foreign_key,
)


def _block(sql: str) -> Block:
    return block(sql, TPCH if "tpch." in sql else LETTERS).block


def test_expression_4_the_primary_delta_of_v1_for_t() -> None:
    assert str(primary_delta(_block(V1), "t")) == "(Δt ⟕ u) ⋈ (r ⟗ s)"


def test_expression_6_the_left_deep_tree_of_v1_for_t_with_its_conditions() -> None:
    delta = left_deep(primary_delta(_block(V1), "t"))
    assert str(delta) == "((Δt ⟕ u) ⋈ r) ⟕ s"
    assert isinstance(delta, Joined)
    assert isinstance(delta.left, Joined)
    assert conditions_text(delta.conditions) == "r.s = s.r"
    assert conditions_text(delta.left.conditions) == "r.t = t.r"


def test_example_10_a_new_t_is_joined_with_no_u_that_references_it() -> None:
    delta = primary_delta(_block(V1_WITH_KEY), "t")
    smaller = simplified(delta, [U_TO_T])
    assert smaller is not None
    assert str(left_deep(smaller)) == "(Δt ⋈ r) ⟕ s"
    assert str(left_deep(delta)) == "((Δt ⟕ u) ⋈ r) ⟕ s"


def test_a_join_with_what_references_the_change_is_empty() -> None:
    """oj_view: a new part only adds itself; a new order joins neither lineitems nor parts."""
    keys = (LINEITEM_TO_PART, LINEITEM_TO_ORDERS)
    assert str(simplified(primary_delta(_block(OJ_VIEW), "p"), keys)) == "Δp"
    assert str(simplified(primary_delta(_block(OJ_VIEW), "o"), keys)) == "Δo"
    assert simplified(primary_delta(_block(V3), "orders"), keys) is None


def test_what_found_nothing_to_join_takes_along_what_is_joined_through_it() -> None:
    """No u references the new t, so no s is reached through u either."""
    view = (
        "SELECT t.id FROM db.t t LEFT JOIN db.u u ON t.id = u.t LEFT JOIN db.s s ON u.x = s.x"
        " LEFT JOIN db.r r ON t.r = r.t"
    )
    assert str(simplified(primary_delta(_block(view), "t"), [U_TO_T])) == "Δt ⟕ r"
    inner = view.replace("LEFT JOIN db.s", "JOIN db.s")
    assert simplified(primary_delta(_block(inner), "t"), [U_TO_T]) is None


def test_a_foreign_key_that_another_join_uses_rules_nothing_out() -> None:
    """SimplifyTree as printed removes u at the first join that mentions it, which is not on the
    key: a new t may well have the x of some u.
    """
    view = (
        "SELECT t.id FROM db.t t LEFT JOIN db.u u ON t.x = u.x"
        " LEFT JOIN db.s s ON t.r = s.r AND t.id = u.t"
    )
    assert str(simplified(primary_delta(_block(view), "t"), [U_TO_T])) == "Δt ⟕ u"


def test_a_change_on_the_right_is_exchanged_to_the_left() -> None:
    assert str(primary_delta(_block(V1), "u")) == "(Δu ⟕ t) ⋈ (r ⟗ s)"
    assert str(primary_delta(_block(V1), "s")) == "(Δs ⟕ r) ⟕ (t ⟗ u)"


RIGHT_OPERANDS: list[tuple[JoinKind, JoinKind, str]] = [
    ("inner", "inner", "(Δr ⋈ s) ⋈ t"),
    ("inner", "left", "(Δr ⋈ s) ⟕ t"),
    ("inner", "right", "(Δr ⋈ s) ⋈ t"),
    ("inner", "full", "(Δr ⋈ s) ⟕ t"),
    ("left", "inner", "λ[s unless t]((Δr ⟕ s) ⟕ t)"),
    ("left", "left", "(Δr ⟕ s) ⟕ t"),
    ("left", "right", "λ[s unless t]((Δr ⟕ s) ⟕ t)"),
    ("left", "full", "(Δr ⟕ s) ⟕ t"),
]


@pytest.mark.parametrize(("outer", "inner", "expected"), RIGHT_OPERANDS)
def test_a_right_operand_is_pulled_into_the_main_path(
    outer: JoinKind, inner: JoinKind, expected: str
) -> None:
    right = Joined(inner, _leaf("s"), _leaf("t"), _conditions("s.x = t.x"))
    joined = Joined(outer, _leaf("r"), right, _conditions("r.s = s.r"))
    assert str(left_deep(primary_delta(joined, "r"))) == expected


def test_a_condition_on_both_sides_of_the_right_operand_moves_to_the_second_join() -> None:
    outer = Joined("full", _leaf("s"), _leaf("t"), _conditions("s.x = t.x"))
    joined = Joined("left", _leaf("r"), outer, _conditions("r.s = s.r", "r.x = t.r"))
    delta = left_deep(primary_delta(joined, "r"))
    assert str(delta) == "λ[s unless t]((Δr ⟕ s) ⟕ t)"
    assert isinstance(delta, NullIf)
    assert isinstance(delta.input, Joined)
    assert conditions_text(delta.input.conditions) == "s.x = t.x AND r.x = t.r"


def test_a_right_operand_that_no_condition_leads_into_stays_whole() -> None:
    outer = Joined("full", _leaf("s"), _leaf("t"), _conditions("s.x = t.x"))
    joined = Joined("left", _leaf("r"), outer, _conditions("s.r = t.r"))
    delta = left_deep(primary_delta(joined, "r"))
    assert str(delta) == "Δr ⟕ (s ⟗ t)"


def test_what_no_condition_leads_to_from_there_stays_where_it_is() -> None:
    """If it were pulled out, t would be joined with an r that has no s."""
    right = Joined("left", _leaf("s"), _leaf("t"), _conditions("t.x = t.u"))
    joined = Joined("left", _leaf("r"), right, _conditions("r.s = s.r"))
    assert str(left_deep(primary_delta(joined, "r"))) == "Δr ⟕ (s ⟕ t)"


def test_an_alias_that_is_not_there_is_refused() -> None:
    with pytest.raises(WrongUse, match="no alias 'x'"):
        primary_delta(_block(V1), "x")


def test_a_left_deep_delta_is_not_simplified_any_more() -> None:
    inner = Joined("inner", _leaf("s"), _leaf("t"), _conditions("s.x = t.x"))
    joined = Joined("left", _leaf("r"), inner, _conditions("r.s = s.r"))
    key = foreign_key(LETTERS, "t", "x", "s")
    with pytest.raises(WrongUse, match="simplify it before that"):
        simplified(left_deep(primary_delta(joined, "r")), [key])


def _leaf(name: str) -> Block:
    sql = "SELECT r.id FROM db.r r FULL JOIN db.s s ON r.x = s.x FULL JOIN db.t t ON r.x = t.x"
    return next(leaf for leaf in leaves(_block(sql)) if leaf.aliases == (name,))


def _conditions(*texts: str) -> tuple[ex.Condition, ...]:
    sides = (text.split(" = ") for text in texts)
    return tuple(ex.Comparison(ex.Column(left), "=", ex.Column(right)) for left, right in sides)
