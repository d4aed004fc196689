"""The parts of the page of `explain` besides the numbers: tree, memories, warnings, advice."""

import pytest

from protocols.explaining.constructs import CATALOG
from protocols.explaining.explanation import Explanation, explain
from protocols.explaining.page import page


def explained(sql: str) -> Explanation:
    """Explains a view over the customers and orders of the README's table."""
    return explain("view", sql, CATALOG)


def test_the_tree_reads_like_the_sql() -> None:
    found = explained(
        "SELECT c.name, COUNT(*) AS n FROM crm.customers c LEFT JOIN sales.orders o"
        " ON o.customer = c.id AND o.amount > 5 GROUP BY c.name HAVING COUNT(*) > 2"
    )
    assert found.picture.lines() == [
        "select name, count AS n",
        "└─ where count > 2",
        "   └─ group by c.name: COUNT(*) AS count",
        "      └─ left join on c.id = o.customer",
        "         ├─ crm.customers c (id, name)",
        "         └─ sales.orders o (customer) where amount > 5.00",
    ]


@pytest.mark.parametrize("kind", ["JOIN", "FULL JOIN"])
def test_an_alternative_beside_an_equality_stands_in_brackets(kind: str) -> None:
    on = "c.id = o.customer AND (o.amount > 5.00 OR c.name = 'x')"
    found = explained(f"SELECT c.name, o.amount FROM crm.customers c {kind} sales.orders o ON {on}")
    assert f"└─ {kind.lower()} on {on}" in found.picture.lines()


def test_an_inner_join_is_one_leaf_with_its_relations_below() -> None:
    found = explained(
        "SELECT o.id, c.name FROM crm.customers c, sales.orders o WHERE o.customer = c.id"
    )
    assert found.picture.lines() == [
        "select id, name",
        "└─ join on o.customer = c.id",
        "   ├─ crm.customers c (id, name)",
        "   └─ sales.orders o (id, customer)",
    ]
    assert not found.memories
    assert "\nRemembered\n" not in page(found)


# -- memories --------------------------------------------------------------------------------------


def test_groups_that_the_view_shows_are_of_its_order() -> None:
    (memory,) = explained(
        "SELECT customer, SUM(amount) AS s FROM sales.orders GROUP BY customer"
    ).memories
    assert memory.of_the_view
    assert list(map(str, memory.refilled)) == ["sales.orders by (customer)"]


def test_groups_that_having_hides_are_not() -> None:
    (memory,) = explained(
        "SELECT customer FROM sales.orders GROUP BY customer HAVING SUM(amount) > 5"
    ).memories
    assert not memory.of_the_view
    assert "shown by the view or not" in str(memory)


def test_different_values_cannot_be_remembered() -> None:
    found = explained(
        "SELECT customer, COUNT(DISTINCT placed) AS d, COUNT(DISTINCT amount) AS a"
        " FROM sales.orders GROUP BY customer"
    )
    assert found.memories[0].holds is None
    assert any("with SELECT DISTINCT" in each for each in found.advice)


def test_the_advice_about_different_values_is_true() -> None:
    better = explained(
        "SELECT customer, COUNT(placed) AS d"
        " FROM (SELECT DISTINCT customer, placed FROM sales.orders) x GROUP BY customer"
    )
    (orders,) = better.costs.relations
    assert [cost.numbers[1] for cost in orders.kinds.values()] == [0, 0, 0]


# -- advice ----------------------------------------------------------------------------------------


def test_the_key_that_is_missing_is_named() -> None:
    found = explained("SELECT c.name FROM crm.customers c JOIN sales.orders o ON o.customer = c.id")
    (advised,) = (each for each in found.advice if each.startswith("add "))
    assert "o.id" in advised
    better = explained(
        "SELECT c.name, c.id, o.id AS order_id FROM crm.customers c"
        " JOIN sales.orders o ON o.customer = c.id"
    )
    assert not any(each.startswith("add ") for each in better.advice)


def test_computed_groups_are_warned_of() -> None:
    found = explained(
        "SELECT n, COUNT(*) AS c FROM (SELECT LOWER(name) AS n FROM crm.customers) x GROUP BY n"
    )
    assert any("crm.customers whole" in each for each in found.advice)
    assert "! reads crm.customers whole, unless remembered" in page(found)


def test_what_is_read_whole_once_and_what_every_time_are_both_named() -> None:
    """An order may insert or delete every customer; the existing orders are remembered."""
    found = page(
        explained(
            "SELECT id FROM crm.customers WHERE id NOT IN (SELECT customer FROM sales.orders)"
        )
    )
    of_orders = found[found.index("\n  sales.orders\n") :]
    assert "! reads crm.customers whole, every time" in of_orders
    assert "! reads sales.orders whole, unless remembered" in of_orders


def test_an_index_is_advised_for_what_is_asked_by() -> None:
    found = explained(
        "SELECT c.name, o.id FROM crm.customers c, sales.orders o WHERE o.customer = c.id"
    )
    indexes = [each for each in found.advice if each.startswith("an index")]
    assert any("sources index sales.db --on orders=customer" in each for each in indexes)
    assert any("sources index crm.db --on customers=id" in each for each in indexes)


def test_an_index_that_is_there_is_not_advised() -> None:
    sql = "SELECT c.name, o.id FROM crm.customers c, sales.orders o WHERE o.customer = c.id"
    indexed = {"sales": {"orders": ["customer"]}}
    found = explain("v", sql, CATALOG, indexed)
    indexes = [each for each in found.advice if each.startswith("an index")]
    assert not any("sales.db" in each for each in indexes)
    assert any("crm.db" in each for each in indexes)


# -- protocols -------------------------------------------------------------------------------------


def test_only_those_who_can_are_named_and_no_control() -> None:
    plain = explained("SELECT id FROM sales.orders")
    grouped = explained("SELECT DISTINCT customer FROM sales.orders")
    names = {entry.name for entry in plain.protocols}
    assert {"nested-sweep", "strobe", "eca"} <= names
    assert "naive" not in names
    assert [entry.name for entry in grouped.protocols] == ["sweep", "batched-sweep"]


def test_outer_joins_that_only_the_tree_has_are_not_told_as_such() -> None:
    hidden = "SELECT id FROM crm.customers WHERE id NOT IN (SELECT customer FROM sales.orders)"
    said = "SELECT c.id FROM crm.customers c LEFT JOIN sales.orders o ON o.customer = c.id"
    assert not explained(hidden).outer_joins
    assert explained(said).outer_joins


@pytest.mark.parametrize(
    ("tail", "never_padded"),
    [
        ("LEFT JOIN sales.orders O ON o.customer = c.id WHERE o.amount > 3", ("O",)),
        ("LEFT JOIN sales.orders o ON o.customer = c.id AND o.amount > 3", ()),
        ("LEFT JOIN sales.orders o ON o.customer = c.id WHERE o.amount > 3 OR c.id > 1", ()),
        ("LEFT JOIN sales.orders o ON o.customer = c.id WHERE o.amount IS NULL", ()),
        ("FULL JOIN sales.orders o ON o.customer = c.id WHERE o.id > 3 AND c.id > 3", ("c", "o")),
        ("FULL JOIN sales.orders o ON o.customer = c.id WHERE o.id > 3", ("o",)),
        ("RIGHT JOIN sales.orders o ON o.customer = c.id WHERE c.id > 3", ("c",)),
        # NULL-rejecting tests of a computed value ask for a partner.
        (
            "LEFT JOIN sales.orders o ON o.customer = c.id WHERE CASE WHEN o.id > 1 THEN TRUE END",
            "o",
        ),
        # The scalar subquery is an outer join in the tree, although not in the text.
        (
            "LEFT JOIN sales.orders o ON o.customer = c.id WHERE"
            " (SELECT MAX(x.amount) FROM sales.orders x WHERE x.customer = c.id) > 5",
            (),
        ),
    ],
)
def test_an_outer_join_whose_padding_nobody_sees_is_named(
    tail: str, never_padded: tuple[str, ...]
) -> None:
    found = explained(f"SELECT c.id, o.id AS o FROM crm.customers c {tail}")
    assert found.never_padded == tuple(never_padded)
    assert ("are never seen: a condition drops" in page(found)) == bool(never_padded)
    assert found.to_json()["never_padded"] == list(never_padded)


def test_a_block_without_a_normal_form_says_why() -> None:
    found = explained(
        "SELECT c.id FROM crm.customers c LEFT JOIN sales.orders o ON o.customer = c.id"
        " WHERE o.id IS NULL"
    )
    assert "o.id IS NULL can hold for rows" in " ".join(page(found).split())
