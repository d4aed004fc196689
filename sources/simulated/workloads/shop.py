"""The shop of `retail` in one database: customers, orders and products are all at `shop`.

It serves protocols that leave joins to the source. The view shows the key of each relation.
"""

from dataclasses import replace

from sources.simulated.workloads.retail import RETAIL
from sources.simulated.workloads.stream import Table, Workload

SOURCE = "shop"


def _moved(table: Table) -> Table:
    return replace(table, relation=replace(table.relation, source=SOURCE))


def _view() -> str:
    """The view of `retail` over the relations at `shop`."""
    view = RETAIL.view
    for source in RETAIL.sources:
        view = view.replace(f" {source}.", f" {SOURCE}.")
    return view


SHOP = Workload(
    name="shop",
    view=_view(),
    tables={SOURCE: tuple(_moved(table) for of in RETAIL.tables.values() for table in of)},
)
