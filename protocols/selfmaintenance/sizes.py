"""How many rows auxiliary views will have, estimated from the sizes of the relations.

Values are assumed to be spread evenly, as in the paper's Table 1: an equality with a constant
passes one row in so many different values, and a semijoin as many rows as the other auxiliary view
has of its relation. Other conditions are taken to pass all rows, so an estimate is rather too high.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from protocols.algebra.expressions import Column, Comparison, Condition, In, Literal
from protocols.selfmaintenance.auxiliary import AuxiliaryViews, own_column
from protocols.selfmaintenance.selection import local_conditions
from protocols.views.statistics import Statistics
from protocols.views.view import Atom


@dataclass(frozen=True)
class Sizes:
    """The rows of one relation: all, those that pass the local conditions, those stored."""

    base: int
    local: int
    auxiliary: int


def sizes_of(
    found: AuxiliaryViews, statistics: Mapping[str, Statistics]
) -> dict[str, Sizes | None]:
    """Vertex → its sizes; None if a size that they depend on is unknown.

    Of an auxiliary view that equals an earlier one no row is stored.
    """
    sizes: dict[str, Sizes | None] = {}
    for name in (*found.views, *([found.not_needed] if found.not_needed else [])):
        sizes[name] = _sizes(name, found, statistics, sizes)
    return sizes


def total(
    sizes: Mapping[str, Sizes | None], found: AuxiliaryViews, statistics: Mapping[str, Statistics]
) -> Sizes | None:
    """The sizes of all relations together; None if one is unknown. A base relation counts once."""
    known = [each for each in sizes.values() if each is not None]
    if len(known) < len(sizes):
        return None
    base = {relation: statistics[str(relation)].rows for relation in found.graph.view.relations}
    return Sizes(
        sum(base.values()), sum(each.local for each in known), sum(each.auxiliary for each in known)
    )


def _sizes(
    name: str,
    found: AuxiliaryViews,
    statistics: Mapping[str, Statistics],
    known: Mapping[str, Sizes | None],
) -> Sizes | None:
    atoms = found.graph.vertex(name).atoms
    if any(str(atom.relation) not in statistics for atom in atoms):
        return None
    base = [statistics[str(atom.relation)].rows for atom in atoms]
    passing = [_passing(atom, found, statistics[str(atom.relation)]) for atom in atoms]
    view = found.views.get(name)
    # Rows of a circle reference one another, so their join has at most as many rows as each.
    stored = min(passing) if view is not None else Fraction(0)
    for edge in view.semijoins if view is not None else ():
        above = known[edge.parent]
        if above is None:
            return None
        whole = found.graph.vertex(edge.parent).atoms
        stored *= Fraction(above.auxiliary, max(1, _least_rows(whole, statistics)))
    twice = name in found.same_as
    return Sizes(sum(base), sum(map(round, passing)), 0 if twice else round(stored))


def _least_rows(atoms: Iterable[Atom], statistics: Mapping[str, Statistics]) -> int:
    return min(statistics[str(atom.relation)].rows for atom in atoms)


def _passing(atom: Atom, found: AuxiliaryViews, known: Statistics) -> Fraction:
    """The rows of a relation that pass its local conditions."""
    passing = Fraction(known.rows)
    for condition in local_conditions(atom, found.graph.view):
        passing *= _share(condition, atom, known)
    return passing


def _share(condition: Condition, atom: Atom, known: Statistics) -> Fraction:
    match condition:
        case Comparison(Column(column), "=", Literal()) | Comparison(
            Literal(), "=", Column(column)
        ):
            values = 1
        case In(Column(column), constants, _):
            values = len(constants)
        case _:
            return Fraction(1)
    distinct = known.distinct.get(own_column(column, atom), 0)
    return min(Fraction(1), Fraction(values, distinct)) if distinct else Fraction(1)
