"""The relations of the databases under test, and random transactions over them."""

import datetime
import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import polars as pl

from protocols.exchange.holdback import GlobalPart
from protocols.views.catalog import Catalog, catalog_from_json
from sources.transaction import RowChange, Transaction

#: The name of every source under test.
NAME = "s"
Row = tuple[Any, ...]


@dataclass(frozen=True)
class Story:
    """A database at its beginning: its relations, and their rows."""

    catalog: Catalog
    rows: Mapping[str, tuple[Row, ...]]
    #: Relation → columns with an index.
    indexes: Mapping[str, tuple[str, ...]]

    def frame(self, relation: str) -> pl.DataFrame:
        """The rows of a relation."""
        found = self.catalog.find(NAME, relation)
        assert found is not None
        schema = {name: type_.dtype for name, type_ in found.columns}
        return pl.DataFrame(list(self.rows.get(relation, ())), schema=schema, orient="row")


_SHOPS = tuple((number, f"town {number % 2}", number) for number in range(1, 5))
_ITEMS = tuple((number, number % 4 + 1, f"item {number % 3}", number % 5) for number in range(1, 9))
_MARKS = tuple((number % 97, f"colour {number % 7}") for number in range(1, 401))


def _shops(marks: dict[str, Any]) -> Story:
    """A keyed relation that references another one, and marks."""
    relations = {
        "shops": {
            "columns": {"id": "BIGINT", "town": "VARCHAR", "number": "BIGINT"},
            "key": ["id"],
            "keys": [["town", "number"]],
        },
        "items": {
            "columns": {"id": "BIGINT", "shop": "BIGINT", "name": "VARCHAR", "price": "BIGINT"},
            "key": ["id"],
            "foreign_keys": [{"columns": ["shop"], "references": "shops", "mandatory": True}],
        },
        "marks": {"columns": {"item": "BIGINT", "colour": "VARCHAR"}, **marks},
    }
    return Story(
        catalog_from_json({NAME: {"relations": relations}}),
        {"shops": _SHOPS, "items": _ITEMS, "marks": _MARKS},
        {"items": ("shop",)},
    )


#: The marks are a bag: equal ones may be there several times.
SHOPS = _shops({})
#: The same with a key for the marks, for databases whose rows are told apart by keys.
KEYED_SHOPS = _shops({"key": ["item", "colour"]})


class Life:
    """Random transactions that fit the rows of a story; `first` begins the keys of its own items.

    Several lives with different keys may go on side by side.
    """

    def __init__(self, story: Story, seed: int, first: int = 100) -> None:
        self._dice = random.Random(seed)
        self._has_bag = story is SHOPS
        self._next = first
        self._items: dict[int, Row] = {}
        self._marks: Counter[Row] = Counter()

    def transaction(self, rows: int | None = None, part: GlobalPart | None = None) -> Transaction:
        """Inserts, modifies and deletes some rows (so many, if a number is given)."""
        changes: list[RowChange] = []
        touched: set[int] = set()
        for _ in range(rows or self._dice.randint(1, 4)):
            if self._dice.random() < 0.3:
                changes += self._mark()
            else:
                changes += self._item(touched)
        net = Transaction(tuple(changes), part).net()
        return net if net.changes else self.transaction(rows, part)

    def _mark(self) -> Iterator[RowChange]:
        there = [row for row, count in self._marks.items() if count > 0]
        gone = bool(there) and self._dice.random() < 0.4
        row = self._dice.choice(there) if gone else (self._next, self._dice.choice(["red", "blue"]))
        if not gone and not self._has_bag:
            self._next += 1
        self._marks[row] += -1 if gone else 1
        yield RowChange("marks", row, -1 if gone else 1)

    def _item(self, touched: set[int]) -> Iterator[RowChange]:
        old = [key for key in self._items if key not in touched]
        if old and self._dice.random() < 0.5:
            key = self._dice.choice(old)
            yield RowChange("items", self._items.pop(key), -1)
            if self._dice.random() < 0.4:
                touched.add(key)
                return
        else:
            key, self._next = self._next, self._next + 1
        dice = self._dice
        name = dice.choice(["item 1", "item 2", "ïtem", None])
        row = (key, dice.randint(1, 4), name, dice.choice([*range(5), None]))
        self._items[key] = row
        touched.add(key)
        yield RowChange("items", row, 1)


#: Each type of protocols/algebra/types.py with awkward values.
VALUES: Mapping[str, tuple[Any, ...]] = {
    "BIGINT": (0, -1, 2**63 - 1, -(2**63)),
    "DOUBLE": (0.1, -1.5, 5e-324, 1.7976931348623157e308, math.inf, -math.inf, math.nan),
    "DECIMAL(38,0)": (Decimal(10**38 - 1), Decimal(1 - 10**38), Decimal(0)),
    "DECIMAL(12,2)": (Decimal("0.01"), Decimal("-0.50"), Decimal("9999999999.99")),
    "DECIMAL(38,38)": (Decimal("0." + "9" * 38), Decimal("-0." + "0" * 37 + "1")),
    "VARCHAR": ("", "NULL", "null", " a ", "a\0b", "'; --", '"\\\n', "ä𝄞", "x" * 5000),
    "BOOLEAN": (True, False),
    "DATE": (datetime.date(1, 1, 1), datetime.date(2024, 2, 29), datetime.date(9999, 12, 31)),
    "TIMESTAMP": (
        datetime.datetime(1, 1, 1),
        datetime.datetime(1969, 12, 31, 23, 59, 59, 999999),
        datetime.datetime(2024, 2, 29, 1, 2, 3, 4),
        datetime.datetime(9999, 12, 31, 23, 59, 59, 999999),
    ),
}


@dataclass(frozen=True)
class Typed:
    """A relation with a column of each type, and rows that between them hold all values.

    The last row holds NULLs only.
    """

    story: Story
    rows: tuple[Row, ...]


def typed(values: Mapping[str, tuple[Any, ...]]) -> Typed:
    """The relation for the values of these types."""
    columns = {"id": "BIGINT"} | {f"c{place}": type_ for place, type_ in enumerate(values)}
    forms = {NAME: {"relations": {"typed": {"columns": columns, "key": ["id"]}}}}
    most = max(map(len, values.values()))
    rows = [(n, *(each[n % len(each)] for each in values.values())) for n in range(most)]
    return Typed(Story(catalog_from_json(forms), {}, {}), (*rows, (most, *(None for _ in values))))
