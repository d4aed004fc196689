"""Conclusions of `explain` from further keys and foreign keys: the verdicts of the papers.

Seed 001 (Ceri and Widom), Section 5.5, and seed 003 (Larson and Zhou), Sections 1, 6 and 7. Each is
checked with and without the declarations in the catalog, which alone make the difference.
"""

from typing import Any

from protocols.explaining.explanation import Explanation, explain
from protocols.explaining.page import page
from protocols.views.catalog import catalog_from_json
from tests.cases.airline import FF_RES, SOURCES, SPECIAL_MEALS, WITHOUT_FURTHER_KEYS
from tests.cases.paper_views import (
    LETTERS_SOURCES,
    OJ_VIEW,
    TPCH_SOURCES,
    V1_WITH_KEY,
    V2,
    V3,
    with_keys,
)


def explained(sql: str, sources: dict[str, Any]) -> Explanation:
    return explain("v", sql, catalog_from_json(sources))


def told(sql: str, sources: dict[str, Any]) -> str:
    """The page with single spaces."""
    return " ".join(page(explained(sql, sources)).split())


def reference(columns: str, relation: str, **more: Any) -> dict[str, Any]:
    return {"columns": columns.split(), "references": relation, **more}


def of_tpch(**foreign_keys: list[dict[str, Any]]) -> dict[str, Any]:
    return with_keys(TPCH_SOURCES, foreign_keys=foreign_keys)


def graph(sql: str, sources: dict[str, Any], alias: str) -> dict[str, str]:
    """The reduced maintenance graph: the initials of each term, and D or I."""
    (block,) = explained(sql, sources).to_json()["outer_joins"]
    update = next(each for each in block["updates"] if each["alias"] == alias)
    return {
        "".join(sorted(name[0] for name in each["term"]["aliases"])): each["how"][0].upper()
        for each in update["reduced"]["affected"]
    }


# -- further keys ----------------------------------------------------------------------------------


def test_001_section_5_5_special_meals_has_no_duplicates_by_the_key_flight_id_and_seat() -> None:
    with_all = told(SPECIAL_MEALS, SOURCES)
    assert "no row occurs twice res is safe: its key (flight_id, seat) is bound psgr is" in with_all
    without = told(SPECIAL_MEALS, WITHOUT_FURTHER_KEYS)
    assert "rows may occur twice: no key of res and psgr is bound; DISTINCT" in without
    assert explained(SPECIAL_MEALS, SOURCES).keys.keys == (("seat",),)
    assert explained(SPECIAL_MEALS, WITHOUT_FURTHER_KEYS).keys.keys == ()


def test_001_section_5_5_ff_res_needs_distinct_for_res_alone_by_the_key_ffn() -> None:
    with_all = told(FF_RES, SOURCES)
    assert "rows may occur twice: no key of res is bound; DISTINCT is needed psgr is" in with_all
    assert "psgr is safe: its key ffn is bound res is not safe" in with_all
    without = told(FF_RES, WITHOUT_FURTHER_KEYS)
    assert "rows may occur twice: no key of psgr and res is bound" in without
    assert "psgr is not safe" in without


# -- foreign keys ----------------------------------------------------------------------------------

TO_PART = reference("l_partkey", "part", mandatory=True)
TO_ORDERS = reference("l_orderkey", "orders")
TO_CUSTOMER = reference("o_custkey", "customer")


def test_003_example_1_a_new_part_or_order_is_added_and_nothing_else() -> None:
    declared = of_tpch(lineitem=[TO_PART, TO_ORDERS])
    found = explained(OJ_VIEW, declared)
    (block,) = found.to_json()["outer_joins"]
    assert [term["aliases"] for term in block["form"]["terms"]] == [["p", "o", "l"], ["p"], ["o"]]
    assert graph(OJ_VIEW, declared, "p") == {"p": "D"}
    assert graph(OJ_VIEW, declared, "o") == {"o": "D"}
    assert "by foreign keys p · D D together: Δp maintenance, update of o" in told(
        OJ_VIEW, declared
    )
    assert "{o, l}" in told(OJ_VIEW, TPCH_SOURCES)
    assert "by foreign keys" not in told(OJ_VIEW, TPCH_SOURCES)


def test_003_example_10_the_primary_delta_of_t_leaves_u_out() -> None:
    declared = with_keys(LETTERS_SOURCES, foreign_keys={"u": [reference("t", "t")]})
    (block,) = explained(V1_WITH_KEY, declared).to_json()["outer_joins"]
    t = next(each for each in block["updates"] if each["alias"] == "t")
    assert (t["primary"], t["primary_reduced"]) == ("((Δt ⟕ u) ⋈ r) ⟕ s", "(Δt ⋈ r) ⟕ s")


def test_003_example_11_figure_4_the_graphs_of_v2_for_orders() -> None:
    declared = of_tpch(lineitem=[TO_ORDERS])
    full = {"clo": "D", "co": "D", "lo": "D", "o": "D", "c": "I", "l": "I"}
    assert graph(V2, TPCH_SOURCES, "orders") == full
    assert graph(V2, declared, "orders") == {"co": "D", "o": "D", "c": "I"}
    assert (
        "maintenance, insertion or deletion of orders, by foreign keys"
        " customer orders · D → customer · I, orders · D customer · I orders · D"
    ) in told(V2, declared)


def test_003_section_7_an_order_does_nothing_to_v3_and_a_customer_only_adds_itself() -> None:
    declared = of_tpch(lineitem=[TO_ORDERS, TO_PART], orders=[TO_CUSTOMER])
    assert graph(V3, declared, "orders") == {}
    assert graph(V3, declared, "c") == {"c": "D"}
    assert graph(V3, declared, "p") == {"p": "D"}
    assert "an insertion or deletion of orders touches nothing, by foreign keys" in told(
        V3, declared
    )
    assert len(graph(V3, TPCH_SOURCES, "orders")) > 2


def test_a_reduced_graph_is_drawn_beside_the_general_one() -> None:
    drawn = explained(OJ_VIEW, of_tpch(lineitem=[TO_PART])).drawing
    general = explained(OJ_VIEW, TPCH_SOURCES).drawing
    assert len([box for box in drawn.boxes if box.label == "p · D"]) == 2
    assert len([box for box in general.boxes if box.label == "p · D"]) == 1


def test_across_sources_nothing_is_concluded_and_the_page_says_why() -> None:
    part = {"part": TPCH_SOURCES["tpch"]["relations"]["part"]}
    others = of_tpch(lineitem=[{**TO_PART, "references": "stock.part"}])
    del others["tpch"]["relations"]["part"]
    sources = {**others, "stock": {"relations": part}}
    sql = OJ_VIEW.replace("tpch.part", "stock.part")
    assert len(graph(sql, sources, "p")) > 1
    assert "{o, l}" in told(sql, sources)
    assert (
        "Foreign keys tpch.lineitem(l_partkey) -> stock.part(p_partkey): across sources, where a"
        " row may arrive before the one that it references; so nothing is concluded from it"
    ) in told(sql, sources)
    (form,) = explained(sql, sources).to_json()["foreign_keys"]
    assert form == {
        "child": "tpch.lineitem",
        "columns": ["l_partkey"],
        "parent": "stock.part",
        "parent_columns": ["p_partkey"],
        "within_source": False,
    }
