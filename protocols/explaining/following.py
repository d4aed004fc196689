"""An update on its way through a view's tree, and the questions that it leads to.

Each operator is followed as it works (`operators/`): `change` is what its inputs ask and what it
asks itself because of it, `before` what it takes to know some of its rows as they were. No row is
looked at, so a question that may be spared because nothing is left to ask for counts as asked: the
numbers are what an update asks at most, and what it asks if it finds partners everywhere.

What is not known of rows is said by the occasion: which relations change, whether rows come or go,
whether the groups that they meet are remembered, and whether a key that may be NULL is.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, islice

from protocols.algebra.expressions import Column, Condition, columns_of, conjuncts
from protocols.analysis.dependencies import facts
from protocols.explaining.asked import Rounds, after_another, ask, number, side_by_side
from protocols.maintenance.batched_sweep import rounds
from protocols.operators.aggregates import is_remembered
from protocols.views import tree
from protocols.views.catalog import Relation
from protocols.views.plan import plan, step_to
from protocols.views.view import Atom, View

#: More rows than anybody counts.
MANY = 1_000_000
_NOTHING: Rounds = ()


@dataclass(frozen=True)
class Occasion:
    """What happens, and what is known then."""

    relations: frozenset[Relation]
    #: Of each relation at most so many rows change.
    rows: int
    #: Whether rows go: a deletion, or the old half of a modification.
    goes: bool
    #: Whether rows come.
    comes: bool
    #: Whether the operators remember all groups that it meets.
    remembered: bool
    #: Whether keys that may be NULL sometimes are.
    nulls: bool


@dataclass(frozen=True)
class Change:
    """What is known of the change of a node."""

    asked: Rounds
    #: At most so many rows; 0 says that it does not change.
    rows: int
    comes: bool
    goes: bool


_UNCHANGED = Change(_NOTHING, 0, False, False)


@dataclass(frozen=True)
class Wanted:
    """Keys that somebody asks a node for."""

    columns: frozenset[str]
    #: Those of them that may be NULL in a key.
    nulls: frozenset[str]
    #: At most so many keys.
    rows: int

    def of(self, columns: frozenset[str]) -> "Wanted":
        """The same without other columns."""
        return Wanted(self.columns & columns, self.nulls & columns, self.rows)


_NO_KEY = Wanted(frozenset(), frozenset(), MANY)


class Following:
    """One occasion, followed through a tree."""

    def __init__(self, occasion: Occasion) -> None:
        self._occasion = occasion

    # -- what a change asks ----------------------------------------------------------------------

    def change(self, node: tree.Node) -> Change:
        """How a node changes, and what is asked for that."""
        match node:
            case tree.Core(view):
                return self._change_of_core(view)
            case tree.Union(below):
                return _added([self.change(each) for each in below])
            case tree.Join():
                return self._change_of_join(node)
            case tree.Group():
                return self._change_of_group(node)
            case tree.Compute() | tree.Filter() | tree.Multiply():
                return self.change(node.input)

    def _change_of_core(self, view: View) -> Change:
        """The batched sweep, from every atom that changes."""
        happens = self._occasion
        bound = {atom: [atom] for atom in view.atoms if atom.relation in happens.relations}
        if not bound:
            return _UNCHANGED
        asked = []
        for visits in rounds(view):
            questions = []
            for visit in visits:
                keys = []
                for origin in bound.keys() & visit.origins:
                    step = step_to(view, bound[origin], visit.atom)
                    keys.append(tuple(column for column, _ in step.keys))
                    bound[origin].append(visit.atom)
                if keys:
                    questions.append(ask(visit.atom, *sorted(keys)))
            if questions:
                asked.append(tuple(questions))
        alone = len(view.atoms) == 1
        return Change(tuple(asked), happens.rows if alone else MANY, happens.comes, happens.goes)

    def _change_of_join(self, node: tree.Join) -> Change:
        sides = (self.change(node.left), self.change(node.right))
        if not any(each.rows for each in sides):
            return _UNCHANGED
        below = (node.left, node.right)
        reads = [self._read_by(node, side, below[side], sides) for side in (0, 1)]
        asked = after_another(side_by_side([each.asked for each in sides]), side_by_side(reads))
        return _joined(node.kind, asked, *sides)

    def _read_by(
        self, node: tree.Join, side: int, below: tree.Node, changes: tuple[Change, Change]
    ) -> Rounds:
        """What a join reads of one side because of these changes (see `Join._asked`)."""
        own, other = changes[side], changes[1 - side]
        pads = {"inner": (), "full": (0, 1)}.get(node.kind, (1,))
        counted = counts(node, side)
        spared = counted and self._occasion.remembered
        met = other.rows if not (spared and node.kind in ("semi", "anti")) else 0
        beside = own.rows if side in pads and not spared else 0
        if not met and not beside:
            return _NOTHING
        if not node.on:
            return self.before(below, None)
        columns = frozenset(pair[side] for pair in node.on)
        return self.before(below, Wanted(columns, frozenset(), met + beside))

    def _change_of_group(self, node: tree.Group) -> Change:
        below = self.change(node.input)
        if not below.rows:
            return _UNCHANGED
        asked = below.asked
        if not self._knows(node, below):
            asked = after_another(asked, self._groups(node, below.rows))
        if node.aggregates:
            return Change(asked, 2 * below.rows, True, True)
        return Change(asked, below.rows, below.comes, below.goes)

    def _knows(self, node: tree.Group, below: Change) -> bool:
        """Whether the groups can go on from what is remembered."""
        extremes = any(each.function in ("min", "max") for each in node.aggregates)
        remembered = self._occasion.remembered and is_remembered(node.aggregates)
        return remembered and not (extremes and below.goes)

    def _groups(self, node: tree.Group, rows: int) -> Rounds:
        """The rows of so many groups, before."""
        if not node.keys:
            return self.before(node.input, None)
        keys = frozenset(node.keys)
        return self.before(node.input, Wanted(keys, keys - facts(node.input).never_null, rows))

    # -- what the rows of before ask -------------------------------------------------------------

    def before(self, node: tree.Node, wanted: Wanted | None) -> Rounds:
        """What is asked for the rows that match keys; None wants all."""
        match node:
            case tree.Core(view):
                return self._core_before(view, wanted)
            case tree.Compute():
                return self.before(node.input, _passed(node, wanted))
            case tree.Filter() | tree.Multiply():
                return self.before(node.input, wanted)
            case tree.Union(below):
                return side_by_side([self.before(each, wanted) for each in below])
            case tree.Join():
                return self._join_before(node, wanted)
            case tree.Group():
                return self._group_before(node, wanted)

    def _core_before(self, view: View, wanted: Wanted | None) -> Rounds:
        """The rows of one atom by its keys, then the others one after the other."""
        if wanted is None:
            return _swept(view, view.atoms[0], (), ())
        places = {atom: _places(view, atom) for atom in view.atoms}
        atom = max(view.atoms, key=lambda each: len(places[each].keys() & wanted.columns))
        here = [name for name in view.schema if name in wanted.columns & places[atom].keys()]
        patterns = self._patterns(tuple(n for n in here if n in wanted.nulls), wanted.rows)
        sweeps = []
        for nulls in patterns:
            keys = tuple(places[atom][name] for name in here if name not in nulls)
            sweeps.append(_swept(view, atom, keys, tuple(places[atom][name] for name in nulls)))
        return side_by_side(sweeps)

    def _patterns(self, columns: tuple[str, ...], rows: int) -> Iterator[tuple[str, ...]]:
        """Which of these columns may be NULL together: each time a question of its own."""
        if not self._occasion.nulls:
            return iter([()])
        every = (some for size in range(len(columns) + 1) for some in combinations(columns, size))
        return islice(every, rows)

    def _join_before(self, node: tree.Join, wanted: Wanted | None) -> Rounds:
        """One side by the keys, the other by what was found there; or both whole."""
        mine, theirs = (_part(wanted, side) for side in (node.left, node.right))
        ways = []
        if mine is not None:
            ways.append(self._one_then_other(node, 0, mine))
            if not (node.kind == "full" and self._may_be_null(mine)):
                return ways[0]
        if theirs is not None:
            ways.append(self._one_then_other(node, 1, theirs))
            if node.kind in ("inner", "semi") or not self._may_be_null(theirs):
                return max(ways, key=_size)
        whole = side_by_side([self.before(side, None) for side in (node.left, node.right)])
        return max([*ways, whole], key=_size)

    def _one_then_other(self, node: tree.Join, first: int, wanted: Wanted) -> Rounds:
        below = (node.left, node.right)
        keys = None
        if node.on:
            keys = Wanted(frozenset(pair[1 - first] for pair in node.on), frozenset(), MANY)
        return after_another(self.before(below[first], wanted), self.before(below[1 - first], keys))

    def _may_be_null(self, wanted: Wanted) -> bool:
        """Whether some key may say nothing but NULL."""
        return self._occasion.nulls and wanted.columns <= wanted.nulls

    def _group_before(self, node: tree.Group, wanted: Wanted | None) -> Rounds:
        keys = frozenset(node.keys)
        named = wanted.of(keys) if wanted is not None else _NO_KEY
        remembered = self._occasion.remembered and is_remembered(node.aggregates)
        if remembered and named.columns == keys:
            return _NOTHING
        return self.before(node.input, named if named.columns else None)


# -- details of the operators ----------------------------------------------------------------------


def _swept(view: View, atom: Atom, keys: tuple[str, ...], nulls: tuple[str, ...]) -> Rounds:
    """The rows of a join that come from some rows of one atom."""
    first = ask(atom, keys, nulls=nulls) if keys else ask(atom, nulls=nulls)
    others = (
        (ask(step.atom, tuple(column for column, _ in step.keys)),)
        for step in plan(view, atom).steps
    )
    return ((first,), *others)


def _places(view: View, atom: Atom) -> dict[str, str]:
    """The outputs that an atom provides: name → column of its relation."""
    own = dict(atom.renaming)
    return {o.name: own[o.column] for o in view.outputs if o.column in own}


def counts(node: tree.Join, side: int) -> bool:
    """Whether a join remembers how many rows one side has per key (see `operators/joins.py`)."""
    if not node.on or node.kind == "inner" or any(_reads_both(node, test) for test in _tests(node)):
        return False
    return side == 1 or node.kind == "full"


def _tests(node: tree.Join) -> Iterator[Condition]:
    return iter(()) if node.condition is None else conjuncts(node.condition)


def _reads_both(node: tree.Join, test: Condition) -> bool:
    """Whether a condition is about pairs, and not about the rows of one side."""
    read = columns_of(test)
    return not any(read <= side.columns.keys() for side in (node.left, node.right))


def _part(wanted: Wanted | None, side: tree.Node) -> Wanted | None:
    """The keys of one side; None when none of their columns is there."""
    named = None if wanted is None else wanted.of(frozenset(side.columns))
    return named if named is not None and named.columns else None


def _passed(node: tree.Compute, wanted: Wanted | None) -> Wanted | None:
    """The keys as the input has them; None when all that is asked for is computed."""
    if wanted is None:
        return None
    passed = {n: value.name for n, value, _ in node.values if isinstance(value, Column)}
    columns = frozenset(passed[name] for name in wanted.columns & passed.keys())
    nulls = frozenset(passed[name] for name in wanted.nulls & passed.keys())
    return Wanted(columns, nulls, wanted.rows) if columns else None


def _added(parts: list[Change]) -> Change:
    """The change of a union."""
    changed = [part for part in parts if part.rows]
    return Change(
        side_by_side([part.asked for part in parts]),
        sum(part.rows for part in parts),
        any(part.comes for part in changed),
        any(part.goes for part in changed),
    )


def _size(asked: Rounds) -> tuple[int, bool]:
    """Whole relations weigh more."""
    return number(asked), any(each.whole for round_ in asked for each in round_)


def _joined(kind: tree.JoinKind, asked: Rounds, left: Change, right: Change) -> Change:
    """How a join changes when its sides do."""
    if kind == "anti":
        right = Change(right.asked, right.rows, right.goes, right.comes)
    both = kind == "full" or (kind == "left" and right.rows > 0)
    comes = both or left.comes or right.comes
    goes = both or left.goes or right.goes
    return Change(
        asked, left.rows if kind in ("semi", "anti") and not right.rows else MANY, comes, goes
    )
