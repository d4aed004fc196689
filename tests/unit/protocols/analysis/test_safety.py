"""Bound columns and safety: the examples of Ceri and Widom, and where SQL needs more care."""

import pytest

from protocols.analysis.boundcolumns import BoundColumn
from protocols.analysis.safety import Safety, SelectAnalysis, analysed
from protocols.analysis.wording import as_json
from protocols.errors import ViewRefused
from protocols.views.catalog import catalog_from_json
from tests.cases.airline import (
    AIRLINE,
    BAD_FLIGHT,
    FF_RES,
    FF_RES_DISTINCT,
    MANY_MILES,
    SPECIAL_MEALS,
    WITHOUT_FURTHER_KEYS,
)


def _analysis(sql: str, *, further: bool = True) -> SelectAnalysis:
    (only,) = analysed(sql, AIRLINE if further else catalog_from_json(WITHOUT_FURTHER_KEYS))
    return only


def _columns(bound: tuple[BoundColumn, ...]) -> set[str]:
    return {each.column for each in bound}


def _all_of(name: str) -> set[str]:
    found = next(each for each in AIRLINE if each.name == name)
    return {f"{name}.{column}" for column in found.column_names}


def _verdict(sql: str, reference: str, *, further: bool = True) -> Safety:
    return next(e for e in _analysis(sql, further=further).references if e.reference == reference)


# -- Section 5.5 -----------------------------------------------------------------------------------


def test_section_5_5_the_bound_columns_of_special_meals() -> None:
    """The paper stops at psgr.psgr_id; by its Definition 5.1, 3b, that key binds all of psgr."""
    bound = _analysis(SPECIAL_MEALS).bound
    assert _columns(bound) == _all_of("res") | _all_of("psgr")
    because = {each.column: each.because for each in bound}
    assert because["res.seat"] == because["psgr.meal"] == "it is shown"
    assert because["res.flight_id"] == "it equals a constant in res.flight_id = 7"
    assert because["res.res_id"] == "res's key res.flight_id and res.seat is bound"
    assert because["psgr.psgr_id"] == "it equals res.psgr_id"


def test_section_5_5_special_meals_has_no_duplicates_and_both_references_are_safe() -> None:
    analysis = _analysis(SPECIAL_MEALS)
    assert not analysis.duplicates.possible
    assert [each.insert_safe for each in analysis.references] == [True, True]
    assert str(analysis) == (
        "no row occurs twice\n"
        "res is safe: its key (flight_id, seat) is bound\n"
        "psgr is safe: its key psgr_id is bound"
    )


def test_section_5_5_ff_res_needs_distinct_and_its_reference_res_is_not_safe() -> None:
    analysis = _analysis(FF_RES)
    assert _columns(analysis.bound) == _all_of("psgr") | {"res.psgr_id"}
    assert str(analysis.duplicates) == (
        "rows may occur twice: no key of res is bound; DISTINCT is needed"
    )
    assert not _analysis(FF_RES_DISTINCT).duplicates.possible
    psgr, res = _analysis(FF_RES_DISTINCT).references
    assert (psgr.inserted, psgr.deleted, psgr.updated) == ("alone", "alone", "alone")
    assert (res.inserted, res.deleted, res.updated) == ("with a look", "with a look", "with a look")
    assert str(res) == (
        "res is not safe: none of its keys is bound (res_id, (psgr_id, flight_id), "
        "(flight_id, seat)); with res.res_id one would be"
    )


def test_section_4_1_changes_of_the_view_that_would_help_are_written_down() -> None:
    where = "FROM air.psgr, air.res WHERE psgr.psgr_id = res.psgr_id"
    distinct = f"SELECT DISTINCT psgr.ffn {where}"
    assert _analysis(FF_RES).suggestions == (
        f"no row occurs twice in: {distinct}",
        f"res is safe in: SELECT psgr.ffn, res.res_id {where}",
    )
    assert not _analysis(distinct).references[1].insert_safe
    assert _analysis(f"SELECT psgr.ffn, res.res_id {where}").references[1].insert_safe
    assert _analysis(SPECIAL_MEALS).suggestions == ()


def test_without_the_further_keys_less_is_bound() -> None:
    """The paper: all known keys should be specified, since the analysis rests on them."""
    assert not _verdict(SPECIAL_MEALS, "res", further=False).insert_safe
    assert not _verdict(FF_RES, "psgr", further=False).insert_safe


# -- Section 6.4 -----------------------------------------------------------------------------------


def test_section_6_4_the_nested_reference_of_many_miles_is_safe() -> None:
    analysis = _analysis(MANY_MILES)
    assert _columns(analysis.bound) == _all_of("psgr")
    (correlated,) = analysis.correlated
    assert _columns(correlated) == _all_of("ff")
    assert str(_verdict(MANY_MILES, "ff")) == "ff is safe: its key ffn is bound by correlation"


@pytest.mark.parametrize(
    "condition",
    [
        "EXISTS (SELECT * FROM air.ff WHERE ff.ffn = psgr.ffn AND miles > 50000)",
        "psgr.ffn = ANY (SELECT ffn FROM air.ff WHERE miles > 50000)",
        "NOT (psgr.ffn <> ALL (SELECT ffn FROM air.ff WHERE miles > 50000))",
        "NOT psgr.ffn NOT IN (SELECT ffn FROM air.ff WHERE miles > 50000)",
    ],
)
def test_section_6_3_other_positive_subqueries_bind_the_same_columns(condition: str) -> None:
    analysis = _analysis(f"SELECT psgr_id FROM air.psgr WHERE {condition}")
    assert _columns(analysis.correlated[0]) == _all_of("ff")
    assert analysis.references[1].place == "positive"
    assert analysis.references[1].insert_safe


@pytest.mark.parametrize("operator", ["<", "<=", ">", ">=", "<>"])
def test_other_comparisons_with_any_bind_nothing(operator: str) -> None:
    sql = f"SELECT psgr_id FROM air.psgr WHERE ffn {operator} ANY (SELECT ffn FROM air.ff)"
    assert _analysis(sql).correlated == ((),)
    ff = _verdict(sql, "ff")
    assert (ff.place, ff.insert_safe) == ("positive", False)


def test_section_6_3_in_over_several_columns_binds_each_of_them() -> None:
    sql = "SELECT * FROM air.res WHERE ({}) IN (SELECT {} FROM air.flight)"
    both = sql.format("flight_id, seat", "flight_no, day")
    assert str(_verdict(both, "flight")) == (
        "flight is safe: its key (flight_no, day) is bound by correlation"
    )
    assert not _verdict(sql.format("flight_id", "flight_no"), "flight").insert_safe


# -- Section 7 -------------------------------------------------------------------------------------


def test_section_7_3_the_nested_reference_of_bad_flight_is_i_safe_and_du_safe() -> None:
    flight = _verdict(BAD_FLIGHT, "flight")
    assert (flight.insert_safe, flight.delete_safe) == (True, True)
    assert flight.inserted == "alone"
    # The same statement may insert a row that excludes the same rows.
    assert (flight.deleted, flight.updated) == ("with a look", "with a look")
    assert str(flight) == "flight is DU-safe: its key flight_id is bound by correlation"


def test_definition_7_1_a_subquery_may_only_speak_of_bound_columns() -> None:
    """res_id is not shown, and so flight_id is not bound."""
    sql = BAD_FLIGHT.replace("SELECT res_id", "SELECT DISTINCT seat")
    flight = _verdict(sql, "flight")
    assert (flight.insert_safe, flight.delete_safe) == (False, False)
    assert (flight.inserted, flight.deleted, flight.updated) == (
        "with a look",
        "with a look",
        "with a look",
    )
    assert str(flight) == (
        "flight is not I-safe: its subquery mentions res.flight_id, which is not bound; show it"
    )


def test_definition_7_3_du_safety_needs_a_key_as_well() -> None:
    sql = BAD_FLIGHT.replace("flight.flight_id = res.flight_id", "flight.day = res.seat")
    flight = _verdict(sql, "flight")
    assert (flight.inserted, flight.deleted, flight.updated) == (
        "alone",
        "with a look",
        "with a look",
    )
    assert str(flight).startswith(
        "flight is I-safe, but not DU-safe: none of its keys is bound (flight_id, (flight_no, day))"
    )


NOT_IN = "SELECT res_id FROM air.res WHERE {} NOT IN (SELECT {} FROM air.flight)"


def test_not_in_is_du_safe_only_if_nothing_compared_can_be_null() -> None:
    """The paper does not discuss NULL: a NULL res.flight_id enters the view with the deletion of
    the last flight, which no equality finds.
    """
    sql = NOT_IN.format("flight_id", "flight_id")
    doubtful = _verdict(sql, "flight", further=False)
    assert (doubtful.insert_safe, doubtful.delete_safe) == (True, False)
    assert doubtful.because == "res.flight_id may be NULL, and then the comparison is unknown"
    assert _verdict(f"{sql} AND res.flight_id IS NOT NULL", "flight", further=False).delete_safe
    between = f"{sql} AND res.flight_id BETWEEN 1 AND 9"
    assert _verdict(between, "flight", further=False).delete_safe
    by_key = NOT_IN.format("res_id", "flight_id")
    assert _verdict(by_key, "flight", further=False).delete_safe
    assert _verdict(sql, "flight").delete_safe
    assert _verdict(NOT_IN.format("7", "flight_id"), "flight").delete_safe
    nothing = NOT_IN.format("CAST(NULL AS BIGINT)", "flight_id")
    assert not _verdict(nothing, "flight").delete_safe


def test_whatever_cannot_be_kept_is_not_judged_either() -> None:
    sql = "SELECT res_id FROM air.res WHERE (res_id, seat) NOT IN (SELECT * FROM air.ff)"
    with pytest.raises(ViewRefused, match="rows can stand in conditions of WHERE only"):
        _analysis(sql)


def test_not_equal_any_is_no_negative_subquery() -> None:
    """Section 7 says it is one. But x <> ANY (…) is true as soon as one row differs."""
    sql = "SELECT psgr_id FROM air.psgr WHERE ffn {} (SELECT ffn FROM air.ff)"
    assert _verdict(sql.format("<> ANY"), "ff").place == "positive"
    assert _verdict(sql.format("<> ALL"), "ff").place == "negative"
    assert _verdict(sql.format("= ALL"), "ff").place == "negative"


# -- beyond the paper's language -------------------------------------------------------------------


def test_a_relation_named_twice_is_judged_twice() -> None:
    sql = (
        "SELECT a.res_id FROM air.res a WHERE EXISTS"
        " (SELECT 1 FROM air.res b WHERE b.flight_id = a.flight_id AND b.res_id <> a.res_id)"
    )
    outer, inner = _analysis(sql).references
    assert (outer.reference, outer.insert_safe) == ("a", True)
    assert (inner.reference, inner.insert_safe) == ("b", False)
    same_name = sql.replace("air.res b", "air.res a").replace("b.", "a.")
    assert [each.reference for each in _analysis(same_name).references] == ["a", "a_2"]


def test_joins_and_using_bind_like_equalities_in_where() -> None:
    sql = (
        "SELECT flight_no, day, seat FROM air.res JOIN air.flight USING (flight_id)"
        " JOIN air.psgr p ON p.psgr_id = res.psgr_id"
    )
    assert [each.insert_safe for each in _analysis(sql).references] == [True, True, True]


@pytest.mark.parametrize(
    "condition",
    [
        "res.seat = 1 OR EXISTS (SELECT 1 FROM air.flight f WHERE f.flight_id = res.flight_id)",
        "res.seat > (SELECT max(day) FROM air.flight f)",
        "EXISTS (SELECT 1 FROM air.flight f WHERE f.day IN (SELECT miles FROM air.ff))",
        "res.seat IN (SELECT max(f.day) FROM air.flight f)",
        "res.seat IN (SELECT f.day FROM air.flight f GROUP BY f.day)",
        "res.seat IN (SELECT f.day FROM air.flight f LEFT JOIN air.ff ON ff.ffn = f.day)",
        "res.seat IN (SELECT q.day FROM (SELECT f.day FROM air.flight f) q)",
    ],
)
def test_where_the_criteria_do_not_reach_everything_is_worked_out_anew(condition: str) -> None:
    flight = _verdict(f"SELECT res_id FROM air.res WHERE {condition}", "f")
    assert flight.place == "elsewhere"
    assert {flight.inserted, flight.deleted, flight.updated} == {"anew"}


def test_conjuncts_in_parentheses_bind_as_well_and_a_list_of_one_is_an_equality() -> None:
    sql = "SELECT seat FROM air.res WHERE (res.psgr_id = res.seat AND (flight_id IN (7)))"
    assert {"res.flight_id", "res.psgr_id"} <= _columns(_analysis(sql).bound)


def test_an_equality_below_or_binds_nothing() -> None:
    sql = "SELECT DISTINCT seat FROM air.res WHERE res_id = 1 OR res_id = 2"
    assert _columns(_analysis(sql).bound) == {"res.seat"}


def test_section_8_each_select_of_a_union_is_looked_at_by_itself() -> None:
    first, second = analysed(f"{FF_RES_DISTINCT} UNION {MANY_MILES}", AIRLINE)
    assert [each.reference for each in first.references] == ["psgr", "res"]
    assert [each.reference for each in second.references] == ["psgr", "ff"]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT seat, count(*) AS n FROM air.res GROUP BY seat", "do not cover GROUP"),
        ("SELECT count(*) AS n FROM air.res", "do not cover aggregates"),
        (
            "SELECT seat FROM air.res LEFT JOIN air.flight USING (flight_id)",
            "do not cover LEFT JOIN",
        ),
        ("SELECT a FROM (SELECT seat AS a FROM air.res) q", "do not cover subqueries in FROM"),
        ("SELECT seat FROM air.reservation", r"no relation air\.reservation; there are: air\.fli"),
        ("SELECT chair FROM air.res", "no relation in FROM has a column 'chair'"),
    ],
)
def test_what_the_criteria_do_not_speak_of_is_refused(sql: str, message: str) -> None:
    with pytest.raises(ViewRefused, match=message):
        _analysis(sql)


def test_the_analysis_becomes_json() -> None:
    form = as_json(_analysis(BAD_FLIGHT))
    assert form["bound"][0] == {"column": "res.res_id", "because": "it is shown"}
    assert form["duplicates"] == {"possible": False, "unbound": []}
    assert form["references"][1]["delete_safe"] is True
