"""Which terms can hide rows of which others, and the remainder of each (Larson and Zhou, 2.3, 2.4).

A row of a term can only be subsumed by rows of terms with more aliases. It is enough to look at the
*parents*, the terms with a minimal superset of its aliases: a row that is subsumed further up is
subsumed there as well. The rest of a term is its *net contribution*, and the view is the plain
union of these, each of which can be maintained by itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from protocols.analysis.normalform import NormalForm, Term
from protocols.analysis.wording import listed


@dataclass(frozen=True)
class NetContribution:
    """The rows of a term that are not part of a row of its parents."""

    term: Term
    parents: tuple[Term, ...]

    def __str__(self) -> str:
        if not self.parents:
            return f"{self.term.name}: all rows"
        without = listed([parent.name for parent in self.parents])
        return f"{self.term.name}: the rows that are no part of a row of {without}"


@dataclass(frozen=True)
class SubsumptionGraph:
    """A node per term, an edge from each parent to each of its children."""

    terms: tuple[Term, ...]
    edges: tuple[tuple[Term, Term], ...]

    @cached_property
    def _parents(self) -> Mapping[Term, tuple[Term, ...]]:
        return {t: tuple(p for p, c in self.edges if c == t) for t in self.terms}

    def parents(self, term: Term) -> tuple[Term, ...]:
        return self._parents[term]

    @property
    def net_contributions(self) -> tuple[NetContribution, ...]:
        return tuple(NetContribution(term, self.parents(term)) for term in self.terms)

    def __str__(self) -> str:
        return "\n".join(map(str, self.net_contributions))


def subsumption_graph(form: NormalForm) -> SubsumptionGraph:
    """The graph of a normal form: {r, s, t} is a parent of {r, s}, which is one of {r}."""
    edges = []
    for child in form.terms:
        larger = [term for term in form.terms if child.sources < term.sources]
        edges += [
            (parent, child)
            for parent in larger
            if not any(other.sources < parent.sources for other in larger)
        ]
    return SubsumptionGraph(form.terms, tuple(edges))
