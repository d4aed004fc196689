"""The standing of a view: the position it has reached, and the versions and offsets there."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from deltalake import DeltaTable

from warehouse.delta import number

#: The application id of the position up to which a table is complete.
POSITION_REACHED = "viewsweep/position"


@dataclass(frozen=True)
class Standing:
    """Position, version vector, and the offset in each source's topic to read on from."""

    position: int
    vector: Mapping[str, int]
    #: Source → the first offset of its topic that is not needed for the vector.
    offsets: Mapping[str, int]
    #: Source → the digest of its history up to the vector's version, where it is known.
    digests: Mapping[str, int] = field(default_factory=dict)

    def numbers(self) -> dict[str, int]:
        """The standing as numbers by application id, for a Delta commit."""
        versions = {f"viewsweep/version/{source}": v for source, v in self.vector.items()}
        offsets = {f"viewsweep/offset/{source}": o for source, o in self.offsets.items()}
        # 0 where nothing is known; else the number of an earlier version would stay.
        digests = {f"viewsweep/history/{s}": self.digests.get(s, 0) for s in self.vector}
        return {POSITION_REACHED: self.position, **versions, **offsets, **digests}


def standing_in(table: DeltaTable, sources: Iterable[str]) -> Standing:
    """The standing in the table's last commit."""
    names = tuple(sources)
    digests = {source: table.transaction_version(f"viewsweep/history/{source}") for source in names}
    return Standing(
        number(table, POSITION_REACHED),
        {source: number(table, f"viewsweep/version/{source}") for source in names},
        {source: number(table, f"viewsweep/offset/{source}") for source in names},
        # Older lakes have no digests.
        {source: digest for source, digest in digests.items() if digest},
    )
