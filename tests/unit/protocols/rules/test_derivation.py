"""The rules that are derived for the paper's views, and the views for which none are."""

import pytest
import sqlglot

from protocols.errors import ViewRefused, WrongUse
from protocols.rules.derivation import Rule, rules
from protocols.rules.names import ViewNames, in_dollars, literal, quoted
from protocols.rules.script import installation
from protocols.rules.transition import Event, collected, direct
from protocols.rules.view import RuledView, read_view
from tests.cases.airline import (
    AIRLINE,
    BAD_FLIGHT,
    FF_RES,
    FF_RES_DISTINCT,
    MANY_MILES,
    SPECIAL_MEALS,
)


def _view(sql: str, name: str = "v") -> RuledView:
    return read_view(name, sql, AIRLINE)


def _rules(sql: str, relation: str, event: Event) -> tuple[Rule, ...]:
    view = _view(sql)
    [changed] = [each for each in view.relations if each.name == relation]
    return rules(direct(view, changed, event))


def _plain(statement: str) -> str:
    """A statement without its layout."""
    plain = " ".join(statement.split()).replace("( ", "(").replace(" )", ")")
    return plain.replace("EXISTS(", "EXISTS (")


def _rows(rule: Rule) -> str:
    """The SELECT of the rows that a rule deletes or inserts."""
    text = _plain(rule.statement)
    return text[text.index("viewsweep_row AS (") + 18 : text.rindex(") " + rule.action.upper())]


# -- the paper's printed rules -------------------------------------------------------------------


def test_section_5_5_ins_res_special_meals() -> None:
    [rule] = _rules(SPECIAL_MEALS, "res", "insert")
    assert (rule.name, rule.section, rule.action) == ("ins-res-v", "5.4", "insert")
    assert _rows(rule) == (
        "SELECT res.seat AS seat, psgr.meal AS meal FROM inserted_res AS res, air.psgr WHERE"
        " res.flight_id = 7 AND res.psgr_id = psgr.psgr_id AND NOT psgr.meal IS NULL"
    )
    assert "not in inserted V" not in rule.statement
    assert _plain(rule.statement).endswith(
        "INSERT INTO viewsweep.v SELECT * FROM viewsweep_row ON CONFLICT DO NOTHING"
    )


def test_section_5_5_an_update_runs_the_deletion_before_the_insertion() -> None:
    deletion, insertion = _rules(SPECIAL_MEALS, "res", "update")
    assert (deletion.name, insertion.name) == ("del-res-v", "ins-res-v")
    assert (deletion.action, insertion.action) == ("delete", "insert")
    assert "FROM deleted_res AS res, air.psgr" in _rows(deletion)
    assert "FROM inserted_res AS res, air.psgr" in _rows(insertion)


def test_section_5_5_a_deletion_from_an_unsafe_reference_looks_for_other_rows() -> None:
    [rule] = _rules(FF_RES_DISTINCT, "res", "delete")
    assert _rows(rule) == (
        "SELECT DISTINCT psgr.ffn AS ffn FROM air.psgr, deleted_res AS res"
        " WHERE psgr.psgr_id = res.psgr_id"
    )
    assert _plain(rule.statement).endswith(
        "WHERE kept.ffn = viewsweep_row.ffn AND NOT EXISTS (SELECT 1 FROM air.psgr, air.res WHERE"
        " psgr.psgr_id = res.psgr_id AND (psgr.ffn) = viewsweep_row.ffn)"
    )
    [safe] = _rules(FF_RES_DISTINCT, "psgr", "delete")
    assert "NOT EXISTS" not in safe.statement


def test_section_6_4_the_rules_for_ff_of_many_miles() -> None:
    [insertion] = _rules(MANY_MILES, "ff", "insert")
    assert insertion.section == "6.2"
    assert _rows(insertion).endswith(
        "WHERE psgr.ffn IN (SELECT ffn FROM inserted_ff AS ff WHERE miles > 50000)"
    )
    [deletion] = _rules(MANY_MILES, "ff", "delete")
    assert "FROM deleted_ff AS ff" in _rows(deletion)
    assert "EXISTS" not in deletion.statement


def test_section_7_3_the_rules_for_flight_of_bad_flight() -> None:
    [deletion] = _rules(BAD_FLIGHT, "flight", "insert")
    assert (deletion.section, deletion.action) == ("7.2", "delete")
    turned = "EXISTS (SELECT * FROM {} WHERE flight.flight_id = res.flight_id)"
    assert _rows(deletion).endswith(f"WHERE {turned.format('inserted_flight AS flight')}")
    [insertion] = _rules(BAD_FLIGHT, "flight", "delete")
    went, now = turned.format("deleted_flight AS flight"), turned.format("air.flight")
    assert insertion.action == "insert"
    assert _rows(insertion).endswith(f"WHERE {went} AND NOT {now}")


def test_a_row_that_two_negative_conditions_exclude_at_once_is_deleted() -> None:
    """A campaign found it: the rule for each of them looked whether the other one held."""
    sql = (
        "SELECT res_id FROM air.res WHERE seat NOT IN (SELECT day FROM air.flight)"
        " AND NOT EXISTS (SELECT 1 FROM air.flight f WHERE f.flight_id = res.flight_id)"
    )
    first, second = _rules(sql, "flight", "insert")
    assert "EXISTS" not in _rows(first)
    assert "seat IN" not in _rows(second)


def test_section_3_a_transition_of_several_relations_reads_them_as_they_were() -> None:
    view = _view(SPECIAL_MEALS)
    found = rules(collected(view))
    assert [rule.name for rule in found] == ["del-res-v", "del-psgr-v", "ins-res-v", "ins-psgr-v"]
    assert "FROM deleted_res AS res, old_psgr AS psgr" in _rows(found[0])
    assert "old_psgr AS NOT MATERIALIZED (SELECT psgr_id, meal FROM air.psgr UNION ALL" in (
        _plain(found[0].statement)
    )
    assert "FROM inserted_res AS res, air.psgr" in _rows(found[2])


def test_section_5_4_each_reference_to_one_relation_has_a_rule() -> None:
    pairs = "SELECT a.res_id AS x, b.res_id AS y FROM air.res a, air.res b WHERE a.seat = b.seat"
    assert [rule.name for rule in _rules(pairs, "res", "insert")] == ["ins-a-v", "ins-b-v"]
    first, _ = _rules(pairs, "res", "delete")
    assert "FROM deleted_res AS a, old_res AS b" in _rows(first)


UNION = "SELECT flight_id FROM air.flight UNION SELECT flight_id FROM air.res"


def test_section_8_1_a_row_that_left_one_select_stays_if_another_has_it() -> None:
    [deletion] = _rules(UNION, "flight", "delete")
    assert (
        _plain(deletion.statement).endswith(
            "AND NOT EXISTS (SELECT 1 FROM air.res WHERE (flight_id) = viewsweep_row.flight_id"
            " OR ((flight_id) IS NULL AND viewsweep_row.flight_id IS NULL))"
        )
        or "FROM air.res" in deletion.statement.rpartition("NOT EXISTS")[2]
    )
    [insertion] = _rules(UNION, "flight", "insert")
    assert "EXISTS" not in insertion.statement


def test_section_8_2_a_row_that_came_to_one_select_comes_if_all_others_have_it() -> None:
    both = UNION.replace("UNION", "INTERSECT")
    [deletion] = _rules(both, "flight", "delete")
    assert "EXISTS" not in deletion.statement
    [insertion] = _rules(both, "flight", "insert")
    assert "FROM air.res" in insertion.statement.rpartition("WHERE EXISTS")[2]


def test_a_row_that_comes_on_the_right_of_except_leaves_the_view() -> None:
    without = UNION.replace("UNION", "EXCEPT")
    assert [each.action for each in _rules(without, "res", "insert")] == ["delete"]
    assert [each.action for each in _rules(without, "res", "delete")] == ["insert"]


def test_where_the_criteria_do_not_reach_the_view_is_computed_again() -> None:
    sql = "SELECT res_id FROM air.res WHERE seat = 1 OR seat IN (SELECT miles FROM air.ff)"
    assert {each.name for each in _rules(sql, "ff", "insert")} == {"rematerialize-v"}
    assert [each.name for each in _rules(sql, "res", "insert")] == ["ins-res-v"]


@pytest.mark.parametrize("sql", [SPECIAL_MEALS, FF_RES_DISTINCT, MANY_MILES, BAD_FLIGHT, UNION])
def test_the_script_is_sql(sql: str) -> None:
    script = installation(_view(sql))
    for rule in rules(collected(_view(sql))):
        assert sqlglot.parse_one(rule.statement, dialect="postgres")
        assert rule.statement in script


# -- keys and columns ----------------------------------------------------------------------------


def test_the_key_of_the_view_is_as_small_as_it_can_be() -> None:
    assert _view(SPECIAL_MEALS).key == ("seat",)
    assert _view(UNION).key == ("flight_id",)
    assert _view("SELECT * FROM air.ff").key == ("ffn",)
    assert "ADD PRIMARY KEY (seat)" in installation(_view(SPECIAL_MEALS))


def test_a_key_with_columns_that_may_be_null_is_an_index_in_which_nulls_are_equal() -> None:
    script = installation(_view("SELECT DISTINCT meal FROM air.psgr"))
    assert "CREATE UNIQUE INDEX ON viewsweep.v ((ARRAY[meal]))" in script


# -- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        (FF_RES, "no key of res is bound; DISTINCT is needed. .* in: SELECT DISTINCT psgr.ffn"),
        (UNION.replace("UNION", "UNION ALL"), "write UNION without ALL"),
        ("SELECT seat, count(*) AS n FROM air.res GROUP BY seat", "do not cover GROUP"),
        ("SELECT res_id, seat AS res_id FROM air.res", "two columns are called 'res_id'"),
        (
            "SELECT f.* FROM air.res LEFT JOIN air.flight f USING (flight_id)",
            "do not cover LEFT JOIN",
        ),
        ("SELECT x FROM air.nothing", "no relation air.nothing"),
    ],
)
def test_a_view_that_rules_cannot_keep_is_refused(sql: str, message: str) -> None:
    with pytest.raises(ViewRefused, match=message):
        _view(sql)


def test_a_name_that_postgresql_would_cut_is_refused() -> None:
    with pytest.raises(WrongUse, match="longer than 32 bytes"):
        ViewNames("x" * 33)


# -- names ---------------------------------------------------------------------------------------


def test_names_and_strings_cannot_end_early() -> None:
    assert quoted("order") == '"order"'
    assert quoted('a"b') == '"a""b"'
    assert literal("it's") == "'it''s'"
    assert in_dollars("rule", "a $rule$ b") == "$rule_$a $rule$ b$rule_$"


def test_long_names_are_cut_and_stay_different() -> None:
    names = ViewNames("v" * 32)
    one, other = (names.within(f"insert shop.{'x' * 60}_{n}") for n in "ab")
    assert len(one) <= 63
    assert one != other
