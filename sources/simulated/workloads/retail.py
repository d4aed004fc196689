"""A shop: customers at `crm`, orders at `sales`, products at `stock`.

Few customers and products have most of the orders, so a new price or segment of one of them changes
many rows of the view at once. A guest's order has no customer.

The view `catalogue` includes customers without orders and products that were never ordered: it has
the shape of view V3 of Larson and Zhou (ICDE 2007, section 7).
"""

from collections.abc import Sequence
from datetime import date, datetime, timedelta

from protocols.views.catalog import relation_from_json
from sources.simulated.workloads.dice import Dice, money
from sources.simulated.workloads.stream import Row, Table, Workload

CUSTOMERS = relation_from_json(
    "crm",
    "customers",
    {
        "columns": {
            "id": "BIGINT",
            "name": "VARCHAR",
            "segment": "VARCHAR",
            "since": "DATE",
            "newsletter": "BOOLEAN",
        },
        "key": ["id"],
    },
)
ORDERS = relation_from_json(
    "sales",
    "orders",
    {
        "columns": {
            "id": "BIGINT",
            "customer_id": "BIGINT",
            "product_id": "BIGINT",
            "quantity": "BIGINT",
            "amount": "DECIMAL(12,2)",
            "placed_at": "TIMESTAMP",
        },
        "key": ["id"],
    },
)
PRODUCTS = relation_from_json(
    "stock",
    "products",
    {
        "columns": {
            "id": "BIGINT",
            "name": "VARCHAR",
            "category": "VARCHAR",
            "price": "DECIMAL(10,2)",
            "available": "BOOLEAN",
        },
        "key": ["id"],
    },
)
VIEW = """\
SELECT o.id AS order_id, c.id AS customer_id, p.id AS product_id,
       c.name AS customer, c.segment, p.name AS product, p.price, o.quantity, o.amount
FROM sales.orders o
JOIN crm.customers c ON o.customer_id = c.id
JOIN stock.products p ON o.product_id = p.id
WHERE o.quantity >= 2
"""
CATALOGUE = """\
SELECT c.id AS customer_id, o.id AS order_id, p.id AS product_id,
       c.name AS customer, c.segment, o.quantity, o.amount, p.name AS product, p.price
FROM (SELECT * FROM sales.orders WHERE quantity >= 2) o
RIGHT OUTER JOIN crm.customers c ON o.customer_id = c.id
FULL OUTER JOIN stock.products p ON o.product_id = p.id AND p.price < 300
"""

_SEGMENTS = ("private", "business", "public", "partner")
_CATEGORIES = ("books", "garden", "kitchen", "music", "toys", "tools")
_FIRST_NAMES = ("Ada", "Bruno", "Chloé", "Dmitri", "Eun-ji", "Fatima", "Göran", "Hiro", "Inés")
_LAST_NAMES = ("Abe", "Brown", "Costa", "Dubois", "Eriksson", "Fischer", "García", "Hansen")
_THINGS = ("atlas", "bell", "chair", "drum", "easel", "flute", "globe", "hammer", "inkwell")
_OPENING = datetime(2024, 1, 1, 8, 0, 0)
_MOST_PIECES = 9
_DEAREST = 50_000


def _customers(scale: int) -> int:
    return scale


def _orders(scale: int) -> int:
    return 3 * scale


def _products(scale: int) -> int:
    return max(scale // 4, 5)


def _new_customers(dice: Dice, _scale: int, ids: Sequence[int]) -> list[Row]:
    return [
        (
            each,
            f"{dice.pick(_FIRST_NAMES)} {dice.pick(_LAST_NAMES)}",
            dice.pick(_SEGMENTS),
            date(2010, 1, 1) + timedelta(days=dice.below(5000)),
            dice.chance(0.4),
        )
        for each in ids
    ]


def _changed_customers(dice: Dice, _scale: int, rows: Sequence[Row]) -> list[Row]:
    """Moves all to one segment; customers already in it toggle the newsletter instead."""
    segment = dice.other(_SEGMENTS, rows[0][2])
    return [
        (each, name, segment, since, newsletter if old != segment else not newsletter)
        for each, name, old, since, newsletter in rows
    ]


def _new_orders(dice: Dice, scale: int, ids: Sequence[int]) -> list[Row]:
    """Several orders at once are the basket of one customer."""
    customer = _linked_customer(dice, scale)
    return [_new_order(dice, scale, each, customer) for each in ids]


def _new_order(dice: Dice, scale: int, order: int, customer: int | None) -> Row:
    quantity = 1 + dice.skewed_below(_MOST_PIECES)
    return (
        order,
        customer,
        1 + dice.skewed_below(_with_some_to_come(_products(scale))),
        quantity,
        money(quantity * (100 + dice.below(_DEAREST))),
        _OPENING + timedelta(seconds=37 * order, milliseconds=dice.below(1000)),
    )


def _changed_orders(dice: Dice, scale: int, rows: Sequence[Row]) -> list[Row]:
    """Changes the quantity, and sometimes the customer."""
    changed = []
    for order, customer, product, quantity, amount, placed_at in rows:
        pieces = 1 + (quantity + dice.below(_MOST_PIECES - 1)) % _MOST_PIECES
        buyer = _linked_customer(dice, scale) if dice.chance(0.1) else customer
        cents = int(amount * 100) // quantity * pieces
        changed.append((order, buyer, product, pieces, money(cents), placed_at))
    return changed


def _linked_customer(dice: Dice, scale: int) -> int | None:
    if dice.chance(0.04):
        return None
    return 1 + dice.skewed_below(_with_some_to_come(_customers(scale)))


def _with_some_to_come(size: int) -> int:
    return size + size // 20 + 1


def _new_products(dice: Dice, _scale: int, ids: Sequence[int]) -> list[Row]:
    return [
        (
            each,
            f"{dice.pick(_THINGS)} {each}",
            dice.pick(_CATEGORIES),
            dice.cents(100, _DEAREST),
            dice.chance(0.9),
        )
        for each in ids
    ]


def _changed_products(dice: Dice, _scale: int, rows: Sequence[Row]) -> list[Row]:
    """Changes the price; some products sell out or become available again."""
    changed = []
    for each, name, category, price, available in rows:
        cents = int(price * 100)
        dearer = cents + 1 + dice.below(500)
        new_price = money(dearer if dearer < _DEAREST else cents // 2)
        back = not available if dice.chance(0.2) else available
        changed.append((each, name, category, new_price, back))
    return changed


RETAIL = Workload(
    name="retail",
    view=VIEW,
    further={"catalogue": CATALOGUE},
    tables={
        "crm": (Table(CUSTOMERS, _customers, _new_customers, _changed_customers),),
        "sales": (Table(ORDERS, _orders, _new_orders, _changed_orders),),
        "stock": (Table(PRODUCTS, _products, _new_products, _changed_products),),
    },
)
