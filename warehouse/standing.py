"""How far a view has come."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from deltalake import DeltaTable

from warehouse.delta import number


@dataclass(frozen=True)
class Standing:
    """Position, version vector, and where in each source's topic to read on."""

    position: int
    vector: Mapping[str, int]
    #: Source → the first offset of its topic that is not needed for the vector.
    offsets: Mapping[str, int]

    def numbers(self) -> dict[str, int]:
        """The standing as numbers by application id, for a Delta commit."""
        versions = {f"viewsweep/version/{source}": v for source, v in self.vector.items()}
        offsets = {f"viewsweep/offset/{source}": o for source, o in self.offsets.items()}
        return {"viewsweep/position": self.position, **versions, **offsets}


def standing_in(table: DeltaTable, sources: Iterable[str]) -> Standing:
    """The standing that the table's last commit left."""
    names = tuple(sources)
    return Standing(
        number(table, "viewsweep/position"),
        {source: number(table, f"viewsweep/version/{source}") for source in names},
        {source: number(table, f"viewsweep/offset/{source}") for source in names},
    )
