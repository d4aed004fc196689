"""The two graphs of Larson and Zhou: their Figures 1 and 4, and our drawings of them."""

import xml.etree.ElementTree as ElementTree

import pytest

from protocols.analysis.drawing import (
    Box,
    Drawing,
    as_mermaid,
    as_text,
    maintenance_drawing,
    subsumption_drawing,
)
from protocols.analysis.maintenancegraph import MaintenanceGraph, maintenance_graph, reduced
from protocols.analysis.normalform import NormalForm, Term, normal_form
from protocols.analysis.subsumption import subsumption_graph
from protocols.analysis.svg import as_svg
from protocols.analysis.wording import as_json
from protocols.errors import WrongUse
from protocols.views.catalog import ForeignKey
from tests.cases.paper_views import (
    LETTERS,
    LINEITEM_TO_ORDERS,
    LINEITEM_TO_PART,
    OJ_VIEW,
    ORDERS_TO_CUSTOMER,
    TPCH,
    V1,
    V2,
    V3,
    block,
)


def _form(sql: str, *keys: ForeignKey) -> NormalForm:
    return normal_form(block(sql, TPCH if "tpch." in sql else LETTERS).block, keys)


def _initials(term: Term) -> str:
    return "".join(sorted(alias[0] for alias in term.aliases))


def _edges(edges: tuple[tuple[Term, Term], ...]) -> set[str]:
    return {f"{_initials(a)} > {_initials(b)}" for a, b in edges}


def _marks(graph: MaintenanceGraph) -> dict[str, str]:
    return {_initials(each.term): each.how[0].upper() for each in graph.affected}


def test_figure_1a_the_subsumption_graph_of_v1() -> None:
    graph = subsumption_graph(_form(V1))
    assert _edges(graph.edges) == {
        "rstu > rst",
        "rstu > rtu",
        "rst > rs",
        "rst > rt",
        "rtu > rt",
        "rs > r",
        "rs > s",
        "rt > r",
    }


def test_figure_1b_the_maintenance_graph_of_v1_for_t() -> None:
    """Four terms directly (Example 5), and R and RS indirectly (Example 6); S is not affected."""
    graph = maintenance_graph(_form(V1), "t")
    assert _marks(graph) == {"rstu": "D", "rst": "D", "rtu": "D", "rt": "D", "rs": "I", "r": "I"}
    r = next(each for each in graph.affected if _initials(each.term) == "r")
    assert [_initials(parent) for parent in r.direct_parents] == ["rt"]
    assert [_initials(parent) for parent in r.indirect_parents] == ["rs"]
    assert _edges(graph.edges) == _edges(subsumption_graph(_form(V1)).edges) - {"rs > s"}


def test_a_grandparent_alone_affects_nothing() -> None:
    """Terms R > RS > RST: an update of T cannot orphan a row of R that RS contains."""
    chain = "SELECT r.id FROM db.r r LEFT JOIN (db.s s LEFT JOIN db.t t ON s.x = t.x) ON r.s = s.r"
    assert _marks(maintenance_graph(_form(chain), "t")) == {"rst": "D", "rs": "I"}


def test_figure_4_the_graphs_of_v2_for_o_without_and_with_the_foreign_key() -> None:
    """Insertions into O do not affect OL and COL, if L references O; and so L neither."""
    form = _form(V2)
    graph = maintenance_graph(form, "orders")
    assert _marks(graph) == {"clo": "D", "co": "D", "lo": "D", "o": "D", "c": "I", "l": "I"}
    smaller = reduced(graph, form, [LINEITEM_TO_ORDERS])
    assert _marks(smaller) == {"co": "D", "o": "D", "c": "I"}
    assert _edges(smaller.edges) == {"co > c", "co > o"}


def test_a_foreign_key_that_is_not_joined_on_rules_nothing_out() -> None:
    form = _form(V2.replace("o.o_orderkey = l.l_orderkey", "o.o_orderkey = l.l_quantity"))
    graph = maintenance_graph(form, "orders")
    assert reduced(graph, form, [LINEITEM_TO_ORDERS]) == graph


def test_example_1_a_new_part_or_order_only_adds_itself() -> None:
    keys = (LINEITEM_TO_PART, LINEITEM_TO_ORDERS)
    form = _form(OJ_VIEW, *keys)
    for alias in ("p", "o"):
        full = maintenance_graph(form, alias)
        assert len(full.affected) > 1
        assert _marks(reduced(full, form, keys)) == {alias: "D"}
    assert _marks(maintenance_graph(form, "l")) == {"lop": "D", "p": "I", "o": "I"}


def test_section_7_an_order_of_v3_has_no_effect_and_a_customer_only_adds_itself() -> None:
    keys = (LINEITEM_TO_ORDERS, ORDERS_TO_CUSTOMER)
    form = _form(V3, *keys)
    assert _marks(reduced(maintenance_graph(form, "orders"), form, keys)) == {}
    assert _marks(reduced(maintenance_graph(form, "c"), form, keys)) == {"c": "D"}
    lineitems = maintenance_graph(form, "lineitem")
    assert _marks(lineitems) == {"clop": "D", "clo": "D", "c": "I", "p": "I"}
    assert str(reduced(maintenance_graph(form, "orders"), form, keys)) == (
        "an update of orders touches no term"
    )


def test_net_contributions_say_what_is_taken_out() -> None:
    lines = str(subsumption_graph(_form(V1))).splitlines()
    assert lines[0] == "{r, s, t, u}: all rows"
    assert "{r}: the rows that are no part of a row of {r, s} and {r, t}" in lines


def test_an_alias_that_is_not_there_is_refused() -> None:
    with pytest.raises(WrongUse, match=r"no alias 'x'; choose one of: r, s, t, u"):
        maintenance_graph(_form(V1), "x")


def test_graphs_become_json() -> None:
    form = as_json(
        maintenance_graph(_form("SELECT r.id FROM db.r LEFT JOIN db.s ON r.s = s.r"), "s")
    )
    terms = [
        {"aliases": ["r", "s"], "conditions": ["r.s = s.r"]},
        {"aliases": ["r"], "conditions": []},
    ]
    assert form == {
        "updated": "s",
        "affected": [
            {"term": terms[0], "how": "directly", "direct_parents": [], "indirect_parents": []},
            {
                "term": terms[1],
                "how": "indirectly",
                "direct_parents": [terms[0]],
                "indirect_parents": [],
            },
        ],
    }


# -- drawings --------------------------------------------------------------------------------------


def test_the_drawings_mark_terms_as_the_paper_does() -> None:
    drawing = maintenance_drawing(maintenance_graph(_form(V1), "t"))
    assert drawing.title == "maintenance, update of t"
    assert Box("r s t u · D") in drawing.boxes
    assert Box("r s · I", dashed=True) in drawing.boxes


def test_mermaid_has_a_line_per_box_and_per_edge() -> None:
    drawing = Drawing("small", (Box("r <s>"), Box("r", dashed=True)), ((0, 1),))
    assert as_mermaid(drawing) == (
        "graph TD\n"
        '  t0["r &lt;s&gt;"]\n'
        '  t1["r"]:::indirect\n'
        "  t0 --> t1\n"
        "  classDef indirect stroke-dasharray: 4 3\n"
    )


def test_the_text_says_what_is_below_each_box() -> None:
    lines = as_text(subsumption_drawing(subsumption_graph(_form(V1)))).splitlines()
    assert lines[:2] == ["subsumption", "  r s t u  →  r s t, r t u"]
    assert lines[-1] == "  s"


@pytest.mark.parametrize("sql", [V1, V2, V3, OJ_VIEW])
def test_the_svg_has_every_box_and_line_and_boxes_do_not_overlap(sql: str) -> None:
    drawing = subsumption_drawing(subsumption_graph(_form(sql)))
    svg = ElementTree.fromstring(as_svg(drawing))
    texts = [text.text for text in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert texts == [drawing.title, *(box.label for box in drawing.boxes)]
    assert len(list(svg.iter("{http://www.w3.org/2000/svg}polyline"))) == len(drawing.lines)
    boxes = _rectangles(svg)
    assert len(boxes) == len(drawing.boxes)
    for number, box in enumerate(boxes):
        assert not any(_overlap(box, other) for other in boxes[:number])
    _, _, width, height = map(float, svg.attrib["viewBox"].split())
    assert all(x >= 0 and x + w <= width and y + h <= height for x, y, w, h in boxes)


def test_in_the_svg_a_line_goes_downwards_and_around_the_boxes_between() -> None:
    boxes = tuple(map(Box, ("above", "in between", "below")))
    svg = ElementTree.fromstring(as_svg(Drawing("t", boxes, ((0, 1), (1, 2), (0, 2)))))
    (long,) = (line for line in _lines(svg) if len(line) == 4)
    x, y, width, height = _rectangles(svg)[1]
    assert [point[1] for point in long] == sorted(point[1] for point in long)
    assert long[0][1] < y < y + height < long[-1][1]
    assert not any(x <= point[0] <= x + width and y <= point[1] <= y + height for point in long)


def test_an_empty_graph_can_be_drawn() -> None:
    svg = as_svg(Drawing("nothing", (), ()))
    assert ElementTree.fromstring(svg).tag.endswith("svg")


def _rectangles(svg: ElementTree.Element) -> list[tuple[float, float, float, float]]:
    found = svg.iter("{http://www.w3.org/2000/svg}rect")
    _, *boxes = (each.attrib for each in found)
    return [tuple(float(b[a]) for a in ("x", "y", "width", "height")) for b in boxes]  # type: ignore[misc]


def _lines(svg: ElementTree.Element) -> list[list[tuple[float, float]]]:
    found = svg.iter("{http://www.w3.org/2000/svg}polyline")
    return [
        [tuple(map(float, point.split(","))) for point in line.attrib["points"].split()]  # type: ignore[misc]
        for line in found
    ]


def _overlap(
    one: tuple[float, float, float, float], other: tuple[float, float, float, float]
) -> bool:
    (x1, y1, w1, h1), (x2, y2, w2, h2) = one, other
    return x1 < x2 + w2 and x2 < x1 + w1 and y1 < y2 + h2 and y2 < y1 + h1
