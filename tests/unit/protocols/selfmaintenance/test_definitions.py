"""The definitions on small views: kinds of updates, keys in the view, conditions, refusals."""

from typing import Any

import pytest

from protocols.errors import WrongUse
from protocols.selfmaintenance.auxiliary import auxiliary_views
from protocols.selfmaintenance.dependence import dep
from protocols.selfmaintenance.joingraph import UpdateKind
from protocols.selfmaintenance.keptas import kept_as
from protocols.selfmaintenance.language import select_project_join
from protocols.selfmaintenance.maintaining import maintenance_expressions
from protocols.selfmaintenance.need import must_be_found, need
from protocols.selfmaintenance.statement import statement
from protocols.views.catalog import catalog_from_json
from protocols.views.sql import parse_view
from tests.cases.selfmaintenance import CASES, Case, case, references, relation


@pytest.mark.parametrize(
    ("updates", "kind"),
    [
        (None, "exposed"),
        ([], "ignorable"),
        (["other"], "ignorable"),
        (["shown"], "protected"),
        (["tested"], "exposed"),
        (["shown", "joined"], "exposed"),
        (["k", "other"], "ignorable"),
    ],
)
def test_the_kind_of_updates_follows_from_the_view(
    updates: list[str] | None, kind: UpdateKind
) -> None:
    """A change of the key k is a deletion and an insertion, so it is no update at all."""
    declared = {} if updates is None else {"updates": updates}
    found = case(
        "SELECT a.shown, b.k FROM s.a, s.b WHERE a.joined = b.k AND a.tested = 1 AND a.k < 9",
        a=relation("k shown tested joined other", **declared),
        b=relation("k"),
    ).auxiliary_views
    assert found.graph.vertex("a").updates == kind


def test_exposed_relations_are_in_no_dep() -> None:
    for updates, depends in ((["n"], set()), ([], {"b"})):
        found = case(
            "SELECT a.k FROM s.a, s.b WHERE a.b = b.k AND b.n = 1",
            a=relation("k b", foreign_keys=references(b="b")),
            b=relation("k n", updates=updates),
        ).auxiliary_views
        assert dep("a", found.graph) == depends


def test_a_join_needs_the_whole_foreign_key_for_ri() -> None:
    for join, depends in (("a.x = b.x AND a.y = b.y", {"b"}), ("a.x = b.x AND a.k = b.y", set())):
        found = Case(CASES["keys of two columns"].catalog, f"SELECT a.k FROM s.a, s.b WHERE {join}")
        assert dep("a", found.auxiliary_views.graph) == depends


def test_equalities_may_be_written_in_any_way() -> None:
    """visit is joined with sale, and sale with store; the foreign key of visit leads to store."""
    relations: dict[str, Any] = {
        "store": relation("k name", updates=["name"]),
        "sale": relation("k store", updates=[], foreign_keys=references(store="store")),
        "visit": relation("k store", updates=[], foreign_keys=references(store="store")),
    }
    text = "SELECT visit.k, sale.k AS sale, name FROM s.visit, s.sale, s.store WHERE "
    forms = (
        "visit.store = sale.store AND sale.store = store.k",
        "visit.store = store.k AND sale.store = store.k",
    )
    told = []
    for form in forms:
        found = case(text + form, **relations).auxiliary_views
        told.append({name: statement(name, found) for name in found.views})
        assert dep("visit", found.graph) == dep("sale", found.graph) == {"store"}
    assert told[0] == told[1]


@pytest.mark.parametrize(
    ("shown", "needs"),
    [("b.k", set()), ("a.b", set()), ("a.k", {"a"}), ("a.n", {"a"}), ("b.n AS bn", {"a"})],
)
def test_a_key_is_preserved_if_a_shown_column_equals_it(shown: str, needs: set[str]) -> None:
    found = case(
        f"SELECT {shown} FROM s.a, s.b WHERE a.b = b.k", a=relation("k b n"), b=relation("k n")
    ).auxiliary_views
    assert need("b", found.graph) == needs


def test_a_further_key_preserves_as_well() -> None:
    found = CASES["a further key"].auxiliary_views
    assert need("b", found.graph) == {"a"}
    shown = Case(
        CASES["a further key"].catalog,
        "SELECT b.code FROM s.a, s.b WHERE a.code = b.code",
    ).auxiliary_views
    assert need("b", shown.graph) == set()


def test_the_strictest_local_conditions_follow_from_other_relations() -> None:
    found = case(
        "SELECT a.k, b.m FROM s.a, s.b"
        " WHERE a.x = b.x AND a.y = b.x AND a.n = b.n AND a.n < 3 AND b.z = 2 AND a.z = b.z",
        a=relation("k x y n z"),
        b=relation("k x n m z"),
    ).auxiliary_views
    assert statement("a", found).partition("WHERE ")[2] == (
        "n < 3 AND\n      z = 2 AND\n      x = y"
    )
    assert statement("b", found).partition("WHERE ")[2] == "z = 2 AND\n      n < 3"


def test_relations_that_are_never_updated_and_always_referenced_need_not_be_found() -> None:
    """Without this, all of the star's centre would be stored to find deletions of its points."""
    case_ = CASES["a star whose points are never updated"]
    found = case_.auxiliary_views
    assert need("d", found.graph) == {"f"}, "as the paper has it"
    assert not must_be_found("d", found.graph)
    assert found.not_needed == "f"
    texts = {(e.change, e.vertex): e.text for e in maintenance_expressions(found)}
    assert texts["deletions", "d"] == "none: the rows of f that reference them are deleted before"


def test_foreign_keys_across_sources_need_sources_that_commit_together() -> None:
    catalog = catalog_from_json(
        {
            "one": {
                "relations": {"a": relation("k b", updates=[], foreign_keys=references(b="two.b"))}
            },
            "two": {"relations": {"b": relation("k n", updates=[])}},
        }
    )
    view = Case(catalog, "SELECT a.k, b.n FROM one.a, two.b WHERE a.b = b.k").view
    apart = auxiliary_views(view, catalog.foreign_keys)
    assert set(apart.views) == {"a", "b"}
    assert [str(key) for key in apart.graph.not_relied_on] == ["one.a(b) -> two.b(k)"]
    for sources in (["one", "three"], ["two"]):
        assert set(auxiliary_views(view, catalog.foreign_keys, [sources]).views) == {"a", "b"}
    together = auxiliary_views(view, catalog.foreign_keys, [["two", "one", "three"]])
    assert together.not_needed == "a"
    assert together.graph.not_relied_on == ()


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT a.k, a.n + 1 AS m FROM s.a", "the column 'm' of its SELECT list is computed"),
        ("SELECT a.k, 1 AS one FROM s.a", "the column 'one' of its SELECT list is computed"),
        ("SELECT DISTINCT a.n FROM s.a", "it has the operator 'distinct n'"),
        ("SELECT a.n, COUNT(*) AS m FROM s.a GROUP BY a.n", "the operator 'group by "),
        ("SELECT a.k FROM s.a LEFT JOIN s.b ON a.b = b.k", "the operator 'left join'"),
        ("SELECT a.k FROM s.a WHERE EXISTS (SELECT 1 FROM s.b WHERE b.k = a.b)", "'exists'"),
        ("SELECT a.k FROM s.a UNION ALL SELECT b.k FROM s.b", "the operator 'union'"),
        ("SELECT a.k FROM s.a, s.bag WHERE a.b = bag.b", "s.bag has no key"),
    ],
)
def test_a_view_outside_the_language_is_refused_with_the_reason(sql: str, reason: str) -> None:
    catalog = catalog_from_json(
        {
            "s": {
                "relations": {
                    "a": relation("k b n"),
                    "b": relation("k"),
                    "bag": {"columns": {"b": "BIGINT"}},
                }
            }
        }
    )
    with pytest.raises(WrongUse) as refused:
        select_project_join(parse_view("v", sql, catalog))
    assert reason in str(refused.value)


@pytest.mark.parametrize("name", CASES)
def test_auxiliary_views_are_views_of_the_product(name: str) -> None:
    """The SQL of `kept_as` is read as the very same inner join."""
    case_ = CASES[name]
    found = case_.auxiliary_views
    for vertex in found.views:
        view = kept_as(vertex, found)
        read = parse_view(view.name, view.sql, case_.catalog)
        assert read == view
