"""Evaluates the plain SQL of a view that is not linear in its relations, at many version vectors.

One statement evaluates many vectors over the rows alive there, with a subquery that depends on the
vector. DuckDB decorrelates it by itself, in a tenth of the time that as many statements take.
"""

import numpy as np
import polars as pl

from protocols.checking.changes import StepChanges
from protocols.checking.order import Vectors
from protocols.checking.rewriting import ViewText
from protocols.checking.versions import Versions
from protocols.checking.viewrows import ViewRows

# The most vectors in one statement; fewer where relations are large. (A vector is a bit.)
_VECTORS_AT_ONCE = 60
_ROWS_AT_ONCE = 1_000_000


class Evaluation:
    """The view's SQL over all versions of its relations."""

    def __init__(self, text: ViewText, versions: Versions, view: ViewRows) -> None:
        self._text = text
        self._versions = versions
        self._view = view

    def at(self, vectors: Vectors, differences: bool) -> StepChanges:
        """Evaluates the SQL at each vector; for differences, only where a source of it moves."""
        steps = np.arange(len(vectors), dtype=np.int64)
        if differences:
            sources = [self._versions.source[relation.source] for relation in self._text.relations]
            moves = (np.diff(vectors[:, sources], axis=0) != 0).any(axis=1)
            steps = steps[np.concatenate([[True], moves])]
        self._versions.run(
            f"CREATE OR REPLACE TABLE found ({self._view.typed}, _step BIGINT, _n BIGINT)"
        )
        size = self._vectors_at_once()
        for first in range(0, len(steps), size):
            # Differences begin with the last vector of the stretch before.
            begin, end = max(0, first - differences), min(first + size, len(steps))
            self._evaluate(vectors[steps[begin:end]], begin)
            if begin < first:
                self._drop_what_stays(end - begin)
            self._versions.run(
                f"INSERT INTO found SELECT {self._view.names}, _step, sum(_n) FROM ("
                f"SELECT {self._view.names}, _step, 1 AS _n FROM evaluated WHERE _step >= {first} "
                f"UNION ALL SELECT {self._view.names}, _step + 1, -1 FROM evaluated "
                f"WHERE {differences} AND _step < {end - 1}) GROUP BY ALL HAVING sum(_n) <> 0"
            )
        return self._view.identified("found").at(steps)

    def _vectors_at_once(self) -> int:
        rows = max(1, self._versions.copies())
        return max(1, min(_VECTORS_AT_ONCE, _ROWS_AT_ONCE // rows))

    def _evaluate(self, vectors: Vectors, first: int) -> None:
        """Fills `evaluated` with the view at these vectors, numbered from `first` on."""
        at = {f"at_{source}": vectors[:, source] for source in range(len(self._versions.source))}
        places = np.arange(len(vectors), dtype=np.int64)
        marks = {"_step": first + places, "_mark": 1 << places}
        self._versions.register("_vector", pl.DataFrame({**marks, **at}))
        self._versions.run(
            f"CREATE OR REPLACE TABLE evaluated AS SELECT {self._view.casts()}, _step, _mark "
            f"FROM ({self._at_each(vectors, first)}) AS j({self._view.names}, _step, _mark)"
        )

    def _at_each(self, vectors: Vectors, first: int) -> str:
        """SQL for the view at each row of `_vector`, which holds these vectors."""
        if self._text.fits_lateral:
            view = self._text.over(self._versions.alive("_vector.at_{}".format))
            return f"SELECT v.*, _step, _mark FROM _vector, LATERAL ({view}) AS v"
        views = (self._text.over(self._versions.alive(at.item)) for at in vectors)
        # Each view by itself, beside its row of `_vector`.
        parts = (
            f"SELECT v.*, _step, _mark FROM ({view}) AS v, (FROM _vector WHERE _step = {step})"
            for step, view in enumerate(views, first)
        )
        return " UNION ALL ".join(parts)

    def _drop_what_stays(self, vectors: int) -> None:
        """Drops the rows that occur once at each of these vectors: nearly all rows."""
        names = self._view.names
        self._versions.run(
            f"CREATE OR REPLACE TABLE evaluated AS SELECT {names}, unnest(_steps) AS _step "
            f"FROM (SELECT {names}, list(_step) AS _steps FROM evaluated GROUP BY {names} "
            f"HAVING count(*) <> {vectors} OR bit_or(_mark) <> {2**vectors - 1})"
        )
