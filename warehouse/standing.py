"""How far a view has come, and the compact text in which an order of delivery is remembered."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import quote, unquote

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


def order_to_text(order: Iterable[tuple[str, int]]) -> str:
    """`[(a,1), (a,2), (b,7)]` as `a:1-2 b:7`."""
    runs: list[tuple[str, int, int]] = []
    for source, version in order:
        if runs and runs[-1][0] == source and runs[-1][2] == version - 1:
            runs[-1] = (source, runs[-1][1], version)
        else:
            runs.append((source, version, version))
    return " ".join(
        f"{quote(s)}:{first}" + (f"-{last}" if last > first else "") for s, first, last in runs
    )


def order_from_text(text: str) -> list[tuple[str, int]]:
    """The inverse of `order_to_text`."""
    order = []
    for run in text.split():
        source, _, versions = run.rpartition(":")
        first, _, last = versions.partition("-")
        stretch = range(int(first), int(last or first) + 1)
        order += [(unquote(source), version) for version in stretch]
    return order
