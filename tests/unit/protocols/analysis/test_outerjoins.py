"""The analysis of all outer joins of a view at once."""

from protocols.analysis.outerjoins import BlockAnalysis, WithoutNormalForm, outer_joins
from protocols.analysis.wording import as_json
from tests.cases.paper_views import (
    LETTERS,
    LINEITEM_TO_ORDERS,
    LINEITEM_TO_PART,
    OJ_VIEW,
    TPCH,
    V1,
    root,
)


def test_every_alias_of_a_block_is_looked_at() -> None:
    (block,) = outer_joins(root(V1, LETTERS))
    assert isinstance(block, BlockAnalysis)
    assert [update.alias for update in block.updates] == ["r", "s", "t", "u"]
    assert block.updates[2].primary == "((Δt ⟕ u) ⋈ r) ⟕ s"
    assert block.updates[2].reduced == block.updates[2].graph
    assert all(each.from_view for each in block.updates[2].insertion)


def test_foreign_keys_are_shown_beside_the_general_case() -> None:
    keys = (LINEITEM_TO_ORDERS, LINEITEM_TO_PART)
    (block,) = outer_joins(root(OJ_VIEW, TPCH), keys)
    assert isinstance(block, BlockAnalysis)
    part = next(update for update in block.updates if update.alias == "p")
    assert (part.primary, part.primary_reduced) == ("λ[l unless o]((Δp ⟕ l) ⟕ o)", "Δp")
    assert len(part.reduced.affected) == 1


def test_below_a_group_the_view_helps_with_no_secondary_delta_and_the_group_counts() -> None:
    sql = "SELECT r.x, sum(s.x) AS n FROM db.r r LEFT JOIN db.s s ON r.s = s.r GROUP BY r.x"
    (block,) = outer_joins(root(sql, LETTERS))
    assert isinstance(block, BlockAnalysis)
    assert block.counters is not None
    assert block.counters.tables == (("s",),)
    of_s = block.updates[1]
    assert [each.reads for each in of_s.insertion + of_s.deletion] == [("s",), ("s",)]


def test_two_blocks_of_a_union_are_two_analyses_none_of_which_reads_the_view() -> None:
    sides = (
        "SELECT r.id FROM db.r r LEFT JOIN db.s s ON r.s = s.r",
        "SELECT t.id FROM db.t t LEFT JOIN db.u u ON t.u = u.t",
    )
    found = outer_joins(root(" UNION ALL ".join(sides), LETTERS))
    assert [block.block for block in found] == ["r ⟕ s", "t ⟕ u"]
    for block in found:
        assert isinstance(block, BlockAnalysis)
        assert not any(each.from_view for update in block.updates for each in update.deletion)


def test_a_block_without_a_normal_form_says_why() -> None:
    sql = "SELECT r.id FROM db.r r LEFT JOIN db.s s ON r.s = s.r WHERE s.x IS NULL OR s.x = r.x"
    (block,) = outer_joins(root(sql, LETTERS))
    assert isinstance(block, WithoutNormalForm)
    assert "s is padded with NULL" in block.reason


def test_it_becomes_json() -> None:
    (form,) = as_json(outer_joins(root(V1, LETTERS)))
    assert form["block"] == "(r ⟗ s) ⟕ (t ⟗ u)"
    assert form["form"]["relations"]["r"] == "db.r"
    assert form["counters"] is None
