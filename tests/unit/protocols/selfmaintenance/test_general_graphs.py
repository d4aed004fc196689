"""Appendix B: several parents, cycles of joins, circles of foreign keys, self-joins."""

from protocols.selfmaintenance.auxiliary import needing
from protocols.selfmaintenance.dependence import coalesced, dep, dep_plus, root
from protocols.selfmaintenance.joingraph import join_graph
from protocols.selfmaintenance.need import need, need_0, need_sets, passed
from protocols.selfmaintenance.statement import alternative, statement
from tests.cases.selfmaintenance import CASES, case, references, relation


def _need_sets(name: str) -> dict[str, list[set[str]]]:
    found = need_sets(CASES[name].auxiliary_views.graph)
    return {vertex: [set(passed(way)) for way in ways] for vertex, ways in found.items()}


# -- B.1: acyclic foreign keys ---------------------------------------------------------------------


def test_a_relation_with_two_parents_has_two_need_sets() -> None:
    graph = CASES["two parents"].auxiliary_views.graph
    assert dep("r", graph) == {"p", "q"}
    assert dep_plus("r", graph) == {"p", "q", "t"}
    assert need_0(graph) == {"r": ((),), "p": (), "q": (), "t": ()}
    assert _need_sets("two parents")["t"] == [{"p", "r"}, {"q", "r"}]


def test_a_need_set_with_the_root_is_dropped_if_there_is_another() -> None:
    """t is found through its child q as well, so nothing of the root r is stored."""
    sets = _need_sets("a way round the root")
    assert root(CASES["a way round the root"].auxiliary_views.graph) == "q"
    assert sets["t"] == [{"q"}], "q is the root here, and the only way"
    other = case(
        "SELECT r.k, q.k AS qk, t.n FROM s.r, s.q, s.t WHERE r.q = q.k AND r.t = t.k AND q.t = t.k",
        r=relation("k q t", updates=[], foreign_keys=references(q="q", t="t")),
        q=relation("k t", updates=[], foreign_keys=references(t="t")),
        t=relation("k n", updates=["n"]),
    ).auxiliary_views
    assert root(other.graph) == other.not_needed == "r"
    assert [passed(way) for way in need_sets(other.graph)["t"]] == [{"q"}]


def test_a_graph_with_two_roots_stores_something_of_each_relation() -> None:
    found = CASES["two roots"].auxiliary_views
    assert root(found.graph) is None
    assert found.not_needed is None
    assert dep_plus("a", found.graph) == dep_plus("d", found.graph) == {"b"}


def test_relations_that_are_not_joined_along_keys_are_trees_of_their_own() -> None:
    graph = CASES["two trees"].auxiliary_views.graph
    assert {(edge.child, edge.parent) for edge in graph.edges} == {("a", "b")}
    assert need("d", graph) == {"a", "b"}, "no key of d is shown, and nothing references it"


def test_a_root_whose_key_is_not_shown_needs_all_others() -> None:
    """The appendix leaves its need set undefined."""
    graph = CASES["a star without keys"].auxiliary_views.graph
    assert need("f", graph) == {"d", "e"}
    assert need("d", graph) == {"e", "f"}


def test_on_a_cycle_a_need_set_has_all_relations_on_the_way() -> None:
    """a -> b -> c -> a without foreign keys, and the key of a in the view.

    The appendix makes {a} a need set of c, but a does not hold the key of c.
    """
    graph = case(
        "SELECT a.k, b.n, c.n AS cn FROM s.a, s.b, s.c WHERE a.b = b.k AND b.c = c.k AND c.a = a.k",
        a=relation("k b"),
        b=relation("k c n"),
        c=relation("k a n"),
    ).auxiliary_views.graph
    assert need("a", graph) == set()
    assert need("b", graph) == {"a"}
    assert need("c", graph) == {"a", "b"}


def test_a_cycle_without_a_shown_key_needs_all_others() -> None:
    graph = case(
        "SELECT a.n FROM s.a, s.b WHERE a.b = b.k AND b.a = a.k",
        a=relation("k b n"),
        b=relation("k a n"),
    ).auxiliary_views.graph
    assert {(edge.child, edge.parent) for edge in graph.edges} == {("a", "b"), ("b", "a")}
    assert need("a", graph) == {"b"}
    assert need("b", graph) == {"a"}


# -- B.2: circles of foreign keys ------------------------------------------------------------------


def test_a_circle_is_one_vertex() -> None:
    pair = CASES["a circle of foreign keys"]
    whole = join_graph(pair.view, pair.catalog.foreign_keys)
    assert dep("a", whole) == {"b"}
    assert dep("b", whole) == {"a"}
    (vertex,) = coalesced(whole).vertices
    assert [atom.alias for atom in vertex.atoms] == ["a", "b"]
    assert coalesced(whole).edges == ()


def test_of_a_circle_whose_keys_are_shown_nothing_is_stored() -> None:
    found = CASES["a circle of foreign keys"].auxiliary_views
    assert found.views == {}


def test_a_circle_is_stored_if_an_updated_member_s_key_is_not_shown() -> None:
    """The appendix looks at the circle's keys only, and any of its members' keys is one."""
    found = CASES["a circle of which one key is shown"].auxiliary_views
    assert needing("a + b", found.graph) == ("b",)
    assert statement("a + b", found) == (
        "CREATE VIEW aux_a_b AS\n"
        "SELECT a.k AS a_k, b.k AS b_k\n"
        "FROM s.a AS a, s.b AS b\n"
        "WHERE a.b = b.k AND\n"
        "      b.a = a.k AND\n"
        "      a.n < 2"
    )
    assert alternative("a + b", found) == (
        "CREATE VIEW aux_a AS\nSELECT k\nFROM s.a\nWHERE k IN (SELECT a_k FROM aux_a_b)",
        "CREATE VIEW aux_b AS\nSELECT k\nFROM s.b\nWHERE k IN (SELECT b_k FROM aux_a_b)",
    )


def test_a_circle_between_others_is_semijoined_as_one() -> None:
    found = CASES["a circle between others"].auxiliary_views
    assert dep("f", found.graph) == {"a + b"}
    assert dep("a + b", found.graph) == {"d"}
    assert list(found.views) == ["d", "a + b", "f"]
    assert needing("f", found.graph) == ("a", "b"), "updates of a are found through f"
    assert statement("a + b", found).endswith("\n      a.d IN (SELECT k FROM aux_d)")


def test_exposed_updates_open_a_circle() -> None:
    found = CASES["a circle with exposed updates"].auxiliary_views
    assert found.graph.vertex("a").updates == "exposed"
    assert dep("a", found.graph) == {"b"}
    assert dep("b", found.graph) == set()


# -- B.3: self-joins -------------------------------------------------------------------------------


def test_occurrences_of_a_relation_are_vertices_of_their_own() -> None:
    found = CASES["a relation joined with itself"].auxiliary_views
    assert {vertex.name: vertex.updates for vertex in found.graph.vertices} == {
        "e": "protected",
        "m": "protected",
    }
    assert dep("e", found.graph) == {"m"}
    assert need("m", found.graph) == {"e"}


def test_of_two_occurrences_one_may_need_nothing() -> None:
    found = case(
        "SELECT e.id, m.id AS boss FROM s.staff e, s.staff m WHERE e.boss = m.id",
        staff=relation("id boss pay", updates=["pay"], foreign_keys=references(boss="staff")),
    ).auxiliary_views
    assert found.not_needed == "e"
    assert statement("m", found) == "CREATE VIEW aux_m AS\nSELECT id\nFROM s.staff"
    assert alternative("m", found) == ()


def test_equal_auxiliary_views_are_stored_once() -> None:
    found = CASES["itself, with equal auxiliary views"].auxiliary_views
    assert found.same_as == {"m": "e"}
    assert alternative("m", found) == ()


def test_two_occurrences_may_share_one_view_instead() -> None:
    found = CASES["itself, with other conditions on either"].auxiliary_views
    assert found.same_as == {}
    assert statement("e", found) == "CREATE VIEW aux_e AS\nSELECT id, boss\nFROM s.staff"
    assert statement("m", found) == ("CREATE VIEW aux_m AS\nSELECT id\nFROM s.staff\nWHERE pay = 1")
    limited = case(
        "SELECT e.id, m.id AS boss FROM s.staff e, s.staff m"
        " WHERE e.boss = m.id AND m.pay = 1 AND e.pay = 2",
        staff=relation("id boss pay", foreign_keys=references(boss="staff")),
    ).auxiliary_views
    assert alternative("m", limited) == (
        "CREATE VIEW aux_e_m AS\nSELECT id, boss, pay\nFROM s.staff\nWHERE (pay = 2) OR (pay = 1)",
    )
