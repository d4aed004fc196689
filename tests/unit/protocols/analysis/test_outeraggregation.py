"""Aggregation over outer joins: the counters of Section 3.3 of Larson and Zhou, and NULL."""

from protocols.analysis.maintenancegraph import maintenance_graph
from protocols.analysis.normalform import normal_form
from protocols.analysis.outeraggregation import GroupCounters, group_counters
from protocols.analysis.secondarydelta import secondary_deltas
from protocols.views.tree import Group, nodes
from tests.cases.paper_views import LETTERS, block, root


def _counters(sql: str) -> GroupCounters:
    group = next(node for node in nodes(root(sql, LETTERS)) if isinstance(node, Group))
    return group_counters(group)


LEFT = "FROM db.r r LEFT JOIN db.s s ON r.s = s.r GROUP BY r.x"


def test_a_table_that_can_be_padded_is_counted() -> None:
    counters = _counters(f"SELECT r.x, sum(s.id) AS total, max(r.id) AS last {LEFT}")
    assert counters.tables == (("s",),)
    assert counters.values == ()
    assert [(each.aggregate, each.counter) for each in counters.aggregates] == [
        ("SUM(s.id)", "the number of rows with s"),
        ("MAX(r.id)", "the number of rows"),
    ]


def test_both_sides_of_a_full_join_are_counted() -> None:
    sql = f"SELECT r.x, sum(s.id) AS total, max(r.id) AS last {LEFT}".replace("LEFT", "FULL")
    assert _counters(sql).tables == (("r",), ("s",))


def test_a_column_that_can_be_null_in_a_row_of_its_table_needs_a_count_of_its_own() -> None:
    """Section 3.3 counts the rows of s only: with one whose x is NULL, SUM would be 0."""
    counters = _counters(f"SELECT r.x, sum(s.x) AS total, sum(s.r) AS other {LEFT}")
    assert counters.values == ("s.x",)
    assert counters.aggregates[0].counter == "the number of rows in which s.x is not NULL"
    assert counters.aggregates[1].counter == "the number of rows with s"


def test_counts_need_no_counter_of_theirs() -> None:
    counters = _counters(f"SELECT r.x, count(*) AS n, count(s.x) AS m {LEFT}")
    assert counters.aggregates == ()
    assert str(counters) == "a group counts its rows and those with s"


def test_an_expression_is_counted_as_it_is() -> None:
    counters = _counters(f"SELECT r.x, sum(r.id + s.id) AS total {LEFT}")
    assert counters.values == ("(r.id + s.id)",)


def test_secondary_deltas_never_come_from_a_view_that_aggregates() -> None:
    """Rows of different terms in one group cannot be separated, whatever the group shows."""
    form = normal_form(block(f"SELECT r.id, s.id AS s {LEFT.split('GROUP')[0]}", LETTERS).block)
    deltas = secondary_deltas(form, maintenance_graph(form, "s"), "deletion", exposed=())
    assert [delta.reads for delta in deltas] == [("s",)]
