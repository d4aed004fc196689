"""Secondary deltas: Examples 6 to 9 of Larson and Zhou, and the columns that a view needs."""

import pytest

from protocols.analysis.maintenancegraph import maintenance_graph
from protocols.analysis.normalform import normal_form
from protocols.analysis.secondarydelta import SecondaryDelta, UpdateKind, secondary_deltas
from tests.cases.paper_views import LETTERS, OJ_VIEW, TPCH, V1, V2, block


def _deltas(sql: str, updated: str, update: UpdateKind) -> dict[str, SecondaryDelta]:
    named = block(sql, TPCH if "tpch." in sql else LETTERS)
    form = normal_form(named.block)
    found = secondary_deltas(form, maintenance_graph(form, updated), update, named.exposed)
    return {" ".join(each.term.aliases): each for each in found}


UPDATES: list[UpdateKind] = ["insertion", "deletion"]


@pytest.mark.parametrize("update", UPDATES)
def test_examples_6_and_7_an_update_of_t_makes_orphans_of_rs_and_r_from_the_view(
    update: UpdateKind,
) -> None:
    deltas = _deltas(V1, "t", update)
    assert list(deltas) == ["r s", "r"], "from large to small"
    assert [parent.name for parent in deltas["r s"].parents] == ["{r, s, t}"]
    assert [parent.name for parent in deltas["r"].parents] == ["{r, t}"]
    assert all(delta.from_view for delta in deltas.values())


@pytest.mark.parametrize("update", UPDATES)
def test_examples_8_and_9_rows_with_s_do_not_count_for_r_and_t_is_read(update: UpdateKind) -> None:
    """nn(TR) and n(S) in the examples; the formula above them writes nn of the term alone."""
    hidden = V1.replace("SELECT r.id AS r, s.id AS s,", "SELECT r.x AS r, s.x AS s,")
    deltas = _deltas(hidden, "t", update)
    assert deltas["r"].unless == ("s",)
    assert deltas["r s"].unless == ()
    assert deltas["r"].reads == deltas["r s"].reads == ("t",)
    assert deltas["r"].missing[0] == "r.id"


def test_what_the_view_lacks_is_named() -> None:
    hidden = V1.replace("r.id AS r, s.id AS s,", "r.x AS r, s.x AS s,")
    assert _deltas(hidden, "t", "deletion")["r s"].missing == ("r.id", "s.id")
    without_s = V1.replace("s.id AS s, ", "")
    assert _deltas(without_s, "t", "deletion")["r"].from_view
    for_insertion = _deltas(without_s, "t", "insertion")["r"]
    assert for_insertion.missing == ("s.id",)
    assert not for_insertion.from_view
    assert str(for_insertion) == (
        "orphans {r} that are part of a new row {r, t} leave the view; rows with s do not count: "
        "from t; with s.id in the select list the view would do"
    )


def test_after_an_insertion_terms_are_told_apart_by_any_column_that_is_only_null_when_padded() -> (
    None
):
    """s.r is joined on, so it is never NULL in {r, s}; s.x may be NULL there as well as in {r}."""
    view = "SELECT r.id, {} FROM db.r r FULL JOIN db.s s ON r.s = s.r"
    assert _deltas(view.format("s.r"), "s", "insertion")["r"].from_view
    by_x = _deltas(view.format("s.x"), "s", "insertion")["r"]
    assert by_x.missing == ("s.id",)


def test_a_key_that_an_equality_carries_over_need_not_be_shown() -> None:
    """l_orderkey equals o_orderkey, so orders and line number determine {o, l}."""
    view = OJ_VIEW.replace("SELECT p_partkey, p_name, p_retailprice,", "SELECT p_partkey,")
    assert "l_orderkey" not in view.split("FROM")[0]
    assert _deltas(view, "p", "insertion")["o l"].from_view


def test_example_1_the_orphans_of_a_new_lineitem_are_found_in_the_view() -> None:
    deltas = _deltas(OJ_VIEW, "l", "insertion")
    assert set(deltas) == {"p", "o"}
    assert all(delta.from_view for delta in deltas.values())
    assert str(deltas["p"]) == (
        "orphans {p} that are part of a new row {p, o, l} leave the view: from the view"
    )


def test_a_deleted_lineitem_of_v2_orphans_its_order_with_its_customer_and_not_alone() -> None:
    """The view of algorithms.md, 6a: read literally, Section 5.2 also inserts (-, o, -)."""
    deltas = _deltas(V2, "l", "deletion")
    assert list(deltas) == ["customer orders", "orders"]
    assert deltas["orders"].unless == ("customer",)


def test_without_a_key_no_column_helps() -> None:
    """A group is not a relation, so its keys are not known here."""
    bags = "(SELECT DISTINCT id, r FROM db.s)"
    view = f"SELECT r.id, s.id AS s FROM db.r r FULL JOIN {bags} s ON r.s = s.r"
    delta = _deltas(view, "δ(s)", "insertion")["r"]
    assert not delta.from_view
    assert delta.reads == ("δ(s)",)
    assert delta.missing == ()
