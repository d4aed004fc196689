"""The outer-join block of a view: joins and selections over leaves, in the names of aliases.

A tree (`views/tree.py`) names each column once, whatever its name was below. The paper and the
reader of a plan think in tables. So here every column is `alias.column` again, and the values that
SELECT lists compute on the way up are put into the conditions that use them.

A leaf is kept by a protocol as one inner join, so it has one alias or several; these come and go
together. Any other input of a join (groups, unions, rows that EXISTS lets through) is a leaf too,
together with the selections on it, and its one alias is its formula (`formula.py`).

So a block ends above a condition with a subquery, such as `r.c NOT IN (SELECT …)`: the joins below
it have the normal form that they would have without it.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

from protocols.algebra import expressions as ex
from protocols.algebra.expressions import in_condition, in_value
from protocols.algebra.nullrejection import rejects_null
from protocols.analysis.formula import SYMBOLS, formula
from protocols.analysis.wording import conditions_text
from protocols.views.catalog import Relation
from protocols.views.normal.links import exact
from protocols.views.tree import Compute, Core, Filter, Join, Node, inputs
from protocols.views.view import View

Conditions: TypeAlias = tuple[ex.Condition, ...]


@dataclass(frozen=True)
class Leaf:
    """An inner join, treated as one; Δ stands before the alias whose update is traced."""

    aliases: tuple[str, ...]
    #: The relation of each alias; None for a leaf that is not an inner join of relations.
    relations: tuple[Relation, ...] | None
    conditions: Conditions
    updated: str | None = None

    def __str__(self) -> str:
        names = [f"Δ{alias}" if alias == self.updated else alias for alias in self.aliases]
        return names[0] if len(names) == 1 else f"({' ⋈ '.join(names)})"


@dataclass(frozen=True)
class Selection:
    """The rows of a block for which all conditions are true."""

    input: "Block"
    conditions: Conditions

    @property
    def aliases(self) -> tuple[str, ...]:
        return self.input.aliases

    def __str__(self) -> str:
        return f"({self.input} where {conditions_text(self.conditions)})"


JoinKind: TypeAlias = Literal["inner", "left", "right", "full"]


@dataclass(frozen=True)
class Joined:
    """The pairs for which all conditions are true, and the rows that an outer join pads."""

    kind: JoinKind
    left: "Block"
    right: "Block"
    conditions: Conditions

    @cached_property
    def aliases(self) -> tuple[str, ...]:
        return self.left.aliases + self.right.aliases

    def __str__(self) -> str:
        return f"{_operand(self.left)} {SYMBOLS[self.kind]} {_operand(self.right)}"


@dataclass(frozen=True)
class NullIf:
    """Pads further aliases where one alias is padded, then drops subsumed rows.

    The operator λ of the paper (4.1). The paper drops only duplicates afterwards, which is not
    enough: see `leftdeep`.
    """

    input: "Block"
    missing: tuple[str, ...]
    padded: tuple[str, ...]

    @property
    def aliases(self) -> tuple[str, ...]:
        return self.input.aliases

    def __str__(self) -> str:
        return f"λ[{' '.join(self.padded)} unless {' '.join(self.missing)}]({self.input})"


Block: TypeAlias = Leaf | Selection | Joined | NullIf


@dataclass(frozen=True)
class NamedBlock:
    """A block, and the meaning of each column of the node that it was read from."""

    block: Block
    columns: Mapping[str, ex.Expression]

    def of(self, column: ex.Column) -> ex.Expression:
        """The value that a column of the node stands for."""
        return self.columns[column.name]

    @property
    def exposed(self) -> frozenset[str]:
        """The columns `alias.column` that the node's rows contain unchanged."""
        return frozenset(v.name for v in self.columns.values() if isinstance(v, ex.Column))


def outer_blocks(root: Node) -> Iterator[Node]:
    """The highest nodes of a tree at which a block with an outer join begins."""
    within = tuple(_within(root))
    if any(isinstance(node, Join) and node.kind != "inner" for node in within):
        yield root
    edge = (below for node in within or (root,) for below in inputs(node))
    for below in edge:
        if not _is_within(below) or not within:
            yield from outer_blocks(below)


def block_of(node: Node) -> NamedBlock:
    """The block that begins at a node and reaches down from it."""
    if _is_other(node):
        return _other(node)
    match node:
        case Core(view):
            return _core(view)
        case Compute(below, values):
            inner = block_of(below)
            columns = {name: in_value(value, inner.of) for name, value, _ in values}
            return NamedBlock(inner.block, columns)
        case Filter(below, condition):
            inner = block_of(below)
            conditions = tuple(ex.conjuncts(in_condition(condition, inner.of)))
            return NamedBlock(Selection(inner.block, conditions), inner.columns)
        case Join(_, left, right):
            return _joined(node, block_of(left), block_of(right))
    raise AssertionError(f"{type(node).__name__} is not part of a block")


def leaves(block: Block) -> Iterator[Leaf]:
    """The leaves of a block, from the left."""
    match block:
        case Leaf():
            yield block
        case Joined(_, left, right, _):
            yield from leaves(left)
            yield from leaves(right)
        case Selection(below) | NullIf(below):
            yield from leaves(below)


def aliases_in(condition: ex.Condition) -> frozenset[str]:
    """The aliases whose columns a condition mentions."""
    return frozenset(column.rpartition(".")[0] for column in ex.columns_of(condition))


def columns_of_aliases(condition: ex.Condition, aliases: frozenset[str]) -> frozenset[str]:
    """The columns of these aliases that a condition mentions."""
    mentioned = ex.columns_of(condition)
    return frozenset(column for column in mentioned if column.rpartition(".")[0] in aliases)


def reject_padding(conditions: Conditions, aliases: Collection[str]) -> bool:
    """Whether the conditions hold for no row that is padded on all these aliases."""
    columns = (columns_of_aliases(each, frozenset(aliases)) for each in conditions)
    return any(c and rejects_null(e, c) for e, c in zip(conditions, columns, strict=True))


def _operand(block: Block) -> str:
    return f"({block})" if isinstance(block, Joined) else str(block)


def _is_other(node: Node) -> bool:
    """Whether a node is a leaf that is not an inner join of relations."""
    match node:
        case Core():
            return False
        case Join(kind):
            return kind in ("semi", "anti") or node.of_subquery
        case Filter(below) | Compute(below):
            return _is_other(below)
        case _:
            return True


def _is_within(node: Node) -> bool:
    """Whether a node is part of a block, but not a leaf."""
    return not isinstance(node, Core) and not _is_other(node)


def _within(node: Node) -> Iterator[Node]:
    """The nodes of the block that begins at a node, without its leaves."""
    if _is_within(node):
        yield node
        for below in inputs(node):
            yield from _within(below)


def _joined(node: Join, left: NamedBlock, right: NamedBlock) -> NamedBlock:
    both = NamedBlock(left.block, {**left.columns, **right.columns})
    pairs = [(both.columns[a], both.columns[b]) for a, b in node.on]
    others = (in_condition(each, both.of) for each in ex.conjuncts(node.condition))
    equal = (ex.same(a, b) for a, b in pairs) if node.nulls_equal else _equalities(pairs)
    conditions = (*equal, *others)
    block = Joined(node.kind, left.block, right.block, conditions)  # type: ignore[arg-type]
    return NamedBlock(block, both.columns)


def _equalities(pairs: Sequence[tuple[ex.Expression, ex.Expression]]) -> Iterator[ex.Condition]:
    """The conditions that all pairs are equal; a pair of two types, joined on twice, gives one."""
    written = [ex.Comparison(_compared(a), "=", _compared(b)) for a, b in pairs]
    for number, (left, right) in enumerate(pairs):
        if written.count(written[number]) == 1:
            yield ex.Comparison(left, "=", right)
        elif number == written.index(written[number]):
            yield written[number]


def _compared(value: ex.Expression) -> ex.Expression:
    """The value that the text compares, if a converted one is joined on (`normal/links.py`)."""
    match value:
        case ex.Call("cast", (inner,), _):
            return inner
        case _:
            return exact(value) or value


def _core(view: View) -> NamedBlock:
    aliases = tuple(atom.alias for atom in view.atoms)
    leaf = Leaf(aliases, tuple(atom.relation for atom in view.atoms), view.conditions)
    return NamedBlock(leaf, {o.name: ex.Column(o.column) for o in view.outputs})


def _other(node: Node) -> NamedBlock:
    alias = formula(node)
    own = [column.rpartition(".")[2] for column in node.columns]

    def named(column: str, short: str) -> ex.Column:
        return ex.Column(f"{alias}.{short if own.count(short) == 1 else column.replace('.', '_')}")

    columns = {
        column: named(column, short) for column, short in zip(node.columns, own, strict=True)
    }
    return NamedBlock(Leaf((alias,), None, ()), columns)
