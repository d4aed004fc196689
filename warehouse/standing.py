"""The standing of a view: its position, and the version and token of each source there."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from deltalake import DeltaTable

from protocols.errors import Unreachable
from warehouse.delta import number, table_at

#: The application id of the position up to which a table is complete.
POSITION_REACHED = "viewsweep/position"


@dataclass(frozen=True)
class Standing:
    """Position, version vector, and the tokens from which the sources are read on."""

    position: int
    vector: Mapping[str, int]
    #: Source → the numbers by which its adapter finds the changes after the vector.
    tokens: Mapping[str, tuple[int, ...]]
    #: Source → the digest of its history up to the vector's version, where it is known.
    digests: Mapping[str, int] = field(default_factory=dict)

    def numbers(self) -> dict[str, int]:
        """The standing as numbers by application id, for a Delta commit."""
        versions = {f"viewsweep/version/{source}": v for source, v in self.vector.items()}
        tokens = {
            name: number
            for source, token in self.tokens.items()
            for name, number in _token_numbers(source, token)
        }
        # 0 where nothing is known; else the number of an earlier version would stay.
        digests = {f"viewsweep/history/{s}": self.digests.get(s, 0) for s in self.vector}
        return {POSITION_REACHED: self.position, **versions, **tokens, **digests}


def standing_in(table: DeltaTable, sources: Iterable[str]) -> Standing:
    """The standing in the table's last commit."""
    names = tuple(sources)
    digests = {source: table.transaction_version(f"viewsweep/history/{source}") for source in names}
    return Standing(
        number(table, POSITION_REACHED),
        {source: number(table, f"viewsweep/version/{source}") for source in names},
        {source: _token_in(table, source) for source in names},
        # Older lakes have no digests.
        {source: digest for source, digest in digests.items() if digest},
    )


def latest_in(lake: Path, sources: Iterable[str]) -> dict[str, tuple[int, tuple[int, ...]]]:
    """Maps each source to the latest version of it that any view in the lake contains.

    The token for that version comes with it. The lake is the warehouse's directory.

    Views that cannot be read are left out.
    """
    found: dict[str, tuple[int, tuple[int, ...]]] = {}
    for path in sorted(lake.glob("*/changes")):
        try:
            table = table_at(path)
        except Unreachable:
            continue
        if table is None:
            continue
        for source in sources:
            version = table.transaction_version(f"viewsweep/version/{source}")
            if version is not None and version >= found.get(source, (0, ()))[0]:
                found[source] = version, _token_in(table, source)
    return found


def _token_numbers(source: str, token: tuple[int, ...]) -> Iterator[tuple[str, int]]:
    """A token as numbers, each with an application id: its length, then its own numbers."""
    yield f"viewsweep/token/{source}", len(token)
    yield from ((f"viewsweep/token/{source}/{place}", each) for place, each in enumerate(token))


def _token_in(table: DeltaTable, source: str) -> tuple[int, ...]:
    length = table.transaction_version(f"viewsweep/token/{source}")
    if length is None:
        # A lake of version 0.1 has the offset of the source's only partition.
        return (number(table, f"viewsweep/offset/{source}"),)
    return tuple(number(table, f"viewsweep/token/{source}/{place}") for place in range(length))
