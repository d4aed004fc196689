"""The running example of the paper, table by table; what it prints, with our names of sources."""

import pytest

from protocols.selfmaintenance.dependence import dep, dep_plus, root
from protocols.selfmaintenance.maintaining import maintenance_expressions
from protocols.selfmaintenance.need import need
from protocols.selfmaintenance.sizes import Sizes, sizes_of, total
from protocols.selfmaintenance.statement import statement
from protocols.views.statistics import statistics_in
from tests.cases.selfmaintenance import DEPARTMENT_STORES, Case, running_example

RUNNING = running_example()
#: Section 3.1: updates of sale may change the year, among others.
SALE_EXPOSED = running_example(sale=["year", "sale_id", "store_id"])


def test_figure_2_the_join_graph() -> None:
    graph = RUNNING.auxiliary_views.graph
    edges = {(edge.child, edge.parent, edge.on): str(edge.reference) for edge in graph.edges}
    assert edges == {
        ("sale", "store", (("sale.store_id", "store.store_id"),)): (
            "shop.sale(store_id) -> shop.store(store_id)"
        ),
        ("line", "sale", (("line.sale_id", "sale.sale_id"),)): (
            "shop.line(sale_id) -> shop.sale(sale_id)"
        ),
        ("line", "item", (("line.item_id", "item.item_id"),)): (
            "shop.line(item_id) -> shop.item(item_id)"
        ),
    }
    assert {vertex.name: vertex.updates for vertex in graph.vertices} == dict.fromkeys(
        ("store", "sale", "line", "item"), "protected"
    )
    assert root(graph) == "line"


@pytest.mark.parametrize(
    ("relation", "depends", "transitively", "needs"),
    [
        ("store", set(), set(), {"sale"}),
        ("sale", {"store"}, {"store"}, set()),
        ("item", set(), set(), set()),
        ("line", {"sale", "item"}, {"sale", "item", "store"}, set()),
    ],
)
def test_table_2_dep_and_need(
    relation: str, depends: set[str], transitively: set[str], needs: set[str]
) -> None:
    graph = RUNNING.auxiliary_views.graph
    assert dep(relation, graph) == depends
    assert dep_plus(relation, graph) == transitively
    assert need(relation, graph) == needs


def test_figure_1_and_table_3_the_auxiliary_views() -> None:
    found = RUNNING.auxiliary_views
    assert found.not_needed == "line"
    assert {name: statement(name, found) for name in found.views} == {
        "store": (
            "CREATE VIEW aux_store AS\n"
            "SELECT store_id, manager\n"
            "FROM shop.store\n"
            "WHERE state = 'CA'"
        ),
        "sale": (
            "CREATE VIEW aux_sale AS\n"
            "SELECT sale_id, store_id, month\n"
            "FROM shop.sale\n"
            "WHERE year = 1996 AND\n"
            "      store_id IN (SELECT store_id FROM aux_store)"
        ),
        "item": (
            "CREATE VIEW aux_item AS\n"
            "SELECT item_id, item_name\n"
            "FROM shop.item\n"
            "WHERE category = 'toy'"
        ),
    }


def test_section_3_1_exposed_updates_of_sale() -> None:
    """The statement of aux_line is the one that section 1.1 prints."""
    found = SALE_EXPOSED.auxiliary_views
    assert found.graph.vertex("sale").updates == "exposed"
    assert dep("line", found.graph) == dep_plus("line", found.graph) == {"item"}
    assert statement("line", found) == (
        "CREATE VIEW aux_line AS\n"
        "SELECT line_id, sale_id, item_id, sales_price\n"
        "FROM shop.line\n"
        "WHERE item_id IN (SELECT item_id FROM aux_item)"
    )


def test_section_1_1_if_categories_may_change_all_of_line_is_kept() -> None:
    found = running_example(
        sale=["year", "store_id"], item=["category", "item_name"]
    ).auxiliary_views
    assert statement("line", found).endswith("sales_price\nFROM shop.line")


def test_table_1_rows_of_detail_data_and_of_auxiliary_views() -> None:
    found, known = RUNNING.auxiliary_views, statistics_in(DEPARTMENT_STORES)
    sizes = sizes_of(found, known)
    assert sizes == {
        "store": Sizes(2_000, 40, 40),
        "sale": Sizes(80_000_000, 20_000_000, 400_000),
        "line": Sizes(800_000_000, 800_000_000, 0),
        "item": Sizes(1_000, 50, 50),
    }
    assert total(sizes, found, known) == Sizes(880_003_000, 820_000_090, 400_090)


def test_section_1_1_with_exposed_updates_of_sale_40_000_000_lines_are_kept() -> None:
    sizes = sizes_of(SALE_EXPOSED.auxiliary_views, statistics_in(DEPARTMENT_STORES))
    assert sizes["line"] == Sizes(800_000_000, 800_000_000, 40_000_000)


def _expressions(case: Case, change: str) -> dict[str, str]:
    found = maintenance_expressions(case.auxiliary_views)
    return {each.vertex: each.text for each in found if each.change == change}


def test_section_4_2_1_of_table_5_only_insertions_into_line_remain() -> None:
    found = _expressions(RUNNING, "insertions")
    assert found.pop("line") == "π(Δline ⋈ aux_store ⋈ aux_sale ⋈ aux_item)"
    assert {name: text.partition(":")[0] for name, text in found.items()} == dict.fromkeys(
        ("store", "sale", "item"), "none"
    )
    assert all("Rule 4.1" in text for text in found.values())


def test_section_4_2_2_exposed_updates_of_sale_bring_its_insertions_back() -> None:
    found = _expressions(SALE_EXPOSED, "insertions")
    assert found["sale"] == "π(Δsale ⋈ aux_store ⋈ aux_line ⋈ aux_item)"
    assert found["item"].startswith("none: Rule 4.1: rows of line")
    assert _expressions(SALE_EXPOSED, "updates")["sale"].startswith("none: as deletions")


def test_section_4_3_1_table_7_simplified_by_rule_4_2() -> None:
    assert _expressions(RUNNING, "deletions") == {
        "store": "π(V ⋈[sale_id] aux_sale ⋈[store_id] ∇store)",
        "sale": "π(V ⋈[sale_id] ∇sale)",
        "line": "π(V ⋈[line_id] ∇line)",
        "item": "π(V ⋈[item_id] ∇item)",
    }


def test_section_4_4_1_table_8_simplified_by_rule_4_3() -> None:
    assert _expressions(RUNNING, "updates") == {
        "store": "π(V ⋈[sale_id] aux_sale ⋈[store_id] μstore)",
        "sale": "π(V ⋈[sale_id] μsale)",
        "line": "π(V ⋈[line_id] μline)",
        "item": "π(V ⋈[item_id] μitem)",
    }


def test_the_order_of_a_transaction() -> None:
    """Children are deleted before parents and inserted after them."""
    order = [(e.change, e.vertex) for e in maintenance_expressions(RUNNING.auxiliary_views)]
    assert [change for change, _ in order] == 4 * ["deletions"] + 4 * ["updates"] + 4 * [
        "insertions"
    ]
    for change, first, second in (
        ("deletions", "line", "sale"),
        ("deletions", "line", "item"),
        ("deletions", "sale", "store"),
        ("insertions", "store", "sale"),
        ("insertions", "sale", "line"),
        ("insertions", "item", "line"),
    ):
        assert order.index((change, first)) < order.index((change, second))  # type: ignore[arg-type]
