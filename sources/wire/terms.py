"""Joint questions in the form in which they are sent and evaluated.

A protocol of the ECA family under many concurrent updates asks for a sum of hundreds of terms, each
with a row or two. Terms that give rows for the same atoms differ only in these rows. Merged into
one table per atom, with the number of the term beside each row, they are one join: a question about
n atoms is at most 2^n joins, however many terms it has.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from protocols.algebra.delta import COUNT
from protocols.algebra.frame import Frame, picked
from protocols.exchange.questions import Joint
from protocols.views.view import View

TERM = "_term"


@dataclass(frozen=True)
class Terms:
    """Terms that give rows for the same atoms."""

    #: The number of terms; needed only where no given rows distinguish them.
    number: int
    #: Atom index → the rows of all these terms, each with the number of its term in `_term`.
    given: Mapping[int, pl.DataFrame]


@dataclass(frozen=True)
class Sum:
    """A joint question: the view, and its terms in groups."""

    view: View
    groups: tuple[Terms, ...]


def in_groups(joint: Joint[Frame]) -> Sum:
    """Groups the terms of a question by the atoms that they give rows for."""
    groups: dict[tuple[int, ...], list[Mapping[int, Frame]]] = {}
    for term in joint.terms:
        groups.setdefault(tuple(sorted(term)), []).append(term)
    return Sum(
        joint.view,
        tuple(
            Terms(len(terms), {i: _numbered([term[i] for term in terms]) for i in atoms})
            for atoms, terms in groups.items()
        ),
    )


def _numbered(parts: list[Frame]) -> pl.DataFrame:
    names = [*parts[0].columns, COUNT]
    rows = pl.concat([picked(part.data, names) for part in parts])
    numbers = np.repeat(np.arange(len(parts)), [part.data.height for part in parts])
    return rows.with_columns(pl.Series(TERM, numbers, dtype=pl.Int64))
