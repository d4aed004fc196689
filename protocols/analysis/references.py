"""The relations that a view names, at its top and in its subqueries (Ceri and Widom, Section 2).

Three places matter, because rows that come and go there do different things to the view:

    top         FROM of the view: more rows make more rows
    positive    EXISTS, IN, … ANY: more rows make more rows, though one is as good as many
    negative    NOT EXISTS, NOT IN, … ALL: more rows make fewer rows

The paper counts `<> ANY` among the negative ones (Section 7). In SQL it is true if *some* row
differs, so it is positive; its negation is `= ALL`.

`referencereading` makes these from the SQL.
"""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from sqlglot import exp

from protocols.views.catalog import Relation


@dataclass(frozen=True)
class TableReference:
    """One occurrence of a relation, by a name that is its own in the whole view."""

    name: str
    relation: Relation
    #: All keys known of the relation, as columns `name.column`.
    keys: tuple[tuple[str, ...], ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(f"{self.name}.{column}" for column in self.relation.column_names)

    @property
    def never_null(self) -> tuple[str, ...]:
        """The columns of the key that its source keeps; others may hold NULL."""
        return tuple(f"{self.name}.{column}" for column in self.relation.key)


@dataclass(frozen=True)
class Conjunct:
    """One of the conditions that all have to hold."""

    text: str
    #: All columns that it mentions.
    columns: frozenset[str]
    #: The columns that it sets equal: two, or one if it is a constant that the other side is.
    equal: tuple[str, ...] = ()
    #: Whether it holds for no row in which one of its columns is NULL.
    rejects_null: bool = True


SubqueryKind: TypeAlias = Literal["positive", "negative"]


@dataclass(frozen=True)
class Subquery:
    """A condition with a SELECT in it, and the relations of that SELECT."""

    kind: SubqueryKind
    references: tuple[TableReference, ...]
    conjuncts: tuple[Conjunct, ...]
    #: What IN, ANY and ALL compare, each pair as a condition, and both sides of the pairs.
    compares: tuple[Conjunct, ...]
    compared: tuple[str, ...]
    node: exp.Expr = field(compare=False)
    #: The Table of each reference in the text.
    places: tuple[exp.Table, ...] = field(compare=False)


@dataclass(frozen=True)
class Selected:
    """One SELECT of a view."""

    references: tuple[TableReference, ...]
    #: The columns that it shows as they are.
    shown: tuple[str, ...]
    conjuncts: tuple[Conjunct, ...]
    subqueries: tuple[Subquery, ...]
    #: Relations where the paper's criteria do not reach.
    elsewhere: tuple[TableReference, ...]
    distinct: bool
    node: exp.Select = field(compare=False)
    places: tuple[exp.Table, ...] = field(compare=False)
