"""How far a view has come, and the compact text in which an order of delivery is remembered."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias
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


#: The transactions of one position: (source, version); several for a global one.
Group: TypeAlias = Sequence[tuple[str, int]]


def order_to_text(order: Iterable[Group]) -> str:
    """`a`'s 1 and 2, `b`'s 7, then `a`'s 3 with `b`'s 8: `a:1-2 b:7 a:3+b:8`."""
    runs: list[tuple[Group, int]] = []
    for group in order:
        if runs and len(group) == 1:
            ((source, version), *others), last = runs[-1]
            if not others and (source, last + 1) == group[0]:
                runs[-1] = ([(source, version)], last + 1)
                continue
        runs.append((group, group[-1][1]))
    return " ".join(
        "+".join(f"{quote(source)}:{version}" for source, version in group)
        + (f"-{last}" if last > group[-1][1] else "")
        for group, last in runs
    )


def order_from_text(text: str) -> list[tuple[tuple[str, int], ...]]:
    """The inverse of `order_to_text`."""
    order: list[tuple[tuple[str, int], ...]] = []
    for run in text.split():
        parts = [part.rpartition(":") for part in run.split("+")]
        if len(parts) > 1:
            order.append(tuple((unquote(source), int(version)) for source, _, version in parts))
            continue
        [(source, _, versions)] = parts
        first, _, last = versions.partition("-")
        stretch = range(int(first), int(last or first) + 1)
        order += [((unquote(source), version),) for version in stretch]
    return order


def positions_to_text(positions: Iterable[int]) -> str:
    """Ascending positions with runs in short: `3 5-9`."""
    runs: list[list[int]] = []
    for position in positions:
        if runs and runs[-1][-1] == position - 1:
            runs[-1] = [runs[-1][0], position]
        else:
            runs.append([position])
    return " ".join("-".join(map(str, run)) for run in runs)


def positions_from_text(text: str) -> list[int]:
    """The inverse of `positions_to_text`."""
    positions: list[int] = []
    for run in text.split():
        first, _, last = run.partition("-")
        positions += range(int(first), int(last or first) + 1)
    return positions
