"""Databases that nobody has to install: made-up relations and an endless stream of changes."""

from protocols.errors import WrongUse
from sources.workloads.bank import BANK
from sources.workloads.linked import NAMES, Linked, LinkedSource, linked
from sources.workloads.linkedviews import LINKED_VIEWS
from sources.workloads.retail import RETAIL
from sources.workloads.shop import SHOP
from sources.workloads.stream import Workload, WorkloadSource

#: Those for demonstrations and tests; the family for measurements (linked.py) comes beside them.
WORKLOADS: dict[str, Workload] = {workload.name: workload for workload in (RETAIL, BANK, SHOP)}

__all__ = [
    "LINKED_VIEWS",
    "NAMES",
    "WORKLOADS",
    "Linked",
    "LinkedSource",
    "Workload",
    "WorkloadSource",
    "workload",
]


def workload(name: str) -> Workload | Linked:
    """The workload of that name; WrongUse lists those there are."""
    found = WORKLOADS.get(name) or linked(name)
    if found is None:
        raise WrongUse(
            f"there is no workload {name!r}; there are: {', '.join(WORKLOADS)}, and for"
            f" measurements {NAMES}"
        )
    return found
