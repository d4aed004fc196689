"""The rules of all references for one transition (Sections 5.4, 6.2, 7.2 and 8).

For a reference T at the top or in a positive subquery:

    went    the rows of the branch that deleted_T produced leave the view. If T is safe, at once;
            else if the branch no longer produces them
    came    the rows that inserted_T produces come into the view

In a negative subquery:

    came    the rows that inserted_T excludes leave: if T is I-safe, at once; else if the branch
            does not produce them from other rows. Other negative conditions do not count if they
            changed too: each could count on the other one
    went    the rows that deleted_T excluded come, if nothing else excludes them

Rows that leave a branch on the right of EXCEPT come into the view, and the other way round. All
deletions from the view run before all insertions.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from sqlglot import exp

from protocols.analysis.references import Subquery
from protocols.rules.membership import is_in_view, is_positive, negated, same_row
from protocols.rules.names import quoted
from protocols.rules.substitution import ROW, over, restricted
from protocols.rules.transition import Transition
from protocols.rules.view import Branch, Place, RuledView
from protocols.views.catalog import Relation


@dataclass(frozen=True)
class Rule:
    """One statement on the view's table."""

    #: As in the paper: `del-res-special_meals`.
    name: str
    section: str
    because: str
    action: Literal["delete", "insert"]
    statement: str
    #: The relation and the side of its changed rows that it follows; None for any change.
    follows: tuple[Relation, Literal["ins", "del"]] | None = None


@dataclass(frozen=True)
class Effect:
    """Rows that a change takes from a branch, or brings to it."""

    place: Place
    branch: int
    event: Literal["ins", "del"]
    rows: exp.Select
    leave: bool
    #: Whether the branch has them afterwards; None if that has to be looked up.
    has_them: bool | None


def rules(transition: Transition) -> tuple[Rule, ...]:
    """All rules of a transition, deletions from the view first."""
    view = transition.view
    for branch in view.branches:
        if any(relation in transition.changed for relation in branch.elsewhere):
            return anew(view, "a relation that changes is where the criteria do not reach")
    found = [
        rule
        for number, branch in enumerate(view.branches)
        for place in branch.places
        if place.reference.relation in transition.changed
        for effect in _effects(transition, number, branch, place)
        for rule in _rule(transition, effect)
    ]
    return tuple(sorted(found, key=lambda rule: rule.action == "insert"))


def anew(view: RuledView, because: str) -> tuple[Rule, ...]:
    """The whole view computed again (5.4, rematerialize-V); rows that stay are not touched."""
    name, query = f"rematerialize-{view.names.view}", view.query.sql("postgres", pretty=True)
    names = ", ".join(quoted(column.name) for column in view.columns)
    now = f"WITH {ROW} ({names}) AS (\n{query}\n)\n"
    same = same_row(view, "kept", ROW)
    kept, there = view.names.table, f"SELECT 1 FROM {ROW} WHERE {same}"
    gone = f"{now}DELETE FROM {kept} AS kept\nWHERE NOT EXISTS ({there})"
    come = f"{now}INSERT INTO {kept} SELECT * FROM {ROW}\nON CONFLICT DO NOTHING"
    return (
        Rule(name, "5.4", because, "delete", gone),
        Rule(name, "5.4", because, "insert", come),
    )


def _effects(transition: Transition, number: int, branch: Branch, place: Place) -> Iterator[Effect]:
    relation = place.reference.relation
    if transition.loses(relation):
        yield (_readmitted if place.is_negative else _lost)(transition, number, branch, place)
    if transition.gains(relation):
        yield (_excluded if place.is_negative else _gained)(transition, number, branch, place)


def _lost(transition: Transition, number: int, branch: Branch, place: Place) -> Effect:
    """The rows that deleted rows produced, over tables that still have all deleted rows."""
    tables = _before(transition, branch.places)
    tables[id(place.node)] = transition.deleted(place.reference.relation)
    dropped = _may_have_held(transition, branch)
    rows = over(branch, transition.view.columns, tables, left_out=dropped)
    return Effect(place, number, "del", rows, True, False if place.safety.delete_safe else None)


def _gained(transition: Transition, number: int, branch: Branch, place: Place) -> Effect:
    """The rows that inserted rows produce, over the tables as they are now."""
    tables = {id(place.node): transition.inserted(place.reference.relation)}
    rows = over(branch, transition.view.columns, tables)
    return Effect(place, number, "ins", rows, False, True)


def _excluded(transition: Transition, number: int, branch: Branch, place: Place) -> Effect:
    """The rows that inserted rows exclude now; they may have other reasons to go."""
    tables = {id(place.node): transition.inserted(place.reference.relation)}
    dropped = _may_have_held(transition, branch)
    rows = over(branch, transition.view.columns, tables, turned=place.subquery, left_out=dropped)
    return Effect(place, number, "ins", rows, True, False if place.safety.insert_safe else None)


def _readmitted(transition: Transition, number: int, branch: Branch, place: Place) -> Effect:
    """The rows that deleted rows excluded, if nothing excludes them now."""
    assert place.subquery is not None
    within = [each for each in branch.places if each.subquery is place.subquery]
    tables = _before(transition, within)
    tables[id(place.node)] = transition.deleted(place.reference.relation)
    rows = over(branch, transition.view.columns, tables, turned=place.subquery)
    restricted(rows, place.subquery.node.copy())
    return Effect(place, number, "del", rows, False, True)


def _may_have_held(transition: Transition, branch: Branch) -> list[Subquery]:
    """The negative conditions that may have held before, though they do not hold now."""
    changed = {
        id(each.subquery)
        for each in branch.places
        if each.is_negative and each.reference.relation in transition.changed
    }
    return [each for each in branch.select.subqueries if id(each) in changed]


def _before(transition: Transition, places: list[Place] | tuple[Place, ...]) -> dict[int, str]:
    """Places → old_T, for those relations T that lose rows."""
    relations = ((id(each.node), each.reference.relation) for each in places)
    return {node: transition.old(r) for node, r in relations if transition.loses(r)}


def _rule(transition: Transition, effect: Effect) -> Iterator[Rule]:
    """The statement for an effect; none if it does not concern the view."""
    view = transition.view
    positive = is_positive(view.formula, effect.branch)
    if positive == effect.leave:
        condition = negated(is_in_view(view, effect.branch, effect.has_them))
        statement = _deletion(transition, effect, condition)
    else:
        # What is deleted at once may be inserted again by another rule: it has to be looked up.
        has_them = None if effect.leave else effect.has_them
        condition = is_in_view(view, effect.branch, has_them)
        statement = _insertion(transition, effect, condition)
    if condition is False:
        return
    reference = effect.place.reference
    name = f"{effect.event}-{reference.name}-{view.names.view}"
    section = (
        "5.4" if effect.place.subquery is None else "7.2" if effect.place.is_negative else "6.2"
    )
    action: Literal["delete", "insert"] = "delete" if positive == effect.leave else "insert"
    because, follows = str(effect.place.safety), (reference.relation, effect.event)
    yield Rule(name, section, because, action, statement, follows)


def _deletion(transition: Transition, effect: Effect, condition: str | bool) -> str:
    view = transition.view
    same = same_row(view, "kept", ROW)
    where = same if condition is True else f"{same}\n  AND {condition}"
    return (
        f"{_with(transition, effect)}"
        f"DELETE FROM {view.names.table} AS kept USING {ROW}\nWHERE {where}"
    )


def _insertion(transition: Transition, effect: Effect, condition: str | bool) -> str:
    where = "" if condition is True else f"\nWHERE {condition}"
    return (
        f"{_with(transition, effect)}"
        f"INSERT INTO {transition.view.names.table} SELECT * FROM {ROW}{where}\n"
        "ON CONFLICT DO NOTHING"
    )


def _with(transition: Transition, effect: Effect) -> str:
    """WITH, for the changed rows, and for the rows of the branch that they concern."""
    tables = transition.defined(
        table.name for table in effect.rows.find_all(exp.Table) if not table.db
    )
    rows = effect.rows.sql("postgres", pretty=True)
    return f"WITH {tables},\n     {ROW} AS (\n{rows}\n)\n"
