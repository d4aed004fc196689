"""V and its auxiliary views alone keep V and themselves: random transactions, against DuckDB.

The warehouse holds V and the auxiliary views, in a database of its own, and is told the net changes
of each transaction. After each one, both are compared with the SQL texts over the sources' rows.
Each rule of the theory that a result rests on is also broken once, and that has to show.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

import pytest

from protocols.selfmaintenance.auxiliary import AuxiliaryViews
from protocols.selfmaintenance.joingraph import Edge
from protocols.selfmaintenance.keptas import kept_as
from protocols.selfmaintenance.maintaining import MaintenanceExpression, maintenance_expressions
from protocols.selfmaintenance.rules import Empty, Form, WithView
from tests.cases.drawn_selfmaintenance import drawn
from tests.cases.selfmaintenance import CASES, Case, case, relation, running_example
from tests.harness.possibletransactions import Possible
from tests.harness.selfmaintained import Net, Sources, Warehouse

Expressions = Sequence[MaintenanceExpression]


@dataclass
class Run:
    """What a run of transactions showed."""

    #: How often V changed: a run in which it never does shows nothing.
    changes: int = 0
    difference: str | None = None


def run(
    case: Case,
    found: AuxiliaryViews,
    seeds: range,
    length: int,
    expressions: Expressions = (),
    keys: int = 12,
    orphans: bool = False,
) -> Run:
    """Runs transactions that the case allows, until something differs."""
    told = Run()
    for seed in seeds:
        possible = Possible(case.catalog, Random(seed), keys, orphans)
        contents = possible.contents()
        sources = Sources(case.catalog, found)
        sources.hold({relation: rows.values() for relation, rows in contents.items()})
        warehouse = Warehouse(case.view, found, sources, expressions)
        before = warehouse.view()
        for number in range(length):
            contents, transaction = possible.transaction(contents)
            sources.hold({relation: contents[relation].values() for relation in transaction})
            warehouse.take(transaction)
            told.difference = difference(warehouse, sources, case, found)
            if told.difference is not None:
                told.difference = f"seed {seed}, transaction {number}: {told.difference}"
                return told
            after = warehouse.view()
            told.changes += after != before
            before = after
    return told


def difference(
    warehouse: Warehouse, sources: Sources, case: Case, found: AuxiliaryViews
) -> str | None:
    """What the warehouse holds that the SQL texts do not say, or the other way round."""
    if warehouse.view() != sources.rows(case.sql):
        return "V"
    for name in found.views:
        due = sources.auxiliary(name, found)
        if warehouse.auxiliary(name) != due:
            return f"the auxiliary view of {name}"
        if sources.rows(kept_as(name, found).sql) != due:
            return f"the auxiliary view of {name} as an inner join"
    return None


@pytest.mark.parametrize("name", CASES)
def test_view_and_auxiliary_views_keep_themselves(name: str) -> None:
    told = Run()
    for seed in range(40):
        if seed >= 4 and told.changes:
            break
        more = run(CASES[name], CASES[name].auxiliary_views, range(seed, seed + 1), 8)
        assert more.difference is None
        told.changes += more.changes
    assert told.changes, "V never changed"


@pytest.mark.parametrize("seed", range(30))
def test_so_do_those_of_random_views(seed: int) -> None:
    assert run(drawn(seed), drawn(seed).auxiliary_views, range(1), 6).difference is None


# -- controls: each has to be caught ---------------------------------------------------------------

RUNNING = running_example()


def _caught(case: Case, found: AuxiliaryViews, expressions: Expressions = ()) -> bool:
    return run(case, found, range(12), 12, expressions, keys=4).difference is not None


def _without_conditions(found: AuxiliaryViews, name: str) -> AuxiliaryViews:
    views = {**found.views, name: replace(found.views[name], conditions=())}
    return replace(found, views=views)


@pytest.mark.parametrize("name", ["store", "sale", "item"])
def test_control_a_condition_is_forgotten(name: str) -> None:
    assert _caught(RUNNING, _without_conditions(RUNNING.auxiliary_views, name))


@pytest.mark.parametrize(
    "exposed", [{"sale": ["year"]}, {"store": ["state"]}, {"item": ["category"]}]
)
def test_control_exposed_updates_are_taken_for_protected_ones(
    exposed: dict[str, list[str]],
) -> None:
    assert _caught(running_example(**exposed), RUNNING.auxiliary_views)


def test_control_a_foreign_key_does_not_hold() -> None:
    """Exactly that happens across sources, where a child is delivered before its parent."""
    told = run(RUNNING, RUNNING.auxiliary_views, range(4), 12, keys=4, orphans=True)
    assert told.difference is not None


def _with_form(
    expressions: Expressions, vertex: str, change: str, form: Form
) -> list[MaintenanceExpression]:
    return [
        replace(each, form=form) if (each.vertex, each.change) == (vertex, change) else each
        for each in expressions
    ]


def test_control_rule_4_1_the_wrong_way_round() -> None:
    """Insertions into the child have no effect, instead of those into the parent."""
    found = RUNNING.auxiliary_views
    right = maintenance_expressions(found)
    assert _caught(RUNNING, found, _with_form(right, "line", "insertions", Empty("wrong")))


def test_control_parents_are_inserted_after_children() -> None:
    found = RUNNING.auxiliary_views
    right = maintenance_expressions(found)
    late = [each for each in right if each.change == "insertions"]
    early = [each for each in right if each.change != "insertions"]
    assert _caught(RUNNING, found, [*early, *reversed(late)])


def test_control_a_deletion_is_found_by_a_key_of_another_relation() -> None:
    found = RUNNING.auxiliary_views
    wrong = WithView((), (("sale_id", "store.store_id"),))
    right = maintenance_expressions(found)
    assert _caught(RUNNING, found, _with_form(right, "store", "deletions", wrong))


def test_control_a_need_set_of_a_cycle_as_the_appendix_has_it() -> None:
    """a -> b -> c -> a: rows of c are found through a alone, which holds no key of c.

    Two rows of c reference one row of a, which leads to the first; the second is deleted.
    """
    cycle = case(
        "SELECT a.k, b.n, c.n AS cn FROM s.a, s.b, s.c WHERE a.b = b.k AND b.c = c.k AND c.a = a.k",
        a=relation("k b", updates=[]),
        b=relation("k c n", updates=["n"]),
        c=relation("k a n", updates=["n"]),
    )
    found = cycle.auxiliary_views
    right = maintenance_expressions(found)
    printed = WithView((Edge("a", "c", (("a.k", "c.a"),), None),), (("k", "a.k"),))
    wrong = _with_form(right, "c", "deletions", printed)
    a, b, c = cycle.catalog
    for expressions, caught in ((right, None), (wrong, "V")):
        sources = Sources(cycle.catalog, found)
        sources.hold({a: [(1, 1)], b: [(1, 1, 0)], c: [(1, 1, 0), (2, 1, 0)]})
        warehouse = Warehouse(cycle.view, found, sources, expressions)
        sources.hold({c: [(1, 1, 0)]})
        warehouse.take({c: Net(deleted=((2, 1, 0),))})
        assert difference(warehouse, sources, cycle, found) == caught


def test_control_insertions_never_change_the_join_of_a_circle_as_the_appendix_says() -> None:
    pair = CASES["a circle of foreign keys"]
    found = pair.auxiliary_views
    right = maintenance_expressions(found)
    assert _caught(pair, found, _with_form(right, "a + b", "insertions", Empty("B.2")))


def test_control_deletions_of_parents_before_children_where_they_need_not_be_found() -> None:
    """Then a child's row is still joined with its parent, whose auxiliary row is gone."""
    star = CASES["a star without keys"]
    unfound = replace(
        star,
        catalog=CASES["a star whose points are never updated"].catalog,
    )
    found = unfound.auxiliary_views
    right = maintenance_expressions(found)
    first = [each for each in right if each.change == "deletions"]
    assert run(unfound, found, range(2), 8).difference is None
    assert _caught(unfound, found, [*reversed(first), *right[len(first) :]])
