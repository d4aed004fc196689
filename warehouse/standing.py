"""How far a view has come."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from deltalake import DeltaTable

from warehouse.delta import number

#: The application id of the position up to which a table has everything.
POSITION_REACHED = "viewsweep/position"


@dataclass(frozen=True)
class Standing:
    """Position, version vector, and where in each source's topic to read on."""

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
        # A 0 where nothing is known, or the number of an earlier version would be left standing.
        digests = {f"viewsweep/history/{s}": self.digests.get(s, 0) for s in self.vector}
        return {POSITION_REACHED: self.position, **versions, **offsets, **digests}


def standing_in(table: DeltaTable, sources: Iterable[str]) -> Standing:
    """The standing that the table's last commit left."""
    names = tuple(sources)
    digests = {source: table.transaction_version(f"viewsweep/history/{source}") for source in names}
    return Standing(
        number(table, POSITION_REACHED),
        {source: number(table, f"viewsweep/version/{source}") for source in names},
        {source: number(table, f"viewsweep/offset/{source}") for source in names},
        # A lake of a time when sources had no history has none of these.
        {source: digest for source, digest in digests.items() if digest},
    )
