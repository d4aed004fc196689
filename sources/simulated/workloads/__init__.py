"""Workloads: made-up relations and an endless stream of changes, without a database to install."""

from protocols.errors import WrongUse
from sources.simulated.workloads.bank import BANK
from sources.simulated.workloads.linked import NAMES, Linked, LinkedSource, linked
from sources.simulated.workloads.linkedviews import LINKED_VIEWS
from sources.simulated.workloads.retail import RETAIL
from sources.simulated.workloads.shop import SHOP
from sources.simulated.workloads.stream import Workload, WorkloadSource

#: The workloads for demonstrations and tests; those for measurements are in linked.py.
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
    """The workload of that name; if there is none, WrongUse with the existing ones."""
    found = WORKLOADS.get(name) or linked(name)
    if found is None:
        raise WrongUse(
            f"there is no workload {name!r}; choose one of: {', '.join(WORKLOADS)}, or for"
            f" measurements {NAMES}"
        )
    return found
