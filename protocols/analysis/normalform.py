"""The join-disjunctive normal form of an outer-join block (Larson and Zhou, 2.2).

Every block is the *minimum union* of inner joins: all their rows, padded with NULL, less those that
another row subsumes (a row that is equal wherever the first is not NULL, and has more). Bottom up,
over the block:

    leaf        one term
    selection   the condition goes into each term; a term that lacks the aliases of the condition
                is padded there, so a condition that rejects NULL takes the whole term away
    join        each term of the left with each of the right, as above; and the terms that an outer
                join preserves, once more by themselves

A condition that can hold for padded rows (`s.x IS NULL` above a join that pads s) breaks this: it
may keep a padded row whose complement it throws away. Such a block has no normal form.

A term whose rows are all subsumed can be left out. A mandatory foreign key shows this: a child that
is joined with its parent on it, and on nothing else, never stands alone.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from protocols.algebra import expressions as ex
from protocols.algebra.nullrejection import rejects_null
from protocols.analysis.block import (
    Block,
    Conditions,
    Joined,
    Leaf,
    NullIf,
    Selection,
    aliases_in,
    columns_of_aliases,
    leaves,
)
from protocols.analysis.dependencies import inner_join
from protocols.analysis.foreignkeys import equalities, equality, joined_children
from protocols.analysis.wording import condition_text, conditions_text, listed
from protocols.errors import WrongUse
from protocols.views.catalog import ForeignKey, Relation


class NoNormalForm(WrongUse):
    """The block is not a minimum union of inner joins; the message names the condition to blame."""


@dataclass(frozen=True)
class Term:
    """The inner join of some aliases; NULL stands in the columns of all others."""

    aliases: tuple[str, ...]
    conditions: Conditions

    @cached_property
    def sources(self) -> frozenset[str]:
        """Its aliases as a set, the paper's source tables."""
        return frozenset(self.aliases)

    @property
    def name(self) -> str:
        return f"{{{', '.join(self.aliases)}}}"

    def __str__(self) -> str:
        if not self.conditions:
            return self.name
        return f"{self.name} where {conditions_text(self.conditions)}"


@dataclass(frozen=True)
class NormalForm:
    """The terms, those with the most aliases first, and the relation of each alias."""

    terms: tuple[Term, ...]
    #: The leaves by their aliases, which come and go together.
    leaves: tuple[tuple[str, ...], ...]
    #: None stands for a leaf that is not a relation: a group or a union below the block.
    relations: dict[str, Relation | None]

    @property
    def aliases(self) -> tuple[str, ...]:
        return tuple(alias for leaf in self.leaves for alias in leaf)

    @cached_property
    def known_relations(self) -> dict[str, Relation]:
        return {alias: r for alias, r in self.relations.items() if r is not None}

    def aliases_of(self, relation: Relation) -> tuple[str, ...]:
        """The aliases under which a relation occurs; two if it is joined with itself."""
        return tuple(alias for alias, r in self.relations.items() if r == relation)

    def never_null(self, term: Term) -> frozenset[str]:
        """The columns that are NULL in no row of a term, as far as its leaves are relations."""
        known = self.known_relations
        relations = ((alias, known[alias]) for alias in term.aliases if alias in known)
        return inner_join(relations, term.conditions).never_null

    def __str__(self) -> str:
        return " ⊕\n".join(map(str, self.terms))


def normal_form(block: Block, foreign_keys: Iterable[ForeignKey] = ()) -> NormalForm:
    """The normal form of a block.

    `part ⟗ (orders ⟕ lineitem)` is {part, orders, lineitem} ⊕ {orders, lineitem} ⊕ {part} ⊕
    {orders}; with a mandatory foreign key from lineitem to part the second one is left out.
    """
    all_leaves = tuple(leaves(block))
    relations: dict[str, Relation | None] = {}
    for leaf in all_leaves:
        of_leaf = leaf.relations or (None,) * len(leaf.aliases)
        relations.update(zip(leaf.aliases, of_leaf, strict=True))
    order = {alias: place for place, alias in enumerate(relations)}
    terms = sorted(
        _terms(block), key=lambda t: (-len(t.aliases), [order[alias] for alias in t.aliases])
    )
    form = NormalForm(tuple(terms), tuple(leaf.aliases for leaf in all_leaves), relations)
    keys = tuple(foreign_keys)
    kept = tuple(term for term in terms if not _never_stands_alone(term, form, keys))
    return NormalForm(kept, form.leaves, relations)


def _terms(block: Block) -> list[Term]:
    match block:
        case Leaf(aliases, _, conditions):
            return [Term(aliases, conditions)]
        case Selection(below, conditions):
            return [t for term in _terms(below) if (t := _selected(term, conditions)) is not None]
        case Joined(kind, left_block, right_block, conditions):
            left, right = _terms(left_block), _terms(right_block)
            pairs = (_product(a, b) for a in left for b in right)
            terms = [t for pair in pairs if (t := _selected(pair, conditions)) is not None]
            if kind in ("left", "full"):
                terms += left
            if kind in ("right", "full"):
                terms += right
            return terms
        case NullIf():
            raise NoNormalForm(f"{block} was made from a normal form; take that of the view itself")


def _product(left: Term, right: Term) -> Term:
    return Term(left.aliases + right.aliases, left.conditions + right.conditions)


def _selected(term: Term, conditions: Conditions) -> Term | None:
    """The term under further conditions; None if one of them rejects NULL for an alias it lacks."""
    lacking = {c: aliases_in(c) - term.sources for c in conditions}
    speaking = {c: absent for c, absent in lacking.items() if absent}
    if any(rejects_null(c, columns_of_aliases(c, absent)) for c, absent in speaking.items()):
        return None
    for condition, absent in speaking.items():
        _refuse(condition, term, absent)
    return Term(term.aliases, term.conditions + conditions)


def _refuse(condition: ex.Condition, term: Term, lacking: frozenset[str]) -> None:
    raise NoNormalForm(
        f"the condition {condition_text(condition)} can hold for rows {term.name}, in which "
        f"{listed(sorted(lacking))} is padded with NULL; so the view is not just the union of its "
        "inner joins. A condition that fails for NULL, or one inside the join, would keep it so"
    )


def _never_stands_alone(term: Term, form: NormalForm, keys: tuple[ForeignKey, ...]) -> bool:
    larger = (other for other in form.terms if term.sources < other.sources)
    return any(_always_extended(term, other, form, keys) for other in larger)


def _always_extended(
    term: Term, other: Term, form: NormalForm, keys: tuple[ForeignKey, ...]
) -> bool:
    """Whether each row of the term has partners in all further aliases of the other term.

    Parents are added one by one, each by a foreign key of a child that is there; at the end no
    condition of the other term may remain that no key guarantees.
    """
    there, vouched = set(term.sources), set[frozenset[str]]()
    references, never_null = list(_references(other, form, keys)), form.never_null(term)
    for _ in references:
        for key, child, parent in references:
            kept = never_null | {f"{child}.{c}" for c in key.child.never_null}
            sure = {f"{child}.{c}" for c in key.columns} <= kept
            if child in there and parent not in there and sure:
                there.add(parent)
                vouched |= equalities(key, child, parent)
    further = (c for c in other.conditions if c not in term.conditions)
    return there == other.sources and all(equality(c) in vouched for c in further)


def _references(
    term: Term, form: NormalForm, keys: tuple[ForeignKey, ...]
) -> Iterator[tuple[ForeignKey, str, str]]:
    """The foreign keys on which a term joins, each with the aliases of child and parent."""
    for key in keys:
        for parent in form.aliases_of(key.parent):
            children = joined_children(parent, form.known_relations, term.conditions, (key,))
            yield from ((key, child, parent) for child in children & term.sources)
