"""The checker on hand-made traces: the papers' examples, one trace per level, forgeries."""

from collections.abc import Sequence
from typing import Any

import pytest

from protocols.checking import tracewriting as t
from protocols.checking.checker import check
from protocols.checking.lattice import Budget
from protocols.checking.levels import DELIVERY, LEVELS, level_named
from protocols.checking.tracereading import read_trace
from protocols.checking.verdict import Verdict
from protocols.errors import WrongUse
from protocols.maintenance.registry import PROTOCOLS
from protocols.views.catalog import catalog_from_json

FIGURE_5 = "SELECT R2.D, R3.F FROM a.R1, b.R2, c.R3 WHERE R1.B = R2.C AND R2.D = R3.E"
R1, R2, R3 = "R1", "R2", "R3"


class Story:
    """Writes a trace: `at` commits and delivers, `shows` a state."""

    def __init__(self, view: str, protocol: str = "sweep", **relations: Any) -> None:
        """Relations by source_relation: (columns, rows); all columns are BIGINT."""
        forms: dict[str, Any] = {}
        initial = {}
        for place, (columns, rows) in relations.items():
            source, name = place.split("_")
            body = forms.setdefault(source, {"relations": {}})
            body["relations"][name] = {"columns": dict.fromkeys(columns, "BIGINT")}
            initial[source, name] = rows
        self.catalog = catalog_from_json(forms)
        self.claimed = PROTOCOLS[protocol].level
        self.lines = [t.run_line(protocol, view, self.catalog, initial)]
        self.versions = dict.fromkeys(self.catalog.sources, 0)
        self.position = 0

    def commits(self, source: str, *changes: Any, part_of: str | None = None) -> "Story":
        self.versions[source] += 1
        self.lines.append(t.commit_line(source, self.versions[source], changes, part_of))
        return self

    def delivers(self, source: str, version: int, position: int) -> "Story":
        self.lines.append(t.deliver_line(source, version, position))
        self.position = position
        return self

    def at(self, source: str, *changes: Any) -> "Story":
        self.commits(source, *changes)
        return self.delivers(source, self.versions[source], self.position + 1)

    def shows(self, position: int, vector: Sequence[int], *changes: Any) -> "Story":
        named = dict(zip(self.catalog.sources, vector, strict=True))
        self.lines.append(t.state_line(position, named, changes))
        return self

    def checked(
        self, level: str | None = None, any_vectors: bool = False, **budget: int
    ) -> Verdict:
        lines = [*self.lines, t.end_line(self.versions)]
        asked = level_named(level) if level else self.claimed
        return check(read_trace(lines), asked, Budget(**budget), any_vectors)


def figure_5() -> Story:
    story = Story(
        FIGURE_5,
        a_R1=(("A", "B"), [(1, 3), (2, 3)]),
        b_R2=(("C", "D"), [(3, 7)]),
        c_R3=(("E", "F"), [(5, 6), (7, 8)]),
    )
    story.shows(0, (0, 0, 0), ((7, 8), 2))
    return story.at("b", (R2, (3, 5), 1)).at("c", (R3, (7, 8), -1)).at("a", (R1, (2, 3), -1))


def figure_5_right() -> Story:
    story = figure_5().shows(1, (0, 1, 0), ((5, 6), 2)).shows(2, (0, 1, 1), ((7, 8), -2))
    return story.shows(3, (1, 1, 1), ((5, 6), -1))


def two_counters(protocol: str = "sweep") -> Story:
    """A product of two relations that shows one value of each: V = a's row, b's row."""
    return Story(
        "SELECT x, y FROM a.r, b.s", protocol, a_r=(("x",), [(0,)]), b_s=(("y",), [(0,)])
    ).shows(0, (0, 0), ((0, 0), 1))


def moved(relation: str, old: int, new: int) -> tuple[Any, Any]:
    return (relation, (old,), -1), (relation, (new,), 1)


def test_figure_5_is_complete_in_delivery_order() -> None:
    verdict = figure_5_right().checked()
    assert (verdict.verdict, verdict.reached) == ("valid", DELIVERY)
    assert [dict(vector) for _, vector in verdict.witness][2] == {"a": 0, "b": 1, "c": 1}


def test_figure_5_uncompensated_lacks_what_the_concurrent_delete_took() -> None:
    story = figure_5().shows(1, (0, 1, 0), ((5, 6), 1)).shows(2, (0, 1, 1), ((7, 8), -1))
    verdict = story.shows(3, (1, 1, 1), ((5, 6), -1)).checked()
    assert (verdict.verdict, verdict.reached) == ("invalid", None)
    assert "lacks 1 x (5, 6)" in str(verdict.contradiction)
    assert "version 1 of b, delivered at position 1, added it: that change was lost" in str(
        verdict.contradiction
    )


def test_an_update_shown_early_names_the_position_it_belongs_to() -> None:
    story = figure_5().shows(1, (0, 1, 0), ((5, 6), 2), ((7, 8), -2)).shows(2, (0, 1, 1))
    verdict = story.shows(3, (1, 1, 1), ((5, 6), -1)).checked()
    assert "it goes only with version 1 of c" in str(verdict.contradiction)
    assert "drops it 1 position early" in str(verdict.contradiction)
    assert verdict.answers["strong"] == "fails"
    assert story.checked(any_vectors=True).answers["strong"] == "holds"


def test_eca_insert_anomaly_counts_a_row_twice() -> None:
    story = Story(
        "SELECT r1.W FROM s.r1, s.r2 WHERE r1.X = r2.X",
        "eca",
        s_r1=(("W", "X"), [(1, 2)]),
        s_r2=(("X", "Y"), []),
    ).shows(0, (0,))
    story.at("s", ("r2", (2, 3), 1)).at("s", ("r1", (4, 2), 1))
    story.shows(1, (1,), ((1,), 1), ((4,), 1)).shows(2, (2,), ((4,), 1))
    verdict = story.checked()
    assert (verdict.verdict, verdict.reached) == ("invalid", None)
    assert "has 1 x (4) too many" in str(verdict.contradiction)


def test_eca_delete_anomaly_leaves_a_row_for_good() -> None:
    story = Story(
        "SELECT r1.W, r2.Y FROM s.r1, s.r2 WHERE r1.X = r2.X",
        "eca",
        s_r1=(("W", "X"), [(1, 2)]),
        s_r2=(("X", "Y"), [(2, 3)]),
    ).shows(0, (0,), ((1, 3), 1))
    story.at("s", ("r1", (1, 2), -1)).at("s", ("r2", (2, 3), -1))
    verdict = story.shows(1, (1,)).shows(2, (2,)).checked()
    assert (verdict.verdict, verdict.reached) == ("invalid", None)
    assert "the state still shows its effect" in str(verdict.contradiction)


# One trace per level ------------------------------------------------------------------------------


def test_skipped_values_are_strong_but_not_complete() -> None:
    story = two_counters("nested-sweep").at("a", *moved("r", 0, 1)).at("b", *moved("s", 0, 1))
    story.shows(2, (1, 1), ((0, 0), -1), ((1, 1), 1))
    assert story.checked().verdict == "valid"
    verdict = story.checked("complete")
    assert (verdict.verdict, str(verdict.reached)) == ("invalid", "strong")
    assert "No value of the view may be left out" in str(verdict.contradiction)


@pytest.mark.parametrize("claimed", [(0, 1), (1, 0)])
def test_another_path_is_complete_but_not_in_delivery_order(claimed: tuple[int, int]) -> None:
    story = two_counters().at("a", *moved("r", 0, 1)).at("b", *moved("s", 0, 1))
    story.shows(1, claimed, ((0, 0), -1), ((0, 1), 1)).shows(2, (1, 1), ((0, 1), -1), ((1, 1), 1))
    verdict = story.checked(any_vectors=True)
    assert (verdict.verdict, str(verdict.reached)) == ("invalid", "complete")


def test_time_running_back_is_weak_but_not_strong() -> None:
    story = two_counters().at("a", *moved("r", 0, 1)).at("b", *moved("s", 0, 1))
    story.shows(1, (1, 0), ((0, 0), -1), ((0, 1), 1))
    story.shows(2, (1, 0), ((0, 1), -1), ((1, 0), 1)).at("a")
    story.shows(3, (2, 1), ((1, 0), -1), ((1, 1), 1))
    verdict = story.checked("strong", any_vectors=True)
    assert (verdict.verdict, str(verdict.reached)) == ("invalid", "weak")
    assert "none of these lies at or after" in str(verdict.contradiction)


def test_a_state_that_never_was_is_only_convergent() -> None:
    story = two_counters().at("a", *moved("r", 0, 1)).at("b", *moved("s", 0, 1))
    story.shows(1, (1, 0), ((0, 0), -1), ((5, 5), 1))
    story.shows(2, (1, 1), ((5, 5), -1), ((1, 1), 1))
    verdict = story.checked("weak")
    assert (verdict.verdict, str(verdict.reached)) == ("invalid", "convergent")
    assert "no rows of the sources, of any version, combine to it" in str(verdict.contradiction)


def test_beyond_the_budget_the_answer_is_unknown() -> None:
    story = two_counters().at("a", *moved("r", 0, 1)).at("b", *moved("s", 0, 1))
    story.shows(1, (1, 0), ((0, 0), -1), ((0, 1), 1)).shows(2, (1, 1), ((0, 1), -1), ((1, 1), 1))
    verdict = story.checked("complete", any_vectors=True, vectors=3)
    assert (verdict.verdict, str(verdict.reached)) == ("unknown", "convergent")
    assert "4 version vectors" in str(verdict.undecided)


def test_noop_updates_show_empty_states() -> None:
    story = two_counters().at("a").at("b", ("s", (3,), 1), ("s", (3,), -1))
    assert story.shows(1, (1, 0)).shows(2, (1, 1)).checked().reached is DELIVERY


def test_noop_updates_without_a_state_are_still_complete() -> None:
    story = two_counters("lca").at("a").at("b", *moved("s", 0, 1))
    story.shows(2, (1, 1), ((0, 0), -1), ((0, 1), 1))
    assert str(story.checked().reached) == "complete"
    assert "however no state shows it" in str(story.checked(DELIVERY.name).contradiction)


# Forgeries ----------------------------------------------------------------------------------------


def test_a_changed_count_is_refused() -> None:
    story = figure_5().shows(1, (0, 1, 0), ((5, 6), 3)).shows(2, (0, 1, 1), ((7, 8), -2))
    verdict = story.shows(3, (1, 1, 1), ((5, 6), -1)).checked()
    assert "has 1 x (5, 6) too many" in str(verdict.contradiction)


def test_a_change_moved_to_another_position_is_refused() -> None:
    story = figure_5().shows(1, (0, 1, 0)).shows(2, (0, 1, 1), ((7, 8), -2), ((5, 6), 2))
    verdict = story.shows(3, (1, 1, 1), ((5, 6), -1)).checked()
    assert "corrected only in the state at position 2, 1 position late" in str(
        verdict.contradiction
    )


def test_a_vector_ahead_of_the_deliveries_is_refused_at_every_level() -> None:
    story = figure_5().shows(1, (1, 1, 0), ((5, 6), 2)).shows(2, (0, 1, 1), ((7, 8), -2))
    story.shows(3, (1, 1, 1), ((5, 6), -1))
    for level in LEVELS:
        verdict = story.checked(level.name)
        assert verdict.verdict == "invalid"
        assert "claims version 1, ahead of what was delivered" in str(verdict.contradiction)


def test_a_position_twice_is_refused() -> None:
    story = figure_5_right().shows(3, (1, 1, 1))
    verdict = story.checked("convergent")
    assert verdict.verdict == "invalid"
    assert "Position 3 has one state" in str(verdict.contradiction)


def test_a_missing_state_is_refused() -> None:
    story = figure_5().shows(1, (0, 1, 0), ((5, 6), 2))
    story.shows(3, (1, 1, 1), ((7, 8), -2), ((5, 6), -1))
    verdict = story.checked()
    assert "Position 2 delivers version 1 of c, however no state shows it" in str(
        verdict.contradiction
    )
    assert verdict.answers["strong"] == "holds"


def test_a_state_before_its_delivery_is_refused() -> None:
    story = two_counters().shows(1, (1, 0), ((0, 0), -1), ((1, 0), 1)).at("a", *moved("r", 0, 1))
    verdict = story.checked()
    assert "at that time only 0 positions were delivered" in str(verdict.contradiction)


def test_less_than_none_of_a_row_is_named() -> None:
    story = two_counters().at("a", *moved("r", 0, 1)).shows(1, (1, 0), ((0, 0), -2), ((1, 0), 1))
    story.at("a", *moved("r", 1, 0)).shows(2, (2, 0), ((0, 0), 2), ((1, 0), -1))
    verdict = story.checked("weak")
    assert "the state of position 1 holds (0, 0) -1 times" in str(verdict.contradiction)


def test_an_end_line_that_disagrees_is_refused() -> None:
    story = two_counters().commits("a", *moved("r", 0, 1))
    verdict = story.checked("convergent")
    assert "however the end line says 1" in str(verdict.contradiction)


# Global transactions ------------------------------------------------------------------------------


def global_transaction() -> Story:
    story = two_counters().commits("a", *moved("r", 0, 1), part_of="g1")
    story.commits("b", *moved("s", 0, 1), part_of="g1")
    return story.delivers("a", 1, 1).delivers("b", 1, 1)


def test_a_global_transaction_is_one_position() -> None:
    story = global_transaction().shows(1, (1, 1), ((0, 0), -1), ((1, 1), 1))
    assert story.checked().reached is DELIVERY


def test_half_of_a_global_transaction_is_named() -> None:
    story = global_transaction().shows(1, (1, 1), ((0, 0), -1), ((1, 0), 1))
    verdict = story.at("a").shows(2, (2, 1), ((1, 0), -1), ((1, 1), 1)).checked()
    assert "half of the global transaction g1" in str(verdict.contradiction)
    assert str(verdict.reached) == "convergent"


def test_a_global_transaction_split_over_positions_is_no_delivery_order() -> None:
    story = two_counters().commits("a", *moved("r", 0, 1), part_of="g1")
    story.commits("b", *moved("s", 0, 1), part_of="g1").delivers("a", 1, 1).delivers("b", 1, 2)
    story.shows(1, (1, 0), ((0, 0), -1), ((1, 0), 1)).shows(2, (1, 1), ((1, 0), -1), ((1, 1), 1))
    verdict = story.checked()
    assert "delivers a part of the global transaction g1" in str(verdict.contradiction)
    assert str(verdict.reached) == "convergent"


def test_opposite_orders_of_two_global_transactions_are_one_step() -> None:
    story = two_counters("lca")
    story.commits("a", *moved("r", 0, 1), part_of="g").commits("a", *moved("r", 1, 2), part_of="h")
    story.commits("b", *moved("s", 0, 1), part_of="h").commits("b", *moved("s", 1, 2), part_of="g")
    for source, version in (("a", 1), ("a", 2), ("b", 1), ("b", 2)):
        story.delivers(source, version, 1)
    verdict = story.shows(1, (2, 2), ((0, 0), -1), ((2, 2), 1)).checked()
    assert verdict.reached is DELIVERY


# SQL ----------------------------------------------------------------------------------------------


def test_null_joins_nothing() -> None:
    story = Story(
        "SELECT r.x FROM a.r JOIN b.s ON r.x = s.x",
        a_r=(("x",), [(None,), (1,)]),
        b_s=(("x",), [(None,)]),
    ).shows(0, (0, 0))
    story.at("b", ("s", (1,), 1), ("s", (None,), 1)).shows(1, (0, 1), ((1,), 1))
    assert story.checked().reached is DELIVERY


def test_self_join_with_duplicates() -> None:
    story = Story(
        "SELECT p.x, q.y FROM a.r p JOIN a.r q ON p.x = q.y", a_r=(("x", "y"), [(1, 1), (1, 1)])
    ).shows(0, (0,), ((1, 1), 4))
    story.at("a", ("r", (1, 1), 1)).shows(1, (1,), ((1, 1), 5))
    assert story.checked().reached is DELIVERY


@pytest.mark.parametrize(
    ("view", "before", "change"),
    [
        ("SELECT count(*) AS n FROM a.r", ((1,), 1), (((1,), -1), ((2,), 1))),
        ("SELECT DISTINCT x FROM a.r", ((1,), 1), ()),
        ("SELECT sum(x) FROM a.r", ((1,), 1), (((1,), -1), ((2,), 1))),
        ("SELECT x FROM a.r WHERE x IN (SELECT x FROM a.r)", ((1,), 1), (((1,), 1),)),
    ],
)
def test_other_views_are_evaluated_at_every_vector(view: str, before: Any, change: Any) -> None:
    story = Story(view, a_r=(("x",), [(1,)])).shows(0, (0,), before)
    story.at("a", ("r", (1,), 1)).shows(1, (1,), *change)
    assert story.checked().reached is DELIVERY
    story.at("a", ("r", (1,), -1)).shows(2, (2,))
    assert story.checked().verdict == ("valid" if not change else "invalid")


def test_the_first_state_may_stand_at_later_versions() -> None:
    story = two_counters()
    story.lines.pop()
    story.commits("a", *moved("r", 0, 1)).delivers("a", 1, 0).shows(0, (1, 0), ((1, 0), 1))
    story.at("b", *moved("s", 0, 1)).shows(1, (1, 1), ((1, 0), -1), ((1, 1), 1))
    assert story.checked().reached is DELIVERY


def test_a_trace_without_end_is_judged_up_to_its_last_state() -> None:
    story = figure_5().shows(1, (0, 1, 0), ((5, 6), 2))
    verdict = check(read_trace(story.lines), story.claimed)
    assert verdict.verdict == "valid"
    assert any("no end line" in remark for remark in verdict.remarks)
    assert any("not judged" in remark for remark in verdict.remarks)


def test_a_run_without_states_is_refused() -> None:
    story = two_counters()
    story.lines.pop()
    assert "it shows no state" in str(story.checked().contradiction)


def test_compensated_answers_are_counted() -> None:
    story = figure_5_right()
    story.lines += [t.query_line(1, 1, "a", "R1"), t.answer_line(1, 1)]
    story.lines += [t.query_line(2, 3, "a", "R1"), t.answer_line(2, 1)]
    counts = story.checked().counts
    assert (counts.updates, counts.queries, counts.compensated) == (3, 2, 1)


@pytest.mark.parametrize(
    ("view", "says"),
    [
        ("SELECT", "the view"),
        ("DROP TABLE a.r", "one SELECT"),
        ("SELECT x FROM a.nothing", "which the sources do not have"),
        ("SELECT nothing FROM a.r", "DuckDB cannot evaluate the view"),
    ],
)
def test_a_view_that_cannot_be_evaluated_is_wrong_use(view: str, says: str) -> None:
    with pytest.raises(WrongUse, match=says):
        Story(view, a_r=(("x",), [])).shows(0, (0,)).checked()


def test_a_delete_of_what_is_not_there_is_wrong_use() -> None:
    with pytest.raises(WrongUse, match=r"deletes row \(7\) from a\.r"):
        Story("SELECT x FROM a.r", a_r=(("x",), [])).shows(0, (0,)).at(
            "a", ("r", (7,), -1)
        ).checked()


def test_every_level_implies_the_one_before() -> None:
    assert [level.implies for level in LEVELS] == [None, *(level.name for level in LEVELS[:-1])]
    with pytest.raises(WrongUse, match="unknown level"):
        level_named("perfect")
