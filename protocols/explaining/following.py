"""Follows an update through a view's tree, and collects the questions that it leads to.

Operators state what they ask (`operators/statements.py`), and these statements are followed:
`change` gives the questions of an operator's inputs and its own that result from them, `before` the
questions for some of its rows as they were. No row is read, so a question counts as asked even if
it may be spared because there is nothing left to ask for: the numbers are the most that an update
asks, and exact if it finds partners everywhere.

The occasion makes up for the unread rows: it says which relations change, whether rows come or go,
whether the groups that they meet are remembered, and whether keys that may be NULL are.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice

from protocols.analysis.dependencies import facts
from protocols.explaining.asked import Rounds, after_another, ask, number, side_by_side
from protocols.maintenance.batched_sweep import rounds
from protocols.operators.cores import first_atom, places
from protocols.operators.statements import Read, leading_side, statement
from protocols.views import tree
from protocols.views.catalog import Relation
from protocols.views.plan import plan, step_to
from protocols.views.view import Atom, View

#: More rows than anyone counts.
MANY = 1_000_000
_NOTHING: Rounds = ()


@dataclass(frozen=True)
class Occasion:
    """The events to follow, and the knowledge that is there then."""

    relations: frozenset[Relation]
    #: The most rows that change in each relation.
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
class ChangeFacts:
    """The known facts about the change of a node."""

    asked: Rounds
    #: The most rows that change; 0 says that the node does not change.
    rows: int
    comes: bool
    goes: bool


_UNCHANGED = ChangeFacts(_NOTHING, 0, False, False)


@dataclass(frozen=True)
class WantedKeys:
    """Keys that a node is asked for."""

    columns: frozenset[str]
    #: Those of them that may be NULL in a key.
    nulls: frozenset[str]
    #: The most keys.
    rows: int


_NO_KEY = WantedKeys(frozenset(), frozenset(), MANY)


class Following:
    """Follows one occasion through a tree."""

    def __init__(self, occasion: Occasion) -> None:
        self._occasion = occasion

    # -- questions of a change -------------------------------------------------------------------

    def change(self, node: tree.Node) -> ChangeFacts:
        """How a node changes, and the questions for that."""
        if isinstance(node, tree.Core):
            return self._change_of_core(node.view)
        below = [self.change(each) for each in tree.inputs(node)]
        if not any(each.rows for each in below):
            return _UNCHANGED
        reads = [self._read(node, read, below) for read in statement(node).reads]
        asked = after_another(side_by_side([each.asked for each in below]), side_by_side(reads))
        return _changed(node, asked, below)

    def _read(self, node: tree.Node, read: Read, changes: Sequence[ChangeFacts]) -> Rounds:
        """The questions for rows of an input that an operator reads because of these changes."""
        concerned = [changes[i] for i in read.because_of if not self._spares(read, i, changes[i])]
        rows = sum(each.rows for each in concerned)
        if not rows:
            return _NOTHING
        below = tree.inputs(node)[read.input]
        if not read.by:
            return self.before(below, None)
        keys = frozenset(read.by)
        # The keys of a join come from its other side, which may have NULLs where this one has none.
        never = frozenset[str]() if isinstance(node, tree.Join) else facts(below).never_null
        nulls = keys - never if read.nulls else frozenset()
        return self.before(below, WantedKeys(keys, nulls, rows))

    def _spares(self, read: Read, place: int, change: ChangeFacts) -> bool:
        """Whether the keys of a change are left out because they are remembered."""
        remembered = self._occasion.remembered and place in read.unless_known
        return remembered and not (read.doubted and change.goes)

    def _change_of_core(self, view: View) -> ChangeFacts:
        """The questions of the batched sweep, from every atom that changes."""
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
        return ChangeFacts(
            tuple(asked), happens.rows if alone else MANY, happens.comes, happens.goes
        )

    # -- questions for rows before ---------------------------------------------------------------

    def before(self, node: tree.Node, wanted: WantedKeys | None) -> Rounds:
        """The questions for the rows that match keys; None wants all."""
        if isinstance(node, tree.Core):
            return self._core_before(node.view, wanted)
        stated, below = statement(node), tree.inputs(node)
        named = [_handed_on(wanted, names) for names in stated.names]
        if isinstance(node, tree.Join):
            return self._join_before(node, named)
        if isinstance(node, tree.Group) and stated.remembers and self._occasion.remembered:
            columns = frozenset() if wanted is None else wanted.columns
            if columns >= frozenset(node.keys):
                return _NOTHING
        return side_by_side([self.before(*each) for each in zip(below, named, strict=True)])

    def _core_before(self, view: View, wanted: WantedKeys | None) -> Rounds:
        """Asks for the rows of one atom by its keys, then for the others one after the other."""
        if wanted is None:
            wanted = _NO_KEY
        of = places(view)
        atom = first_atom(of, wanted.columns)
        here = [name for name in view.schema if name in wanted.columns & of[atom].keys()]
        patterns = self._patterns(tuple(n for n in here if n in wanted.nulls), wanted.rows)
        sweeps = []
        for nulls in patterns:
            keys = tuple(of[atom][name] for name in here if name not in nulls)
            sweeps.append(_swept(view, atom, keys, tuple(of[atom][name] for name in nulls)))
        return side_by_side(sweeps)

    def _patterns(self, columns: tuple[str, ...], rows: int) -> Iterator[tuple[str, ...]]:
        """The sets of these columns that may be NULL together: each needs a question of its own."""
        if not self._occasion.nulls:
            return iter([()])
        every = (some for size in range(len(columns) + 1) for some in combinations(columns, size))
        return islice(every, rows)

    def _join_before(self, node: tree.Join, named: Sequence[WantedKeys | None]) -> Rounds:
        """The most expensive way for these keys, depending on their NULLs."""
        leads = [each is not None for each in named]
        void = [each is not None and self._may_be_null(each) for each in named]
        cases = [(left, right) for left in {False, void[0]} for right in {False, void[1]}]
        firsts = dict.fromkeys(leading_side(node.kind, leads, case.__getitem__) for case in cases)
        return self._dearest([self._led_by(node, first, named) for first in firsts])

    def _led_by(
        self, node: tree.Join, first: int | None, named: Sequence[WantedKeys | None]
    ) -> Rounds:
        """Asks one side by the keys, the other by the rows found there; or both whole."""
        below = (node.left, node.right)
        if first is None:
            return side_by_side([self.before(side, None) for side in below])
        read = statement(node).reads[1 - first]
        by = frozenset(read.by)
        links = WantedKeys(by, by if read.nulls else frozenset(), MANY) if by else None
        found = self.before(below[first], named[first])
        return after_another(found, self.before(below[1 - first], links))

    def _dearest(self, ways: Sequence[Rounds]) -> Rounds:
        """The way that asks most, since the rows decide between them."""
        return max(ways, key=_size)

    def _may_be_null(self, wanted: WantedKeys) -> bool:
        """Whether some key may be all NULL."""
        return self._occasion.nulls and wanted.columns <= wanted.nulls


# -- details ---------------------------------------------------------------------------------------


def _swept(view: View, atom: Atom, keys: tuple[str, ...], nulls: tuple[str, ...]) -> Rounds:
    """Asks for the rows of a join that come from some rows of one atom."""
    first = ask(atom, keys, nulls=nulls) if keys else ask(atom, nulls=nulls)
    others = (
        (ask(step.atom, tuple(column for column, _ in step.keys)),)
        for step in plan(view, atom).steps
    )
    return ((first,), *others)


def _handed_on(wanted: WantedKeys | None, names: Mapping[str, str]) -> WantedKeys | None:
    """The keys in the names of an input; None if it has none of their columns."""
    if wanted is None:
        return None
    columns, nulls = (
        frozenset(names[name] for name in some & names.keys())
        for some in (wanted.columns, wanted.nulls)
    )
    return WantedKeys(columns, nulls, wanted.rows) if columns else None


def _changed(node: tree.Node, asked: Rounds, below: Sequence[ChangeFacts]) -> ChangeFacts:
    """How a node changes when its inputs do."""
    match node:
        case tree.Union():
            return _added(asked, below)
        case tree.Join():
            return _joined(node.kind, asked, *below)
        case tree.Group() if node.aggregates:
            return ChangeFacts(asked, 2 * below[0].rows, True, True)
        case tree.Window():
            return ChangeFacts(asked, MANY, True, True)
        case _:
            return replace(below[0], asked=asked)


def _added(asked: Rounds, parts: Sequence[ChangeFacts]) -> ChangeFacts:
    """The change of a union."""
    changed = [part for part in parts if part.rows]
    return ChangeFacts(
        asked,
        sum(part.rows for part in parts),
        any(part.comes for part in changed),
        any(part.goes for part in changed),
    )


def _size(asked: Rounds) -> tuple[int, bool]:
    """The number of questions; if equal, ways with whole relations count as larger."""
    return number(asked), any(each.whole for round_ in asked for each in round_)


def _joined(
    kind: tree.JoinKind, asked: Rounds, left: ChangeFacts, right: ChangeFacts
) -> ChangeFacts:
    """How a join changes when its sides do."""
    if kind == "anti":
        right = ChangeFacts(right.asked, right.rows, right.goes, right.comes)
    both = kind == "full" or (kind == "left" and right.rows > 0)
    comes = both or left.comes or right.comes
    goes = both or left.goes or right.goes
    return ChangeFacts(
        asked, left.rows if kind in ("semi", "anti") and not right.rows else MANY, comes, goes
    )
