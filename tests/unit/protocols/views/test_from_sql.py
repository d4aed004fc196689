"""Views from SQL: how texts are understood, and refusals with place and reason."""

import pytest

from protocols.algebra.expressions import (
    And,
    Call,
    Column,
    Comparison,
    In,
    IsNull,
    IsTrue,
    Literal,
    Not,
    Or,
    columns_of,
)
from protocols.algebra.types import column_type
from protocols.errors import ViewRefused
from protocols.views.catalog import catalog_from_json
from protocols.views.sql import parse_view
from protocols.views.view import Link, View

BIGINT = column_type("BIGINT")
CATALOG = catalog_from_json(
    {
        "shop": {
            "relations": {
                "orders": {
                    "columns": {
                        "id": "BIGINT",
                        "customer": "BIGINT",
                        "day": "DATE",
                        "price": "DECIMAL(8,2)",
                        "paid": "BOOLEAN",
                    },
                    "key": ["id"],
                },
                "lines": {
                    "columns": {"id": "BIGINT", "no": "BIGINT", "item": "VARCHAR"},
                    "key": ["id", "no"],
                },
            }
        },
        "crm": {
            "relations": {
                "customers": {
                    "columns": {"customer": "BIGINT", "name": "VARCHAR", "boss": "BIGINT"},
                    "key": ["customer"],
                }
            }
        },
    }
)
ORDERS = "FROM shop.orders o"
BOTH = "FROM shop.orders o JOIN crm.customers c ON o.customer = c.customer"


def _view(sql: str) -> View:
    view = parse_view("v", sql, CATALOG)
    assert isinstance(view, View)
    return view


def _comparison(left: str, op: str, value: object) -> Comparison:
    return Comparison(Column(left), op, Literal(value, BIGINT))


def test_equalities_become_links_and_the_rest_conditions_or_residuals() -> None:
    view = _view(f"SELECT o.id, name {BOTH} WHERE o.id > 5 AND (o.id < boss OR boss IS NULL)")
    assert view.links == (Link((0, "customer"), (1, "customer")),)
    assert [atom.condition for atom in view.atoms] == [_comparison("id", ">", 5), None]
    either = Or((Comparison(Column("o.id"), "<", Column("c.boss")), IsNull(Column("c.boss"))))
    assert view.residuals == (either,)
    assert view.projection == (("id", "o.id"), ("name", "c.name"))
    assert view.sources == ("shop", "crm")


def test_an_atom_has_the_columns_that_are_shown_linked_or_in_residuals() -> None:
    view = _view(f"SELECT name {BOTH} WHERE day = '2024-01-31' AND o.id <> boss")
    assert [atom.columns for atom in view.atoms] == [
        ("id", "customer"),
        ("customer", "name", "boss"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "FROM shop.orders o, crm.customers c WHERE o.customer = c.customer AND o.id > 5",
        "FROM shop.orders o JOIN crm.customers c ON o.customer = c.customer AND o.id > 5",
        "FROM shop.orders o INNER JOIN crm.customers c ON o.id > 5 WHERE o.customer = c.customer",
        "FROM shop.orders o CROSS JOIN crm.customers c WHERE (o.customer=c.customer AND o.id>5)",
        "FROM shop.orders o JOIN crm.customers c USING (customer) WHERE 5 < o.id",
        "from SHOP.Orders O join CRM.customers C on o.CUSTOMER = c.customer where o.ID > 5",
    ],
)
def test_comma_on_using_and_cross_mean_the_same(text: str) -> None:
    view = _view(f"SELECT o.id, c.name AS who {text}")
    assert view.links == (Link((0, "customer"), (1, "customer")),)
    assert view.residuals == ()
    assert view.atoms[0].condition in (
        _comparison("id", ">", 5),
        Comparison(Literal(5, BIGINT), "<", Column("id")),
    )
    assert [output.name for output in view.outputs] == ["id", "who"]


def test_using_makes_two_columns_one_that_needs_no_alias() -> None:
    view = _view("SELECT customer, name FROM shop.orders JOIN crm.customers USING (customer)")
    assert view.projection == (("customer", "orders.customer"), ("name", "customers.name"))


def test_using_twice_links_to_the_column_that_stands_for_both() -> None:
    view = _view(
        "SELECT id FROM shop.lines JOIN shop.orders USING (id) JOIN crm.customers USING (customer)"
    )
    assert view.links == (Link((0, "id"), (1, "id")), Link((1, "customer"), (2, "customer")))


def test_a_self_join_has_two_atoms_of_one_relation() -> None:
    view = _view(
        "SELECT a.name, b.name AS boss FROM crm.customers a, crm.customers b "
        "WHERE a.boss = b.customer"
    )
    assert [atom.alias for atom in view.atoms] == ["a", "b"]
    assert len(view.relations) == 1
    assert view.atoms[0].columns == ("name", "boss")
    assert view.atoms[1].columns == ("customer", "name")


def test_names_of_atoms_differ_by_more_than_case() -> None:
    view = _view(
        "SELECT A.id, t.name FROM shop.orders A,"
        " (SELECT customer, name FROM crm.customers a) t WHERE A.customer = t.customer"
    )
    assert [atom.alias for atom in view.atoms] == ["A", "a_2"]


def test_a_star_expands_to_all_columns_in_order() -> None:
    view = _view("SELECT * FROM crm.customers")
    assert [output.name for output in view.outputs] == ["customer", "name", "boss"]
    view = _view(f"SELECT c.*, o.id {BOTH}")
    assert [output.name for output in view.outputs] == ["customer", "name", "boss", "id"]


def test_a_star_has_what_using_merged_once() -> None:
    view = _view("SELECT * FROM shop.lines JOIN shop.orders USING (id)")
    assert list(view.schema) == ["id", "no", "item", "customer", "day", "price", "paid"]


def test_a_composite_link_is_two_links() -> None:
    view = _view(
        "SELECT a.item, b.item AS other FROM shop.lines a JOIN shop.lines b USING (id, no)"
    )
    assert view.links == (Link((0, "id"), (1, "id")), Link((0, "no"), (1, "no")))


def test_literals_have_the_type_of_the_column_they_are_compared_with() -> None:
    view = _view(
        f"SELECT id {ORDERS} WHERE price >= 1.5 AND day < DATE '2024-02-29' AND paid AND id = -1"
    )
    condition = view.atoms[0].condition
    assert isinstance(condition, And)
    values = [part.right.value for part in condition.parts]  # type: ignore[union-attr]
    assert [str(value) for value in values] == ["1.50", "2024-02-29", "True", "-1"]


def test_between_is_built_from_comparisons_and_in_is_one_test() -> None:
    view = _view(f"SELECT id {ORDERS} WHERE id BETWEEN 1 AND 3 AND NOT id IN (2, 9)")
    between = _comparison("id", ">=", 1), _comparison("id", "<=", 3)
    without = Not(In(Column("id"), (2, 9), BIGINT))
    assert view.atoms[0].condition == And((*between, without))


def test_each_half_of_a_between_is_tested_as_early_as_it_can_be() -> None:
    view = _view(f"SELECT o.id {BOTH} WHERE boss BETWEEN 1 AND o.id")
    assert view.atoms[1].condition == _comparison("boss", ">=", 1)
    assert view.residuals == (Comparison(Column("c.boss"), "<=", Column("o.id")),)


def test_relations_keep_the_order_of_from_whatever_links_them_first() -> None:
    view = _view(
        "SELECT l.item FROM crm.customers c, shop.lines l, shop.orders o"
        " WHERE l.id = o.id AND o.customer = c.customer"
    )
    assert [(atom.index, atom.alias) for atom in view.atoms] == [(0, "c"), (1, "l"), (2, "o")]
    assert view.links == (Link((1, "id"), (2, "id")), Link((2, "customer"), (0, "customer")))


def test_conditions_with_expressions_are_sorted_by_the_relations_they_are_about() -> None:
    view = _view(f"SELECT o.id {BOTH} WHERE o.id + 1 = boss AND o.id * 2 > 6 AND 1 + 1 = o.id")
    assert view.links == (Link((0, "customer"), (1, "customer")),)
    plus = Call("+", (Column("o.id"), Literal(1, BIGINT)), BIGINT)
    assert view.residuals == (Comparison(plus, "=", Column("c.boss")),)
    assert view.atoms[0].condition is not None
    assert columns_of(view.atoms[0].condition) == {"id"}
    assert view.atoms[0].columns == ("id", "customer")
    assert view.atoms[1].condition is None


def test_a_link_in_every_arm_of_an_or_is_a_link() -> None:
    view = _view(
        "SELECT o.id FROM shop.orders o, crm.customers c WHERE (o.customer = c.customer AND paid)"
        " OR (c.boss = 3 AND C.customer = o.Customer) OR o.customer = c.customer AND c.boss = 4"
    )
    assert view.links == (Link((0, "customer"), (1, "customer")),)
    assert len(view.residuals) == 1
    view = _view(
        f"SELECT o.id {ORDERS} JOIN crm.customers c ON (o.customer = c.customer AND paid)"
        " OR o.customer = c.customer"
    )
    assert view.links == (Link((0, "customer"), (1, "customer")),)
    assert view.residuals == ()


def test_rows_in_a_list_are_compared_value_by_value() -> None:
    view = _view("SELECT id FROM shop.lines WHERE (id, no) IN ((1, 2), (3, 4))")
    pairs = [
        And((_comparison("id", "=", a), _comparison("no", "=", b))) for a, b in [(1, 2), (3, 4)]
    ]
    assert view.atoms[0].condition == Or(tuple(pairs))


def test_a_condition_without_columns_is_one_of_the_first_relation() -> None:
    view = _view(f"SELECT o.id {BOTH} WHERE false")
    assert view.atoms[0].condition == IsTrue(Literal(False, column_type("BOOLEAN")))
    assert view.residuals == ()


def test_an_equality_of_two_types_is_no_link() -> None:
    view = _view(f"SELECT o.id {BOTH} AND price = boss")
    assert len(view.links) == 1
    assert len(view.residuals) == 1


REFUSED = [
    ("", 1, 1, "no SELECT"),
    ("SELECT id FROM", 1, 11, "not SQL"),
    ("SELECT id FROM shop.orders WHERE item = 'x", 1, 41, "unterminated"),
    ("SELECT id FROM shop.orders; SELECT 1", 1, 29, "second statement"),
    ("DELETE FROM shop.orders", 1, 1, "this is DELETE"),
    ("SELECT 1", 1, 8, "names no relation, so it would never change"),
    ("SELECT id FROM shop.orders ORDER BY id", 1, 37, "ORDER BY is not"),
    ("SELECT id FROM shop.orders LIMIT 3", 1, 34, "LIMIT is not"),
    ("SELECT id FROM orders", 1, 16, r"write relations as source\.relation"),
    ("SELECT id FROM x.shop.orders", 1, 16, r"write relations as source\.relation"),
    ("SELECT id\nFROM shop.order", 2, 6, r"there is no relation shop\.order;.*shop\.orders"),
    ("SELECT id FROM (SELECT 1) t", 1, 8, "no relation in FROM has a column 'id'"),
    ("SELECT nix FROM shop.orders", 1, 8, "no relation in FROM has a column 'nix'"),
    ("SELECT o.nix FROM shop.orders o", 1, 8, "o has no column 'nix'; it has: id"),
    ("SELECT x.id FROM shop.orders o", 1, 8, "'x' is not in FROM; there are: o"),
    (f"SELECT customer {BOTH}", 1, 8, r"ambiguous: write o\.customer or c\.customer"),
    (f"SELECT * {BOTH}", 1, 8, "two columns are called 'customer'"),
    ("SELECT id AS _id FROM shop.orders", 1, 8, "leading _ are reserved"),
    ("SELECT 1 FROM shop.lines JOIN shop.lines USING (id)", 1, 31, "'lines' occurs twice"),
    ("SELECT item FROM shop.lines, crm.customers", 1, 30, "no column equality joins"),
    (
        "SELECT item FROM shop.lines l, crm.customers c WHERE l.id < c.customer",
        1,
        32,
        "no column equality joins",
    ),
    ("SELECT id FROM shop.lines JOIN crm.customers USING (id)", 1, 53, "each side must have it"),
    ("SELECT id FROM shop.lines JOIN crm.customers ON item = boss", 1, 49, "VARCHAR and BIGINT"),
    ("SELECT id FROM shop.orders WHERE id = 'five'", 1, 39, "'five' is not a BIGINT"),
    ("SELECT id FROM shop.orders WHERE id = '1.5'", 1, 39, r"'1\.5' is not a BIGINT"),
    ("SELECT id FROM shop.orders WHERE day = 5", 1, 40, "5 is not a DATE"),
    ("SELECT id FROM shop.orders WHERE '1' = 1", 1, 34, "VARCHAR and BIGINT; cast one of them"),
    ("SELECT id FROM shop.orders WHERE id = customer / 2", 1, 39, "cast one side to DOUBLE"),
]


@pytest.mark.parametrize(("sql", "line", "column", "reason"), REFUSED)
def test_refused_with_place_and_reason(sql: str, line: int, column: int, reason: str) -> None:
    with pytest.raises(ViewRefused, match=reason) as refused:
        _view(sql)
    assert (refused.value.line, refused.value.column) == (line, column), refused.value
    assert str(refused.value).startswith(f"line {line}, column {column}: ")
