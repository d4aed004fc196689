"""The expected view, at every step of a chain of vectors at once.

Each relation's history is a table of signed rows tagged with the version that brought them (initial
rows: 0). Along a chain x_0 <= x_1 <= … (the delivered prefixes, or the vectors that a run claims)
every version has one step: the first x_i that includes it. So each row of a relation has *lives*:
intervals of steps in which its multiplicity is constant. A combination of lives, one per atom,
exists in the intersection of their intervals, and intervals on a line meet if they do in pairs. So

    ONE join, of lives, on the view's own conditions and the overlap of each pair of lives

yields every result row that ever existed, from its first step to its last: its count is added at
the first and subtracted after the last, and the sum per (row, step) is V[x_i] - V[x_(i-1)] for all
i.

(The textbook form joins the signed rows themselves and tags a result with the largest step among
its atoms: V[x] is then the sum of all results tagged <= x, for *every* vector x. The lattice search
needs this form, and `tagged` gives it; but a row that changed m times at each of n sources has m**n
such combinations, most of which cancel, and only about n*m lives that meet.)

A view that is not a select-project-join is not linear in its relations. Then its plain SQL is
evaluated at each vector (`evaluation.py`).

Nothing here comes from the protocols: no compensation, no algebra, no parser of views.
"""

import numpy as np
import polars as pl

from protocols.checking.changes import Ints, StepChanges
from protocols.checking.evaluation import Evaluation
from protocols.checking.order import DeliveryOrder, Vectors, first_steps
from protocols.checking.rewriting import ViewText, view_text
from protocols.checking.trace import Trace
from protocols.checking.versions import FOREVER, Versions, lives
from protocols.checking.viewrows import ViewRows


class VersionHistory:
    """All versions of all relations, and the view over them."""

    def __init__(self, trace: Trace, order: DeliveryOrder) -> None:
        self.order = order
        self.text: ViewText = view_text(trace.run.view, trace.run.catalog, trace.run.dialect)
        self.versions = Versions(trace, self.text, order)
        self.view = ViewRows(self.text, self.versions)
        self._plain = Evaluation(self.text, self.versions, self.view)

    def __enter__(self) -> "VersionHistory":
        return self

    def __exit__(self, *_: object) -> None:
        self.versions.close()

    def along(self, chain: Vectors) -> StepChanges:
        """The expected changes of the view along a chain; step 0 has the whole V[x_0]."""
        if not self.text.is_spj:
            return self._plain.at(chain, differences=True)
        history, met = self.versions.table("history"), self.versions.table("met")
        for relation in self.text.relations:
            source = self.versions.source[relation.source]
            versions = np.arange(len(self.order.positions[source]), dtype=np.int64)
            steps = first_steps(chain, source, versions)
            known = steps < len(chain)
            step = pl.DataFrame({"_version": versions[known], "_at": steps[known]})
            self.versions.register("step", step)
            placed = f"{history(relation)} JOIN step USING (_version)"
            self.versions.run(
                f"CREATE OR REPLACE TABLE {met(relation)} AS {lives(relation, placed)}"
            )
        self._join_lives()
        return self.view.identified("found")

    def tagged(self) -> tuple[Ints, dict[int, Ints], Ints]:
        """Result rows of the signed histories, with their versions per source and their counts."""
        sources = sorted({self.versions.source[atom.relation.source] for atom in self.text.atoms})
        extra = [self._product("_count"), *(self._largest("_version", s) for s in sources)]
        inner = self.text.tagged(self.versions.table("history"), ("_count", "_version"), extra)
        tags = [f"y{s}" for s in sources]
        self.versions.run(
            f"CREATE OR REPLACE TABLE found AS SELECT {self.view.casts()}, {', '.join(tags)}, "
            f"sum(_n)::BIGINT AS _n FROM ({inner}) AS j({self.view.names}, _n, {', '.join(tags)}) "
            f"GROUP BY ALL HAVING sum(_n) <> 0"
        )
        self.view.number("found")
        found = self.versions.fetched(
            f"SELECT r.id, {', '.join(tags)}, _n FROM found f {self.view.numbers}"
        )
        return found["id"], {s: found[f"y{s}"] for s in sources}, found["_n"]

    def at(self, vectors: Vectors) -> StepChanges:
        """The whole view at each of some vectors, in any order: step i holds V[x_i]."""
        return self._plain.at(vectors, differences=False)

    def _join_lives(self) -> None:
        """Fills `found` with the changes of the view, from the lives in met_i."""
        atoms = [atom.number for atom in self.text.atoms]
        overlaps = [f"_from_{a} < _to_{b}" for a in atoms for b in atoms if a != b]
        froms = ", ".join(f"_from_{a}" for a in atoms)
        tos = ", ".join(f"_to_{a}" for a in atoms)
        extra = [self._product("_count"), f"greatest({froms})", f"least({tos})"]
        tags = ("_count", "_from", "_to")
        inner = self.text.tagged(self.versions.table("met"), tags, extra, overlaps)
        self.versions.run(
            f"CREATE OR REPLACE TABLE joined AS SELECT {self.view.casts()}, _n, _from, _to "
            f"FROM ({inner}) AS j({self.view.names}, _n, _from, _to)"
        )
        self.versions.run(
            f"CREATE OR REPLACE TABLE found AS SELECT {self.view.names}, _step, "
            f"sum(_n)::BIGINT AS _n FROM ("
            f"SELECT {self.view.names}, _from AS _step, _n FROM joined UNION ALL "
            f"SELECT {self.view.names}, _to AS _step, -_n FROM joined WHERE _to < {FOREVER}) "
            f"GROUP BY ALL HAVING sum(_n) <> 0"
        )

    def _product(self, tag: str) -> str:
        return " * ".join(f"{tag}_{atom.number}::HUGEINT" for atom in self.text.atoms)

    def _largest(self, tag: str, source: int) -> str:
        own = [a for a in self.text.atoms if self.versions.source[a.relation.source] == source]
        return f"greatest({', '.join(f'{tag}_{atom.number}' for atom in own)})"
