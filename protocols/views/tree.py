"""A view that is more than one inner join, as a tree: joins of sources below, operators above.

Each leaf is a `Core`, an inner join that the sources are asked about (`view.View`), or rows that
the text lists. The nodes above it are computed locally, from the changes of their inputs and, for
the groups that these touch, from the rows before the change:

    Compute, Filter, Union, Multiply    linear: a change needs nothing but itself
    Join, Group, Window                 not linear: a change needs the rows that it meets

All other SQL is written with these. DISTINCT is a Group without aggregates; IN, EXISTS and a
subquery in a comparison are a left Join with a Group; INTERSECT and EXCEPT are a Group over a Union
in which each row carries its side.

Each column name occurs once in the whole tree, so no operator has to rename.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

from protocols.algebra.expressions import Column, Comparison, Condition, Expression, conjuncts, same
from protocols.algebra.types import ColumnType
from protocols.views.catalog import Relation
from protocols.views.dialects import Dialect
from protocols.views.view import View


@dataclass(frozen=True, eq=False)
class Core:
    """An inner join of relations, kept by a protocol; its outputs have names of their own."""

    view: View

    @cached_property
    def columns(self) -> dict[str, ColumnType]:
        return dict(self.view.schema)


@dataclass(frozen=True, eq=False)
class Constants:
    """Rows that the text lists (VALUES, SELECT without FROM); they never change."""

    named: tuple[tuple[str, ColumnType], ...]
    rows: tuple[tuple[Any, ...], ...]

    @cached_property
    def columns(self) -> dict[str, ColumnType]:
        return dict(self.named)


@dataclass(frozen=True, eq=False)
class Compute:
    """One row for each input row: (name, value). Unwanted columns are left out."""

    input: "Node"
    values: tuple[tuple[str, Expression, ColumnType], ...]

    @cached_property
    def columns(self) -> dict[str, ColumnType]:
        return {name: type_ for name, _, type_ in self.values}

    @property
    def is_plain(self) -> bool:
        """Whether nothing is computed: every value is a column of the input."""
        return all(isinstance(value, Column) for _, value, _ in self.values)


@dataclass(frozen=True, eq=False)
class Filter:
    """The rows for which a condition is true."""

    input: "Node"
    condition: Condition

    @property
    def columns(self) -> dict[str, ColumnType]:
        return self.input.columns


@dataclass(frozen=True, eq=False)
class Union:
    """UNION ALL; the inputs have the same columns."""

    inputs: tuple["Node", ...]

    @property
    def columns(self) -> dict[str, ColumnType]:
        return self.inputs[0].columns


@dataclass(frozen=True, eq=False)
class Multiply:
    """Each row as often as one of its columns says; that column is left out."""

    input: "Node"
    times: str

    @cached_property
    def columns(self) -> dict[str, ColumnType]:
        return {name: type_ for name, type_ in self.input.columns.items() if name != self.times}


JoinKind: TypeAlias = Literal["inner", "left", "full", "semi", "anti"]
_JOINS: dict[JoinKind, str] = {
    "inner": "join",
    "left": "left join",
    "full": "full join",
    "semi": "exists",
    "anti": "not exists",
}


@dataclass(frozen=True, eq=False)
class Join:
    """All pairs of rows that agree and satisfy the condition, and rows without a partner.

    A row without a partner is padded with NULL. A right join is a left join with its sides
    exchanged. A "semi" join shows only the rows of the left that have a partner (EXISTS), an "anti"
    join those that have none.
    """

    kind: JoinKind
    left: "Node"
    right: "Node"
    #: Equalities, (column of the left, column of the right).
    on: tuple[tuple[str, str], ...]
    #: A further condition on pairs.
    condition: Condition | None = None
    #: Whether it adds the values of a subquery in an expression, rather than a JOIN in FROM.
    of_subquery: bool = False
    #: Whether NULL equals NULL in `on`, as with IS NOT DISTINCT FROM; else it equals nothing.
    nulls_equal: bool = False

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """All conditions on a pair, one by one."""
        pairs = ((Column(ours), Column(theirs)) for ours, theirs in self.on)
        equal = (
            same(one, other) if self.nulls_equal else Comparison(one, "=", other)
            for one, other in pairs
        )
        return (*equal, *conjuncts(self.condition))

    @cached_property
    def columns(self) -> dict[str, ColumnType]:
        if self.kind in ("semi", "anti"):
            return self.left.columns
        return {**self.left.columns, **self.right.columns}


AggregateFunction: TypeAlias = Literal["count", "sum", "avg", "min", "max"]


@dataclass(frozen=True)
class Aggregate:
    """One aggregate of a Group."""

    name: str
    function: AggregateFunction
    #: None stands for COUNT(*), the number of rows.
    column: str | None
    type: ColumnType
    distinct: bool = False


#: The set operations that a Group over a Union decides.
SetOperation: TypeAlias = Literal["intersect", "intersect all", "except", "except all"]


@dataclass(frozen=True, eq=False)
class Group:
    """A row per combination of keys that occurs (NULL equals NULL), with its aggregates.

    Without keys there is always one row, also over nothing.
    """

    input: "Node"
    keys: tuple[str, ...]
    aggregates: tuple[Aggregate, ...]
    #: The operation of the text that its counts are for; the input is the Union of the two sides.
    sides_of: SetOperation | None = None

    @cached_property
    def columns(self) -> dict[str, ColumnType]:
        keys = {key: self.input.columns[key] for key in self.keys}
        return {**keys, **{each.name: each.type for each in self.aggregates}}


WindowFunctionName: TypeAlias = Literal[
    "row_number", "rank", "dense_rank", "lag", "lead", "first_value", "last_value"
]


@dataclass(frozen=True)
class Frame:
    """The rows that a window function reads, from `start` to `end`; None is unbounded.

    In "rows" these are numbers of rows from the current one on. In "range" 0 stands for the rows
    equal in the order.
    """

    kind: Literal["rows", "range"]
    start: int | None
    end: int | None


@dataclass(frozen=True)
class WindowFunction:
    """One function of a Window."""

    name: str
    function: WindowFunctionName | AggregateFunction
    #: None stands for COUNT(*), and for functions of the order alone.
    column: str | None
    type: ColumnType
    frame: Frame
    #: For LAG and LEAD: how many rows later, and the column to show where there is none.
    distance: int = 0
    default: str | None = None


@dataclass(frozen=True)
class OrderKey:
    """A column by which the rows of a partition are ordered."""

    name: str
    descending: bool = False
    nulls_first: bool = False


@dataclass(frozen=True, eq=False)
class Window:
    """Each row with values computed from the rows of its partition, in an order."""

    input: "Node"
    partition: tuple[str, ...]
    order: tuple[OrderKey, ...]
    functions: tuple[WindowFunction, ...]

    @cached_property
    def columns(self) -> dict[str, ColumnType]:
        return {**self.input.columns, **{each.name: each.type for each in self.functions}}


Node: TypeAlias = Core | Constants | Compute | Filter | Union | Multiply | Join | Group | Window


def inputs(node: Node) -> tuple[Node, ...]:
    """The nodes right below a node."""
    match node:
        case Core() | Constants():
            return ()
        case Union(below):
            return below
        case Join():
            return node.left, node.right
        case _:
            return (node.input,)


def nodes(node: Node) -> Iterator[Node]:
    """The node and everything below it, from above and from the left."""
    yield node
    for below in inputs(node):
        yield from nodes(below)


def relations(node: Node) -> tuple[Relation, ...]:
    """The relations below a node, from the left."""
    cores = (each.view for each in nodes(node) if isinstance(each, Core))
    return tuple(dict.fromkeys(relation for core in cores for relation in core.relations))


def headline(node: Node) -> str:
    """A short name for the operator of a node."""
    match node:
        case Join(kind):
            return _JOINS[kind]
        case Group(_, keys, aggregates):
            word = "group by" if aggregates else "distinct"
            return f"{word} {', '.join(keys)}" if keys else "one group of all rows"
        case Window(_, partition):
            return f"window per {', '.join(partition)}"
    return type(node).__name__.lower()


@dataclass(frozen=True, eq=False)
class TreeView:
    """A view whose rows are those of the root of a tree."""

    name: str
    sql: str
    root: Node
    #: None if it says only what the databases agree on.
    dialect: Dialect | None = None

    @property
    def schema(self) -> dict[str, ColumnType]:
        return self.root.columns

    @cached_property
    def cores(self) -> tuple[View, ...]:
        """Its inner joins, from the left."""
        return tuple(node.view for node in nodes(self.root) if isinstance(node, Core))

    @cached_property
    def relations(self) -> tuple[Relation, ...]:
        return relations(self.root)

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(relation.source for relation in self.relations))

    def relations_of(self, source: str) -> tuple[Relation, ...]:
        return tuple(relation for relation in self.relations if relation.source == source)


#: The views that a job can keep.
AnyView: TypeAlias = View | TreeView
