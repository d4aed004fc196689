"""The questions that keeping a view costs: per relation and kind of update, and per batch.

There are two numbers each: for the first time that an update meets its groups, and for when the
operators remember them (`operators/memory.py`). The protocols that keep trees ask these questions
for a single update, and so does the batched sweep over an inner join.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from protocols.algebra.expressions import columns_of
from protocols.analysis.wording import conditions_text, listed
from protocols.explaining.asked import Ask, Rounds, number
from protocols.explaining.following import MANY, Following, Occasion
from protocols.views import tree
from protocols.views.catalog import Relation
from protocols.views.tree import AnyView, Core, Node, TreeView
from protocols.views.view import Atom

Kind: TypeAlias = Literal["insertion", "deletion", "modification"]
KINDS: tuple[Kind, ...] = ("insertion", "deletion", "modification")


@dataclass(frozen=True)
class QuestionCost:
    """The most questions that one occasion asks."""

    #: When nothing is remembered of the rows it meets.
    first: Rounds
    #: When everything is remembered.
    remembered: Rounds
    #: Additional questions if keys that may be NULL are: (first, remembered).
    more_with_nulls: tuple[int, int]

    @property
    def numbers(self) -> tuple[int, int]:
        """The number of questions: first, remembered."""
        return number(self.first), number(self.remembered)

    @property
    def most(self) -> tuple[int, int]:
        """The number of questions for any NULLs: first, remembered."""
        return (
            self.numbers[0] + self.more_with_nulls[0],
            self.numbers[1] + self.more_with_nulls[1],
        )

    @property
    def whole(self) -> tuple[Relation, ...]:
        """The relations that it reads whole, even if everything is remembered."""
        return _whole(self.remembered)

    @property
    def whole_at_first(self) -> tuple[Relation, ...]:
        """The relations that it reads whole when nothing is remembered."""
        return _whole(self.first)


@dataclass(frozen=True)
class RelationCosts:
    """The costs of the updates of one relation."""

    relation: Relation
    kinds: dict[Kind, QuestionCost]
    #: Its updates that never need a question, in words.
    spared: tuple[str, ...]


@dataclass(frozen=True)
class Costs:
    """The costs of keeping a view."""

    relations: tuple[RelationCosts, ...]
    #: A batch of updates of all relations, of any size.
    batch: QuestionCost

    @property
    def asks(self) -> tuple[Ask, ...]:
        """Every question that an update may lead to, once."""
        costs = [cost for each in self.relations for cost in each.kinds.values()]
        rounds = (r for cost in costs for r in (*cost.first, *cost.remembered))
        return tuple(dict.fromkeys(each for round_ in rounds for each in round_))


def root_of(view: AnyView) -> Node:
    """The view as a tree; an inner join is a leaf."""
    return view.root if isinstance(view, TreeView) else Core(view)


def costs_of(view: AnyView) -> Costs:
    """Computes the cost of every kind of update, and of a batch of all."""
    root = root_of(view)
    relations = tuple(
        RelationCosts(
            relation,
            {kind: _cost(root, frozenset({relation}), kind) for kind in KINDS},
            tuple(_spared(root, relation)),
        )
        for relation in view.relations
    )
    return Costs(relations, _cost(root, frozenset(view.relations), None))


def _cost(root: Node, relations: frozenset[Relation], kind: Kind | None) -> QuestionCost:
    """The cost of one kind; None stands for a batch with updates of all kinds."""
    rows = {"insertion": 1, "deletion": 1, "modification": 2}.get(kind or "", MANY)

    def asked(remembered: bool, nulls: bool) -> Rounds:
        happens = Occasion(
            relations, rows, kind != "insertion", kind != "deletion", remembered, nulls
        )
        return Following(happens).change(root).asked

    first, remembered = asked(False, False), asked(True, False)
    more = (
        number(asked(False, True)) - number(first),
        number(asked(True, True)) - number(remembered),
    )
    return QuestionCost(first, remembered, more)


def _whole(asked: Rounds) -> tuple[Relation, ...]:
    return tuple(dict.fromkeys(each.relation for r in asked for each in r if each.whole))


def _spared(root: Node, relation: Relation) -> Iterator[str]:
    """Updates that the view never notices: of other columns, or of rows that a condition drops."""
    atoms = [atom for atom in _atoms(root) if atom.relation == relation]
    read = {column for atom in atoms for column in _read(atom)}
    unread = [column for column in relation.column_names if column not in read]
    if unread:
        yield f"updates that change only {listed(unread)}"
    conditions = [atom.condition for atom in atoms]
    if None not in conditions:
        tests = list(dict.fromkeys(conditions_text((c,)) for c in conditions if c is not None))
        if len(tests) == 1:
            yield f"rows for which {tests[0]} is not true"
        else:
            yield f"rows for which none of {listed(tests)} is true"


def _atoms(root: Node) -> Iterator[Atom]:
    for node in tree.nodes(root):
        if isinstance(node, Core):
            yield from node.view.atoms


def _read(atom: Atom) -> set[str]:
    """The columns of an atom that the view reads, in the atom's own condition too."""
    tested = set() if atom.condition is None else columns_of(atom.condition)
    return {*atom.columns, *tested}
