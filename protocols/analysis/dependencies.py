"""Dependencies between columns: which determine which, in the rows of every node of a tree.

A *dependency* X -> Y says: rows that agree on X (NULL agreeing with NULL) agree on Y. Beside the
columns there are *marks*: `#o` stands for "which row of o", so each key of a relation determines
its mark, and the mark determines all its columns. A set of columns that determines all marks of a
node determines its rows. Each node contributes:

    Core, Filter, inner Join   equalities: a = b makes each determine the other, a = 5 fixes a
    left Join                  a row of the left determines the columns it is joined on; the right
                               side is padded
    full Join                  both sides are padded; and if they are joined on their keys, COALESCE
                               of the two determines the row, unless it can be NULL
    Compute                    the columns that a value reads determine it
    Group                      its keys determine its one mark, and that determines its aggregates
    Multiply, Union            rows repeat: nothing determines them

Padding breaks X -> Y if X can also be NULL in other rows, for then a padded row agrees with one in
which Y has a value. It does not if Y is NULL wherever X is, and this stays so however often rows
are padded.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from protocols.algebra import expressions as ex
from protocols.algebra.nullrejection import never_null_where
from protocols.analysis.coalesce import coalesced
from protocols.views.catalog import Relation
from protocols.views.tree import (
    Compute,
    Constants,
    Core,
    Filter,
    Group,
    Join,
    Multiply,
    Node,
    Union,
    Window,
)

_NOTHING: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Dependency:
    """X -> Y."""

    x: frozenset[str]
    y: frozenset[str]
    #: Whether all of Y is NULL in every row in which all of X is.
    null_with_null: bool = False


@dataclass(frozen=True)
class Facts:
    """Everything that is known about the rows of a node."""

    dependencies: tuple[Dependency, ...]
    #: All of them together tell its rows apart.
    marks: frozenset[str]
    #: Columns and marks that are NULL in no row.
    never_null: frozenset[str]

    def determined_by(self, columns: Collection[str]) -> frozenset[str]:
        """The columns and marks that these columns determine."""
        found = set(columns)
        grown = True
        while grown:
            grown = False
            for each in self.dependencies:
                if each.x <= found and not each.y <= found:
                    found |= each.y
                    grown = True
        return frozenset(found)

    def tell_rows_apart(self, columns: Collection[str]) -> bool:
        """Whether no two rows agree on these columns."""
        return self.marks <= self.determined_by(columns)

    def has_no_null(self, value: ex.Expression) -> bool:
        """Whether a value is known to be NULL in no row."""
        match value:
            case ex.Column(name):
                return name in self.never_null
            case ex.Literal(constant, _):
                return constant is not None
        return False


def mark(alias: str) -> str:
    """The mark for the row of an alias."""
    return f"#{alias}"


def lacking_least(alias: str, relation: Relation, known: Collection[str]) -> tuple[str, ...]:
    """The unknown columns of the key that lacks the fewest; none for a bag."""
    keys = [tuple(f"{alias}.{column}" for column in key) for key in relation.all_keys]
    lacking = (tuple(column for column in key if column not in known) for key in keys)
    return min(lacking, key=len, default=())


def facts(node: Node) -> Facts:
    """Collects the facts about all rows of a node."""
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
        case Window(below):
            return facts(below)
        case Multiply(below):
            inner = facts(below)
            return replace(inner, marks=inner.marks | {mark("repetition")})
        case Union():
            return Facts((), frozenset({mark("union")}), _NOTHING)
        case Constants():
            return Facts((), frozenset({mark("constants")}), _NOTHING)


def inner_join(
    relations: Iterable[tuple[str, Relation]], conditions: Sequence[ex.Condition]
) -> Facts:
    """Collects the facts about an inner join of relations under their aliases."""
    dependencies: list[Dependency] = []
    marks: set[str] = set()
    never_null: set[str] = set()
    for alias, relation in relations:
        own = frozenset({mark(alias)})
        columns = frozenset(f"{alias}.{column}" for column in relation.column_names)
        dependencies.append(Dependency(own, columns))
        for key in relation.all_keys:
            dependencies.append(Dependency(frozenset(f"{alias}.{c}" for c in key), own))
        never_null |= {f"{alias}.{column}" for column in relation.never_null}
        marks |= own
    joined = Facts(tuple(dependencies), frozenset(marks), frozenset(never_null | marks))
    return conditioned(joined, conditions)


def conditioned(known: Facts, conditions: Sequence[ex.Condition]) -> Facts:
    """The facts about only those rows for which all conditions are true."""
    dependencies, never_null = list(known.dependencies), set(known.never_null)
    for condition in conditions:
        never_null |= never_null_where(condition, ex.columns_of(condition))
        match condition:
            case ex.Comparison(ex.Column(a), "=", ex.Column(b)):
                dependencies += _same(a, b)
            case ex.Comparison(ex.Column(a), "=", ex.Literal()) | ex.Comparison(
                ex.Literal(), "=", ex.Column(a)
            ):
                dependencies.append(Dependency(_NOTHING, frozenset({a})))
    return Facts(tuple(dependencies), known.marks, frozenset(never_null))


def _core(core: Core) -> Facts:
    """The facts of an inner join; `@` keeps the columns of its atoms apart from the tree's."""
    view = core.view
    conditions = [ex.renamed(each, lambda name: f"@{name}") for each in view.conditions]
    joined = inner_join(((f"@{atom.alias}", atom.relation) for atom in view.atoms), conditions)
    shown = [d for output in view.outputs for d in _same(output.name, f"@{output.column}")]
    never = {o.name for o in view.outputs if f"@{o.column}" in joined.never_null}
    return Facts(joined.dependencies + tuple(shown), joined.marks, joined.never_null | never)


def _join(node: Join) -> Facts:
    left, right = facts(node.left), facts(node.right)
    if node.kind in ("semi", "anti"):
        return left
    if node.kind == "inner":
        return conditioned(_beside(left, right), node.conditions)
    if node.kind == "left":
        # Only rows of the right that satisfy the conditions are shown.
        met = tuple(c for c in node.conditions if ex.columns_of(c) <= node.right.columns.keys())
        on = frozenset(() if node.nulls_equal else (b for _, b in node.on))
        seen = conditioned(right, met)
        seen = replace(seen, never_null=seen.never_null | on)
        joined = _beside(left, _padded(seen))
        by_left = Dependency(left.marks, on, null_with_null=True)
        return replace(joined, dependencies=(*joined.dependencies, by_left))
    joined = _beside(_padded(left), _padded(right))
    merged, never_null = _merged(node, left, right)
    return Facts(joined.dependencies + merged, joined.marks, never_null)


def _beside(left: Facts, right: Facts) -> Facts:
    return Facts(
        left.dependencies + right.dependencies,
        left.marks | right.marks,
        left.never_null | right.never_null,
    )


def _padded(known: Facts) -> Facts:
    """The facts about these rows plus one that is NULL throughout.

    For a dependency to hold for that row too, its left side needs a column that is NULL nowhere
    else.
    """
    return Facts(tuple(_holding_when_padded(known)), known.marks, _NOTHING)


def _holding_when_padded(known: Facts) -> Iterator[Dependency]:
    for each in known.dependencies:
        if each.null_with_null or each.x & known.never_null:
            yield replace(each, null_with_null=True)
        else:
            for column in sorted(known.never_null):
                yield Dependency(each.x | {column}, each.y, null_with_null=True)


def _merged(node: Join, left: Facts, right: Facts) -> tuple[tuple[Dependency, ...], frozenset[str]]:
    """The facts about COALESCE of a full join's columns, which may even determine the row."""
    same = [d for a, b in node.on for d in _same(_coalesced(a, b), _coalesced(b, a))]
    ours, theirs = frozenset(a for a, _ in node.on), frozenset(b for _, b in node.on)
    one_to_one = left.tell_rows_apart(ours) and right.tell_rows_apart(theirs)
    never_null = ours <= left.never_null and theirs <= right.never_null
    if not never_null:
        return tuple(same), _NOTHING
    keys = frozenset(_coalesced(a, b) for a, b in node.on)
    if one_to_one and node.condition is None:
        same.append(Dependency(keys, left.marks | right.marks))
    return tuple(same), keys


def _coalesced(a: str, b: str) -> str:
    """The name that stands for COALESCE(a, b)."""
    return f"coalesce of {a}, else {b}"


def _compute(known: Facts, values: Sequence[tuple[str, ex.Expression, object]]) -> Facts:
    dependencies, never_null = list(known.dependencies), set(known.never_null)
    for name, value, _ in values:
        if isinstance(value, ex.Column) and value.name == name:
            continue
        dependencies.append(Dependency(frozenset(ex.columns_of(value)), frozenset({name})))
        parts = coalesced(value) or (value,)
        if any(map(known.has_no_null, parts)):
            never_null.add(name)
        match parts:
            case (ex.Column(below),):
                dependencies += _same(name, below)
            case (ex.Column(a), ex.Column(b)):
                dependencies += _same(name, _coalesced(a, b))
                if _coalesced(a, b) in known.never_null:
                    never_null.add(name)
    return Facts(tuple(dependencies), known.marks, frozenset(never_null))


def _group(node: Group) -> Facts:
    """The facts of a row per combination of keys; dependencies among the keys hold here too."""
    inner = facts(node.input)
    own = frozenset({mark(f"group of {', '.join(node.columns)}")})
    keys = frozenset(node.keys)
    dependencies = (Dependency(keys, own), Dependency(own, frozenset(node.columns)))
    counts = {each.name for each in node.aggregates if each.function == "count"}
    return Facts(
        dependencies + (inner.dependencies if keys else ()),
        own,
        (keys & inner.never_null) | counts | own,
    )


def _same(a: str, b: str) -> list[Dependency]:
    """The dependencies of two names of one value, NULL included."""
    one, other = frozenset({a}), frozenset({b})
    return [
        Dependency(one, other, null_with_null=True),
        Dependency(other, one, null_with_null=True),
    ]
