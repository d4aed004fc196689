"""Which columns determine which, in the rows of every node of a view's tree.

A *dependency* X -> Y says: rows that agree on X (NULL agreeing with NULL) agree on Y. Beside the
columns there are *marks*: `#o` stands for "which row of o", so a relation's key determines its
mark, and the mark all its columns. A set of columns that determines all marks of a node determines
its rows. What each node does:

    Core, Filter, inner Join   equalities: a = b makes each determine the other, a = 5 makes a known
    left Join                  a row of the left determines what it is joined on. The padded side
                               keeps what speaks of a column that is NULL only where it is padded
    full Join                  the same for both sides; and if the sides are joined on their keys,
                               COALESCE of the two determines the row, unless it can be NULL
    Compute                    a value is determined by what it is computed from
    Group                      its keys determine its one mark, and that determines its aggregates
    Multiply, Union            rows repeat: nothing determines them
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from protocols.algebra import expressions as ex
from protocols.algebra.substitution import in_condition
from protocols.analysis.nullrejection import never_null_where
from protocols.views.catalog import Relation
from protocols.views.tree import Compute, Core, Filter, Group, Join, Multiply, Node, Union

#: (X, Y) for X -> Y.
Dependency: TypeAlias = tuple[frozenset[str], frozenset[str]]
_NOTHING: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Facts:
    """What is known about all rows of a node."""

    dependencies: tuple[Dependency, ...]
    #: All of them together tell its rows apart.
    marks: frozenset[str]
    #: Columns that are NULL in no row.
    never_null: frozenset[str]

    def determined_by(self, columns: Collection[str]) -> frozenset[str]:
        """The columns and marks that these columns determine."""
        found = set(columns)
        grown = True
        while grown:
            grown = False
            for these, those in self.dependencies:
                if these <= found and not those <= found:
                    found |= those
                    grown = True
        return frozenset(found)

    def tell_rows_apart(self, columns: Collection[str]) -> bool:
        """Whether no two rows agree on these columns."""
        return self.marks <= self.determined_by(columns)


def mark(alias: str) -> str:
    """Stands for the row of an alias."""
    return f"#{alias}"


def facts(node: Node) -> Facts:
    """What is known about all rows of a node."""
    match node:
        case Core():
            return _core(node)
        case Filter(below, condition):
            return conditioned(facts(below), tuple(ex.conjuncts(condition)))
        case Join():
            return _join(node)
        case Compute(below, values):
            return _compute(facts(below), values)
        case Group():
            return _group(node)
        case Multiply(below):
            inner = facts(below)
            return Facts(inner.dependencies, inner.marks | {mark("repetition")}, inner.never_null)
        case Union():
            return Facts((), frozenset({mark("union")}), _NOTHING)


def inner_join(
    relations: Iterable[tuple[str, Relation]], conditions: Sequence[ex.Condition]
) -> Facts:
    """What is known about an inner join of relations under their aliases."""
    dependencies: list[Dependency] = []
    marks: set[str] = set()
    never_null: set[str] = set()
    for alias, relation in relations:
        marks.add(mark(alias))
        columns = frozenset(f"{alias}.{column}" for column in relation.column_names)
        dependencies.append((frozenset({mark(alias)}), columns))
        if relation.key:
            key = frozenset(f"{alias}.{column}" for column in relation.key)
            dependencies.append((key, frozenset({mark(alias)})))
            never_null |= key
    joined = Facts(tuple(dependencies), frozenset(marks), frozenset(never_null))
    return conditioned(joined, conditions)


def conditioned(known: Facts, conditions: Sequence[ex.Condition]) -> Facts:
    """The same about those rows only for which all conditions are true."""
    dependencies, never_null = list(known.dependencies), set(known.never_null)
    for condition in conditions:
        never_null |= never_null_where(condition, ex.columns_of(condition))
        match condition:
            case ex.Comparison(ex.Column(a), "=", ex.Column(b)):
                dependencies += _both_ways(a, b)
            case ex.Comparison(ex.Column(a), "=", ex.Literal()) | ex.Comparison(
                ex.Literal(), "=", ex.Column(a)
            ):
                dependencies.append((_NOTHING, frozenset({a})))
    return Facts(tuple(dependencies), known.marks, frozenset(never_null))


def _core(core: Core) -> Facts:
    """An inner join; `@` tells the columns of its atoms from those that the tree calls the same."""
    view = core.view
    conditions = [
        in_condition(each, lambda column, atom=atom: ex.Column(f"@{atom.qualified(column.name)}"))  # type: ignore[misc]
        for atom in view.atoms
        if atom.condition is not None
        for each in ex.conjuncts(atom.condition)
    ]
    for link in view.links:
        ends = (f"@{view.atoms[index].qualified(c)}" for index, c in (link.left, link.right))
        left, right = map(ex.Column, ends)
        conditions.append(ex.Comparison(left, "=", right))
    for residual in view.residuals:
        named = in_condition(residual, lambda column: ex.Column(f"@{column.name}"))
        conditions += ex.conjuncts(named)
    joined = inner_join(((f"@{atom.alias}", atom.relation) for atom in view.atoms), conditions)
    shown = [d for output in view.outputs for d in _both_ways(output.name, f"@{output.column}")]
    never = {o.name for o in view.outputs if f"@{o.column}" in joined.never_null}
    return Facts(joined.dependencies + tuple(shown), joined.marks, joined.never_null | never)


def _join(node: Join) -> Facts:
    left, right = facts(node.left), facts(node.right)
    if node.kind in ("semi", "anti"):
        return left
    pairs = (ex.Comparison(ex.Column(a), "=", ex.Column(b)) for a, b in node.on)
    others = ex.conjuncts(node.condition) if node.condition is not None else ()
    conditions = (*pairs, *others)
    if node.kind == "inner":
        return conditioned(_beside(left, right), conditions)
    if node.kind == "left":
        # Only rows of the right that satisfy the conditions are seen.
        met = tuple(c for c in conditions if ex.columns_of(c) <= node.right.columns.keys())
        seen = conditioned(right, met)
        on = frozenset(b for _, b in node.on)
        seen = Facts(seen.dependencies, seen.marks, seen.never_null | on)
        both = _beside(left, _padded(seen))
        return Facts((*both.dependencies, (left.marks, on)), both.marks, left.never_null)
    both = _beside(_padded(left), _padded(right))
    merged = _merged(node, left, right) if node.condition is None else ()
    return Facts(both.dependencies + merged, both.marks, _NOTHING)


def _beside(left: Facts, right: Facts) -> Facts:
    return Facts(
        left.dependencies + right.dependencies,
        left.marks | right.marks,
        left.never_null | right.never_null,
    )


def _padded(known: Facts) -> Facts:
    """The same about rows some of which are NULL throughout.

    X -> Y may fail between such a row and one that happens to be NULL in X. It holds where X has a
    column that is NULL only there; so one is added where it has none.
    """
    telling = known.never_null | known.marks
    dependencies = [each for each in known.dependencies if each[0] & telling]
    for these, those in known.dependencies:
        if not these & telling:
            dependencies += [(these | {column}, those) for column in sorted(telling)]
    return Facts(tuple(dependencies), known.marks, _NOTHING)


def _merged(node: Join, left: Facts, right: Facts) -> tuple[Dependency, ...]:
    """What COALESCE of the columns of a full join says, in either order the same."""
    same = [d for a, b in node.on for d in _both_ways(_coalesced(a, b), _coalesced(b, a))]
    ours, theirs = frozenset(a for a, _ in node.on), frozenset(b for _, b in node.on)
    one_to_one = left.tell_rows_apart(ours) and right.tell_rows_apart(theirs)
    if one_to_one and ours <= left.never_null and theirs <= right.never_null:
        keys = frozenset(_coalesced(a, b) for a, b in node.on)
        same.append((keys, left.marks | right.marks))
    return tuple(same)


def _coalesced(a: str, b: str) -> str:
    """Stands for COALESCE(a, b)."""
    return f"coalesce of {a}, else {b}"


def _compute(known: Facts, values: Sequence[tuple[str, ex.Expression, object]]) -> Facts:
    dependencies, never_null = list(known.dependencies), set(known.never_null)
    for name, value, _ in values:
        match value:
            case ex.Column(below):
                dependencies += _both_ways(name, below) if name != below else ()
                never_null |= {name} if below in known.never_null else set()
            case ex.Call(function, (ex.Column(a), ex.Column(b)), _) if (
                function.lower() == "coalesce"
            ):
                dependencies += _both_ways(name, _coalesced(a, b))
                never_null |= {name} if {a, b} & known.never_null else set()
                dependencies.append((frozenset({a, b}), frozenset({name})))
            case _:
                dependencies.append((frozenset(ex.columns_of(value)), frozenset({name})))
    return Facts(tuple(dependencies), known.marks, frozenset(never_null))


def _group(node: Group) -> Facts:
    """A row per combination of keys; what its keys say of each other its rows say of theirs."""
    inner = facts(node.input)
    own = frozenset({mark(f"group of {', '.join(node.columns)}")})
    keys = frozenset(node.keys)
    dependencies = ((keys, own), (own, frozenset(node.columns)))
    never_null = (keys & inner.never_null) | {
        each.name for each in node.aggregates if each.function == "count"
    }
    return Facts(dependencies + (inner.dependencies if keys else ()), own, never_null)


def _both_ways(a: str, b: str) -> list[Dependency]:
    one, other = frozenset({a}), frozenset({b})
    return [(one, other), (other, one)]
