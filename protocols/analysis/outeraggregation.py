"""The counts that a group over an outer join needs (Larson and Zhou, 3.3).

Beside its aggregates a group keeps the number of its rows, which says when it is gone, and how many
of them are not padded on each table that is padded in some term: at zero, every aggregate of that
table's columns is NULL. The paper stops there. A column that can be NULL in a row of its table
needs a count of its own, or SUM over nothing but NULL would come out as 0.

A group cannot be taken apart into terms again, so secondary deltas never come from such a view.
"""

from dataclasses import dataclass

from protocols.algebra import expressions as ex
from protocols.analysis.block import block_of
from protocols.analysis.normalform import NormalForm, normal_form
from protocols.analysis.wording import listed, value_text
from protocols.views.tree import Aggregate, Group


@dataclass(frozen=True)
class AggregateCounter:
    """An aggregate, and the count that says whether it had any value."""

    aggregate: str
    counter: str

    def __str__(self) -> str:
        return f"{self.aggregate} is NULL when {self.counter} is 0"


@dataclass(frozen=True)
class GroupCounters:
    """All counts that a group needs beside its aggregates."""

    #: Tables (leaves by their aliases) whose unpadded rows are counted.
    tables: tuple[tuple[str, ...], ...]
    #: Columns and values whose rows are counted where they are not NULL.
    values: tuple[str, ...]
    aggregates: tuple[AggregateCounter, ...]

    def __str__(self) -> str:
        counts = ["its rows", *(f"those with {listed(table)}" for table in self.tables)]
        counts += [f"those in which {value} is not NULL" for value in self.values]
        return "; ".join((f"a group counts {listed(counts)}", *map(str, self.aggregates)))


def group_counters(group: Group) -> GroupCounters:
    """The counters of a group over a block; NoNormalForm if there is no normal form below."""
    below = block_of(group.input)
    form = normal_form(below.block)
    padded = tuple(
        leaf for leaf in form.leaves if any(leaf[0] not in term.sources for term in form.terms)
    )
    counters = []
    values: dict[str, None] = {}
    for each in group.aggregates:
        if each.column is None or each.function == "count":
            continue
        value = below.columns[each.column]
        counter = _counter(form, padded, value)
        if counter is None:
            values[value_text(value)] = None
            counter = f"the number of rows in which {value_text(value)} is not NULL"
        counters.append(AggregateCounter(_named(each, value), counter))
    return GroupCounters(padded, tuple(values), tuple(counters))


def _counter(
    form: NormalForm, padded: tuple[tuple[str, ...], ...], value: ex.Expression
) -> str | None:
    """The count of rows or of a table that is enough; None if the value needs its own."""
    if not isinstance(value, ex.Column):
        return None
    alias = value.name.rpartition(".")[0]
    with_alias = [term for term in form.terms if alias in term.sources]
    if not all(value.name in form.never_null(term) for term in with_alias):
        return None
    leaf = next(leaf for leaf in form.leaves if alias in leaf)
    return f"the number of rows with {listed(leaf)}" if leaf in padded else "the number of rows"


def _named(each: Aggregate, value: ex.Expression) -> str:
    distinct = "DISTINCT " if each.distinct else ""
    return f"{each.function.upper()}({distinct}{value_text(value)})"
