"""The origins of a row of the view: the rows of the relations, each with its life."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from protocols.checking.history import VersionHistory
from protocols.checking.order import Part
from protocols.checking.rewriting import RelationInText
from protocols.checking.trace import Row
from protocols.checking.versions import FOREVER, cells, quoted


@dataclass(frozen=True)
class Lifetime:
    """A row of a relation, its multiplicity, and the versions that brought it and took it away."""

    atom: RelationInText
    row: Row
    count: int
    born: Part
    gone: Part | None


def origins(history: VersionHistory, id_: int, limit: int = 1000) -> list[tuple[Lifetime, ...]]:
    """Finds combinations of lives that give a row, whether or not they ever met."""
    if not history.text.is_spj:
        return []
    row = history.view.rows([id_])[id_]
    tags = ("_count", "_from", "_to")
    extra = []
    for atom in history.text.atoms:
        own = [f"{quoted(atom.alias)}.{quoted(c)}" for c in atom.relation.column_names]
        own += [f"{tag}_{atom.number}" for tag in tags]
        extra.append(f"row({', '.join(own)})")
    inner = history.text.tagged(history.versions.table("life"), tags, extra)
    lives = ", ".join(f"life{atom.number}" for atom in history.text.atoms)
    same = " AND ".join(
        f"{history.view.cast(i)} IS NOT DISTINCT FROM ${i + 1}::{type_.name}"
        for i, (_, type_) in enumerate(history.view.columns)
    )
    found = history.versions.run(
        f"SELECT {lives} FROM ({inner}) AS j({history.view.names}, {lives}) WHERE {same} "
        f"LIMIT {limit}",
        list(row),
    ).fetchall()
    return [_combination(history, values) for values in found]


def _combination(history: VersionHistory, values: Sequence[Any]) -> tuple[Lifetime, ...]:
    lives = []
    for atom, value in zip(history.text.atoms, values, strict=True):
        *row, count, born, gone = cells(value)
        source = history.versions.source[atom.relation.source]
        end = None if gone == FOREVER else (source, int(gone))
        lives.append(Lifetime(atom, tuple(row), int(count), (source, int(born)), end))
    return tuple(lives)
