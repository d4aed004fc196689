"""Explains in words why a state is wrong.

A row is explained by the combinations of source rows that give it, each row with its life: the
version that brought it and the version that took it away. Against the vector x at which the state
should stand, a source row is *early* (its version is beyond x), *late* (at x it is already gone) or
right. The least wrong combination names the update to blame:

- extra, early rows:           the state shows the effect of an update before its turn;
- extra, late rows:            the effect of an update that should be in is not;
- extra, early and late rows:  an error term: the join of two rows that never existed together;
- missing:                     the update that brought it was lost, or one that takes it came early.

A view that is not a select-project-join has no combinations; there the row's own changes along the
positions say the same, a little less exactly.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from protocols.checking.changes import StepChanges
from protocols.checking.history import VersionHistory
from protocols.checking.order import DeliveryOrder, Part
from protocols.checking.origins import Lifetime, origins
from protocols.checking.trace import CommitLine, shown_row

_FEW = 3


@dataclass(frozen=True)
class Scene:
    """A wrong state: where it should stand, and the expected changes of the view.

    `vector` has a version per source; `position` is the delivered position that the state carries.
    `since` is the first position that belongs to this state and not to the one before.
    `expected` has the view's changes by position. `missed` has the rows that the states of the run
    show too often or too rarely, by position: a later entry of the other sign corrects it.
    """

    history: VersionHistory
    order: DeliveryOrder
    vector: Sequence[int]
    position: int
    since: int
    expected: StepChanges
    missed: StepChanges


def described(scene: Scene, wrong: dict[int, int], due: dict[int, int]) -> str:
    """Names the extra and the missing rows, and the updates that explain the first of them.

    `wrong` has the difference by row (positive: extra), `due` the right counts of these rows.
    """
    rows = scene.history.view.rows(wrong)
    reasons = []
    for id_, n in _spread(wrong):
        held = due.get(id_, 0)
        why = _extra(scene, id_, n, held) if n > 0 else _missing(scene, id_, held)
        reasons.append(f"Row {shown_row(rows[id_])}: {why}{_corrected_later(scene, id_, n)}.")
    return f"it {differing(scene.history, wrong)}. {' '.join(reasons)}"


def differing(history: VersionHistory, wrong: dict[int, int]) -> str:
    """Names the extra and the missing rows: `has 1 x (5, 6) too many and lacks 2 x (7, 8)`."""
    rows = history.view.rows(wrong)
    parts = []
    for extra in (True, False):
        chosen = [(id_, n) for id_, n in sorted(wrong.items()) if (n > 0) == extra]
        if chosen:
            named = [_amount(abs(n), shown_row(rows[id_])) for id_, n in chosen[:_FEW]]
            verb = "has" if extra else "lacks"
            tail = " too many" if extra else ""
            parts.append(f"{verb} {_and_more(named, len(chosen))}{tail}")
    return " and ".join(parts)


def _spread(wrong: dict[int, int]) -> list[tuple[int, int]]:
    """The first extra rows and the first missing ones."""
    ordered = sorted(wrong.items())
    return [pair for pair in ordered if pair[1] > 0][:2] + [
        pair for pair in ordered if pair[1] < 0
    ][:2]


def updates_at(order: DeliveryOrder, position: int) -> str:
    """The transactions of a position with their rows: version 1 of b (+1 x (3, 5) of b.R2)."""
    return " and ".join(
        f"{order.name(part)} ({update_rows(order.commits[part])})"
        for part in order.at.get(position, ())
    )


def update_rows(commit: CommitLine) -> str:
    """The first few changes of a transaction."""
    named = [
        f"{change.count:+d} x {shown_row(change.row)} of {commit.source}.{change.relation}"
        for change in commit.changes[:_FEW]
    ]
    return _and_more(named, len(commit.changes)) if named else "no rows"


def half_shown(scene: Scene, state: dict[int, int], reach: int) -> str | None:
    """A sentence if a state is right with only half of a global transaction near its position."""
    tried = 0
    for name, parts in scene.order.globals.items():
        places = [scene.order.position(part) for part in parts]
        delivered = [place for place in places if place is not None]
        if not delivered or max(delivered) < scene.since or min(delivered) > reach:
            continue
        for size in range(1, len(parts)):
            for chosen in combinations(parts, size):
                tried += 1
                if tried > 64:
                    return None
                if _view_at(scene, parts, chosen) == state:
                    return _half(scene.order, name, parts, chosen)
    return None


def _view_at(scene: Scene, parts: Sequence[Part], chosen: Sequence[Part]) -> dict[int, int]:
    """The view at the scene's vector, with only the chosen parts of a transaction."""
    vector = list(scene.vector)
    for source, version in parts:
        if (source, version) in chosen:
            vector[source] = max(vector[source], version)
        else:
            vector[source] = min(vector[source], version - 1)
    return scene.history.along(np.array([vector], dtype=np.int64)).until(0)


def _half(order: DeliveryOrder, name: str, parts: Sequence[Part], chosen: Sequence[Part]) -> str:
    shown = " and ".join(order.name(part) for part in chosen)
    hidden = " and ".join(order.name(part) for part in parts if part not in chosen)
    return (
        f"It is exactly the view with {shown} and without {hidden}: "
        f"half of the global transaction {name}."
    )


# One row ------------------------------------------------------------------------------------------


def _extra(scene: Scene, id_: int, count: int, due: int) -> str:
    found = origins(scene.history, id_)
    off = [lives for lives in found if _early(scene, lives) or _late(scene, lives)]
    if off:
        best = min(off, key=lambda lives: _distance(scene, lives, count))
        return _blamed(scene, _early(scene, best), _late(scene, best))
    if found:
        since = _delivered(scene, _latest(scene, found))
        return f"the view has it {_times(due)}, last by {since}: it is counted too often"
    if scene.history.text.is_spj:
        return "no rows of the sources, of any version, combine to it"
    return _extra_by_position(scene, id_)


def _blamed(scene: Scene, early: list[Lifetime], late: list[Lifetime]) -> str:
    if early and late:
        return (
            f"it joins {_life(early[0])}, which {_when(scene, early[0].born, 'comes with')}, "
            f"with {_life(late[0])}, which "
            f"{_when(scene, _gone(late[0]), 'went with')}: no state holds both"
        )
    if early:
        place = max(_position(scene, life.born) for life in early)
        words = " and ".join(_unique(_delivered(scene, life.born) for life in early))
        if place > scene.order.last:
            return f"it comes from {words}"
        return (
            f"it comes from {words}: the state shows it {_positions(place - scene.position)} early"
        )
    took = _unique(f"{_delivered(scene, _gone(life))}, took {_life(life)} away" for life in late)
    return f"{' and '.join(took)}: the state still shows its effect"


def _missing(scene: Scene, id_: int, due: int) -> str:
    right = [
        lives
        for lives in origins(scene.history, id_)
        if not _early(scene, lives) and not _late(scene, lives)
    ]
    moves = dict(scene.expected.of(id_))
    came = [p for p, n in moves.items() if scene.since <= p <= scene.position and n > 0]
    if came and scene.position > 0:
        if right:
            return f"{_delivered(scene, _latest(scene, right))}, added it: that change was lost"
        return (
            f"{updates_at(scene.order, came[-1])} added it at position {came[-1]}, and it is lost"
        )
    goes = [p for p, n in moves.items() if p > scene.position and n < 0]
    if goes:
        ahead = _positions(goes[0] - scene.position)
        return (
            f"it goes only with {updates_at(scene.order, goes[0])}, delivered at position "
            f"{goes[0]}: the state drops it {ahead} early"
        )
    return f"the view has it {_times(due)} here, and no update takes any away"


def _extra_by_position(scene: Scene, id_: int) -> str:
    moves = scene.expected.of(id_)
    comes = [p for p, n in moves if p > scene.position and n > 0]
    went = [p for p, n in moves if p <= scene.position and n < 0]
    if went and went[-1] >= scene.since:
        return (
            f"it went with {updates_at(scene.order, went[-1])}, delivered at position {went[-1]}: "
            "the state still shows it"
        )
    if comes:
        ahead = _positions(comes[0] - scene.position)
        return (
            f"it comes with {updates_at(scene.order, comes[0])}, delivered at position "
            f"{comes[0]}: the state shows it {ahead} early"
        )
    return "no later position brings it"


def _corrected_later(scene: Scene, id_: int, count: int) -> str:
    """The position of a later state that corrects the row, in words."""
    later = [p for p, n in scene.missed.of(id_) if p > scene.position and n * count < 0]
    if not later:
        return ""
    delay = _positions(later[0] - scene.position)
    return f" (corrected only in the state at position {later[0]}, {delay} late)"


def _early(scene: Scene, lives: Iterable[Lifetime]) -> list[Lifetime]:
    return [life for life in lives if life.born[1] > scene.vector[life.born[0]]]


def _late(scene: Scene, lives: Iterable[Lifetime]) -> list[Lifetime]:
    return [
        life
        for life in lives
        if life.gone is not None and life.gone[1] <= scene.vector[life.gone[0]]
    ]


def _distance(scene: Scene, lives: Sequence[Lifetime], count: int) -> tuple[int, int, bool]:
    """How wrong a combination is: the number of wrong rows, then their distance in positions."""
    early, late = _early(scene, lives), _late(scene, lives)
    places = [_position(scene, life.born) for life in early]
    places += [_position(scene, _gone(life)) for life in late]
    product = 1
    for life in lives:
        product *= life.count
    off = sum(abs(place - scene.position) for place in places)
    return len(early) + len(late), off, product != count


def _latest(scene: Scene, found: Iterable[Sequence[Lifetime]]) -> Part:
    """The update that brought the last of some source rows."""
    births = [life.born for lives in found for life in lives]
    return max(births, key=lambda part: _position(scene, part))


def _gone(life: Lifetime) -> Part:
    assert life.gone is not None
    return life.gone


def _position(scene: Scene, part: Part) -> int:
    """The position at which an update was delivered; beyond the last one if it never was."""
    known = scene.order.position(part)
    return scene.order.last + 1 if known is None else known


def _delivered(scene: Scene, part: Part) -> str:
    known = scene.order.position(part)
    if part[1] == 0:
        return f"the initial rows of {scene.order.sources[part[0]]}"
    if known is None:
        return f"{scene.order.name(part)}, which was never delivered"
    return f"{scene.order.name(part)}, delivered at position {known}"


def _when(scene: Scene, part: Part, verb: str) -> str:
    known = scene.order.position(part)
    place = "never delivered" if known is None else f"position {known}"
    return f"{verb} {scene.order.name(part)} ({place})"


def _life(life: Lifetime) -> str:
    return f"{shown_row(life.row)} of {life.atom.relation}"


def _unique(words: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(words))


def _positions(count: int) -> str:
    return "1 position" if count == 1 else f"{count} positions"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _amount(count: int, row: str) -> str:
    return f"{count} x {row}"


def _and_more(named: Sequence[str], total: int) -> str:
    more = f" and {total - _FEW} more" if total > _FEW else ""
    return ", ".join(named[:_FEW]) + more
