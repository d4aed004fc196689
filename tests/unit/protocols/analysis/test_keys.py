"""The columns of a view that determine a row, through joins, groups and unions."""

import pytest

from protocols.analysis.keys import ViewKeys, keys_of
from protocols.views.catalog import catalog_from_json
from protocols.views.sql import parse_view

CATALOG = catalog_from_json(
    {
        "shop": {
            "relations": {
                "orders": {
                    "columns": {"id": "BIGINT", "customer": "BIGINT", "day": "BIGINT"},
                    "key": ["id"],
                },
                "lines": {
                    "columns": {"id": "BIGINT", "no": "BIGINT", "item": "BIGINT"},
                    "key": ["id", "no"],
                },
                "customers": {
                    "columns": {"customer": "BIGINT", "boss": "BIGINT", "city": "BIGINT"},
                    "key": ["customer"],
                },
                "visits": {"columns": {"customer": "BIGINT", "day": "BIGINT"}},
            }
        },
        "bank": {
            "relations": {
                side: {
                    "columns": {"id": "BIGINT", "account": "BIGINT", "amount": "BIGINT"},
                    "key": ["id"],
                }
                for side in ("credits", "debits")
            }
        },
    }
)


def _keys(sql: str) -> ViewKeys:
    return keys_of(parse_view("v", sql, CATALOG))


def _sum(side: str, where: str = "WHERE account IS NOT NULL") -> str:
    return f"(SELECT account, sum(amount) AS total FROM bank.{side} {where} GROUP BY account)"


CASES = [
    # A relation has its own key; a bag has none.
    ("SELECT id, no, item FROM shop.lines", [("id", "no")]),
    ("SELECT customer, day FROM shop.visits", []),
    ("SELECT item FROM shop.lines", []),
    # A constant need not be shown.
    ("SELECT no, item FROM shop.lines WHERE id = 5", [("no",)]),
    ("SELECT item FROM shop.lines WHERE id = 5 AND no = 1", [()]),
    # Equalities transfer keys: from the many side to the one, and under another name.
    ("SELECT o.id, city FROM shop.orders o JOIN shop.customers c USING (customer)", [("id",)]),
    (
        "SELECT l.id, o.id AS o, no FROM shop.lines l JOIN shop.orders o ON l.id = o.id",
        [("id", "no"), ("o", "no")],
    ),
    (
        "SELECT a.customer AS a, b.customer AS b"
        " FROM shop.customers a JOIN shop.customers b ON a.city = b.city",
        [("a", "b")],
    ),
    # A left join to at most one row needs the left key only; to many, both.
    ("SELECT o.id, city FROM shop.orders o LEFT JOIN shop.customers c USING (customer)", [("id",)]),
    (
        "SELECT o.id, no FROM shop.orders o LEFT JOIN shop.lines l ON l.id = o.id",
        [("id", "no")],
    ),
    ("SELECT o.id, item FROM shop.orders o LEFT JOIN shop.lines l ON l.id = o.id", []),
    (
        "SELECT o.id, item FROM shop.orders o"
        " LEFT JOIN (SELECT * FROM shop.lines WHERE no = 1) l ON l.id = o.id",
        [("id",)],
    ),
    # The key of the padded side determines it, but not the rows of the other side.
    (
        "SELECT l.id, l.no, c.customer FROM shop.customers c"
        " LEFT JOIN (shop.orders o JOIN shop.lines l ON l.id = o.id) ON o.customer = c.customer",
        [("id", "no", "customer")],
    ),
    # Both keys of a full join, or their COALESCE if the join equates them and neither is NULL.
    (
        "SELECT o.id, c.customer FROM shop.orders o"
        " FULL JOIN shop.customers c ON o.customer = c.customer",
        [("id", "customer")],
    ),
    (
        "SELECT COALESCE(c.account, d.account) AS account, c.total, d.total AS minus"
        f" FROM {_sum('credits')} c FULL JOIN {_sum('debits')} d ON c.account = d.account",
        [("account",)],
    ),
    (
        "SELECT account, c.total, d.total AS minus"
        f" FROM {_sum('credits')} c FULL JOIN {_sum('debits')} d USING (account)",
        [("account",)],
    ),
    (
        "SELECT COALESCE(d.account, c.account) AS account, c.account AS other"
        f" FROM {_sum('credits')} c FULL JOIN {_sum('debits')} d ON c.account = d.account"
        " AND c.total <> d.total",
        [],
    ),
    (
        # A NULL account has credits and debits in two rows, both with NULL in the first column.
        "SELECT COALESCE(c.account, d.account) AS account"
        f" FROM {_sum('credits', '')} c FULL JOIN {_sum('debits', '')} d ON c.account = d.account",
        [],
    ),
    # A constant below a padding join is sometimes NULL.
    (
        "SELECT DISTINCT l.item FROM shop.orders o"
        " LEFT JOIN (SELECT * FROM shop.lines WHERE item = 5) l ON l.id = o.id",
        [("item",)],
    ),
    (
        "SELECT DISTINCT l.item FROM shop.orders o"
        " FULL JOIN (SELECT * FROM shop.lines WHERE item = 5) l ON l.id = o.id",
        [("item",)],
    ),
    # The group of visits without a customer has NULL first, like a row without a group.
    (
        "SELECT DISTINCT v.customer, v.n FROM shop.orders o LEFT JOIN"
        " (SELECT customer, count(*) AS n FROM shop.visits GROUP BY customer) v ON v.n = o.day",
        [("customer", "n")],
    ),
    (
        "SELECT DISTINCT v.customer, v.n FROM shop.orders o LEFT JOIN"
        " (SELECT customer, count(*) AS n FROM shop.visits WHERE customer > 0 GROUP BY customer) v"
        " ON v.n = o.day",
        [("customer",)],
    ),
    # Groups: their keys, less columns that others determine; none for a group over everything.
    ("SELECT customer, count(*) AS n FROM shop.visits GROUP BY customer", [("customer",)]),
    ("SELECT DISTINCT customer, day FROM shop.visits", [("customer", "day")]),
    (
        "SELECT o.id, o.day, count(*) AS n FROM shop.orders o JOIN shop.lines l ON l.id = o.id"
        " GROUP BY o.id, o.day",
        [("id",)],
    ),
    ("SELECT count(*) AS n FROM shop.visits", [()]),
    (
        "SELECT c.customer, v.n FROM shop.customers c LEFT JOIN"
        " (SELECT customer, count(*) AS n FROM shop.visits GROUP BY customer) v"
        " ON v.customer = c.customer",
        [("customer",)],
    ),
    # UNION ALL repeats rows, UNION does not.
    ("SELECT id FROM shop.orders UNION ALL SELECT id FROM shop.lines", []),
    ("SELECT id FROM shop.orders UNION SELECT id FROM shop.lines", [("id",)]),
    ("SELECT id FROM shop.orders EXCEPT SELECT id FROM shop.lines", [("id",)]),
    # A condition on other rows adds none.
    (
        "SELECT id FROM shop.orders o WHERE EXISTS (SELECT 1 FROM shop.lines l WHERE l.id = o.id)",
        [("id",)],
    ),
    # A value computed from the key does not determine it.
    ("SELECT id + 1 AS next FROM shop.orders", []),
    ("SELECT id, id + day AS later FROM shop.orders", [("id",)]),
]


@pytest.mark.parametrize(("sql", "keys"), CASES)
def test_the_keys_of_a_view(sql: str, keys: list[tuple[str, ...]]) -> None:
    assert list(_keys(sql).keys) == keys


def test_what_is_missing_for_a_key_is_named() -> None:
    keys = _keys("SELECT o.id, item FROM shop.orders o LEFT JOIN shop.lines l ON l.id = o.id")
    assert keys.missing == ("l.no",), "l.id equals o.id or is NULL"
    assert (
        str(keys) == "none found, so rows may repeat; with l.no in the select list they would not"
    )


def test_a_bag_has_no_key_whatever_is_shown() -> None:
    keys = _keys("SELECT o.id FROM shop.orders o JOIN shop.visits v ON o.customer = v.customer")
    assert keys == ViewKeys(())
    assert (
        str(keys) == "none found, so rows may repeat; no column of the relations would prevent it"
    )


def test_keys_print_as_sentences() -> None:
    assert str(_keys("SELECT id, no FROM shop.lines")) == "id and no determine a row"
    assert str(_keys("SELECT count(*) AS n FROM shop.lines")) == "there is at most one row"
