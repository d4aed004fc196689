"""What an operator asks its inputs for, said of its node before there is a row.

It asks on two occasions. When inputs change it reads rows as they were before: its `Read`s say of
which input, by which columns, and whose changes name the keys. And when somebody asks for its own
rows by keys, it hands on what an input has a name for; a join is then led by one of its sides
(`leading_side`).

Operators ask by these statements and by nothing else, and `explaining` follows updates through a
tree by the same ones: so what is not said here is neither asked nor explained.
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
    #: Those of them whose keys are spared if they are remembered.
    unless_known: tuple[int, ...] = ()
    #: Whether a row that goes puts in doubt what is remembered of its key.
    doubted: bool = False
    #: Whether a NULL in a key asks for NULL; else such keys ask for nothing.
    nulls: bool = False


@dataclass(frozen=True)
class Statement:
    """What one operator asks."""

    #: For each input, its names for our columns: keys over these are handed on to it.
    names: tuple[Mapping[str, str], ...]
    #: What it reads when inputs change, all of it at once.
    reads: tuple[Read, ...] = ()
    #: Whether it remembers its own rows, so that its input is not asked for those of whole keys.
    remembers: bool = False


def statement(node: tree.Node) -> Statement:
    """What the operator of a node asks."""
    match node:
        case tree.Core():
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


def leading_side(
    kind: tree.JoinKind, named: Sequence[bool], is_void: Callable[[int], bool]
) -> int | None:
    """The side of a join that is read by the keys; the other one is, by what is found there.

    None says that both are read whole. `named` says whether the keys have columns of a side, and
    `is_void` whether one of them has nothing but NULL there: then it may ask for what has no
    partner on that side, which nothing there leads to.
    """
    for side in (0, 1):
        if named[side] and not (_pads(kind, side) and is_void(side)):
            return side
    return None


def _same(columns: Iterable[str]) -> dict[str, str]:
    return {name: name for name in columns}


def _of_group(node: tree.Group) -> Statement:
    """The rows of the groups that change, unless it can go on from what it remembers of them."""
    remembers, doubted = is_remembered(node.aggregates), has_extremes(node.aggregates)
    read = Read(0, node.keys, (0,), (0,) if remembers else (), doubted, nulls=True)
    return Statement((_same(node.keys),), (read,), remembers)


def _read_of_side(node: tree.Join, side: int) -> Read:
    """What changes on the other side meets rows of this one.

    What changes here may be the first or the last partner of something there, so it matters what it
    stands beside: only how many rows that is, where partners are found by key alone, and then the
    numbers are remembered. EXISTS needs nothing but the numbers.
    """
    by = tuple(dict.fromkeys(pair[side] for pair in node.on))
    if not _pads(node.kind, side):
        return Read(side, by, (1 - side,))
    both = (1 - side, side)
    if not by or any(_is_of_pairs(node, test) for test in conjuncts(node.condition)):
        return Read(side, by, both)
    return Read(side, by, both, both if node.kind in ("semi", "anti") else (side,))


def _pads(kind: tree.JoinKind, side: int) -> bool:
    """Whether it matters on the other side if there are rows on this one."""
    return kind == "full" or (kind != "inner" and side == 1)


def _is_of_pairs(node: tree.Join, test: Condition) -> bool:
    """Whether a condition reads both sides."""
    read = columns_of(test)
    return not any(read <= side.columns.keys() for side in (node.left, node.right))
