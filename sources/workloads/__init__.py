"""Databases that nobody has to install: made-up relations and an endless stream of changes."""

from protocols.errors import WrongUse
from sources.workloads.bank import BANK
from sources.workloads.retail import RETAIL
from sources.workloads.shop import SHOP
from sources.workloads.stream import Workload, WorkloadSource

WORKLOADS: dict[str, Workload] = {workload.name: workload for workload in (RETAIL, BANK, SHOP)}

__all__ = ["WORKLOADS", "Workload", "WorkloadSource", "workload"]


def workload(name: str) -> Workload:
    """The workload of that name; WrongUse lists those there are."""
    if name not in WORKLOADS:
        raise WrongUse(f"there is no workload {name!r}; there are: {', '.join(WORKLOADS)}")
    return WORKLOADS[name]
