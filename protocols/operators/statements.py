"""The questions of an operator to its inputs, stated for its node before there is any row.

An operator asks on two occasions. When inputs change, it reads rows as they were before: its
`Read`s say of which input, by which columns, and whose changes name the keys. And when it is asked
for its own rows by keys, it hands the keys on to the inputs that have their columns; a join then
starts with one of its sides (`leading_side`).

Operators ask by these statements only, and `explaining` follows updates through a tree by the same
ones: a question that is not stated here is neither asked nor explained.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from protocols.algebra.expressions import Column, Condition, columns_of, conjuncts
from protocols.operators.aggregates import has_extremes, is_remembered
from protocols.views import tree


@dataclass(frozen=True)
class Read:
    """Rows of an input as they were before the inputs changed."""

    input: int
    #: The columns of the input that its keys are over; without any it is read whole.
    by: tuple[str, ...]
    #: The inputs whose changes name the keys. While none of these changes, nothing is read.
    because_of: tuple[int, ...]
    #: Those inputs whose keys are not read if they are remembered.
    unless_known: tuple[int, ...] = ()
    #: Whether a row that goes puts the memory of its key in doubt.
    doubted: bool = False
    #: Whether a NULL in a key asks for NULL; if not, keys with a NULL ask for nothing.
    nulls: bool = False


@dataclass(frozen=True)
class Statement:
    """The questions of one operator."""

    #: For each input, its names for our columns: keys over these are handed on to it.
    names: tuple[Mapping[str, str], ...]
    #: The reads when inputs change, all of them at once.
    reads: tuple[Read, ...] = ()
    #: Whether it remembers its own rows, so that its input is not asked when whole keys are known.
    remembers: bool = False


def statement(node: tree.Node) -> Statement:
    """States the questions of the operator of a node."""
    match node:
        case tree.Core() | tree.Constants():
            return Statement(())
        case tree.Compute():
            passed = {n: value.name for n, value, _ in node.values if isinstance(value, Column)}
            return Statement((passed,))
        case tree.Filter() | tree.Multiply() | tree.Union():
            return Statement(tuple(_same(node.columns) for _ in tree.inputs(node)))
        case tree.Join():
            names = (_same(node.left.columns), _same(node.right.columns))
            return Statement(names, (_read_of_side(node, 0), _read_of_side(node, 1)))
        case tree.Group():
            return _of_group(node)
        case tree.Window():
            read = Read(0, node.partition, (0,), nulls=True)
            return Statement((_same(node.partition),), (read,))


def leading_side(
    kind: tree.JoinKind, named: Sequence[bool], is_void: Callable[[int], bool]
) -> int | None:
    """The side of a join that is read by the keys; the other one is read by the rows found there.

    None says that both are read whole. `named` says whether the keys have columns of a side, and
    `is_void` whether one of them is all NULL there: such a key may ask for rows without a partner
    on that side, and no row there leads to them.
    """
    for side in (0, 1):
        if named[side] and not (_pads(kind, side) and is_void(side)):
            return side
    return None


def _same(columns: Iterable[str]) -> dict[str, str]:
    return {name: name for name in columns}


def _of_group(node: tree.Group) -> Statement:
    """Reads the rows of the groups that change, unless the operator can go on from its memory."""
    remembers, doubted = is_remembered(node.aggregates), has_extremes(node.aggregates)
    read = Read(0, node.keys, (0,), (0,) if remembers else (), doubted, nulls=True)
    return Statement((_same(node.keys),), (read,), remembers)


def _read_of_side(node: tree.Join, side: int) -> Read:
    """Reads the rows of one side that changes of the other side meet.

    A change on this side may bring the first partner of a row on the other side, or take the last.
    So it needs the rows with its own key: only their number if partners are found by key alone, and
    then the numbers are remembered. EXISTS needs nothing but the numbers.
    """
    by = tuple(dict.fromkeys(pair[side] for pair in node.on))
    nulls = node.nulls_equal
    if not _pads(node.kind, side):
        return Read(side, by, (1 - side,), nulls=nulls)
    both = (1 - side, side)
    if not by or any(_is_of_pairs(node, test) for test in conjuncts(node.condition)):
        return Read(side, by, both, nulls=nulls)
    known = both if node.kind in ("semi", "anti") else (side,)
    return Read(side, by, both, known, nulls=nulls)


def _pads(kind: tree.JoinKind, side: int) -> bool:
    """Whether rows on this side decide which rows of the other side have partners."""
    return kind == "full" or (kind != "inner" and side == 1)


def _is_of_pairs(node: tree.Join, test: Condition) -> bool:
    """Whether a condition reads both sides."""
    read = columns_of(test)
    return not any(read <= side.columns.keys() for side in (node.left, node.right))
