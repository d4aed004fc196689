"""The load on the sources of a local system, and how such sources are run."""

from dataclasses import dataclass
from typing import Protocol

from protocols.views.sql import sources_named_in
from sources.simulated.workloads import workload

#: Sources that were started at rest begin to commit when this file exists.
BEGIN = "begin"


@dataclass(frozen=True)
class Load:
    """The load on the sources: a workload, its size and its rate."""

    workload: str
    #: Transactions over all sources, and how many of them per second.
    transactions: int
    rate: float
    seed: int = 7
    scale: int = 1000
    #: The view of the workload that is kept; None for its inner join.
    view: str | None = None

    @property
    def sql(self) -> str:
        """The view's text."""
        return workload(self.workload).view_named(self.view)

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources of the view."""
        named = sources_named_in(self.sql)
        return tuple(source for source in workload(self.workload).sources if source in named)

    @property
    def share(self) -> int:
        """The number of transactions that each source commits."""
        return -(-self.transactions // len(self.sources))

    @property
    def content(self) -> str:
        """The options that make a source of this workload."""
        return f"--workload {self.workload} --seed {self.seed} --scale {self.scale}"

    def commits(self, at_rest: bool) -> str:
        """The options with which one source commits its share."""
        rate = self.rate / len(self.sources)
        return f"--transactions {self.share} --rate {rate:.3f}" + (
            f" --after {BEGIN}" if at_rest else ""
        )


class LocalSources(Protocol):
    """Sources of one kind."""

    def make(self, load: Load) -> None:
        """Creates them, filled for the workload."""
        ...

    def serve(self, load: Load, at_rest: bool) -> dict[str, str]:
        """Starts them; returns source → its address, for people.

        They begin to commit at once, or with the file `BEGIN`.
        """
        ...

    def settings(self) -> dict[str, str]:
        """Source → the lines that say in warehouse.toml where it is; once they are served."""
        ...

    def stop(self) -> None:
        """Ends them; `serve` starts them again."""
        ...
