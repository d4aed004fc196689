"""The derived rules of Ceri and Widom: the printed ones, and all of them run on DuckDB.

`flight.inserted` in the paper is the table `inserted_flight` here, and so on.
"""

from dataclasses import dataclass
from random import Random
from typing import Any

import duckdb
import pytest
import sqlglot

from protocols.analysis.references import selects_of
from protocols.analysis.rules import EVENTS, Event, Rule, rules_of
from protocols.views.catalog import Relation
from tests.cases.airline import (
    AIRLINE,
    BAD_FLIGHT,
    FF_RES_DISTINCT,
    MANY_MILES,
    SPECIAL_MEALS,
)


def _rules(sql: str, view: str = "v") -> tuple[Rule, ...]:
    (select,) = selects_of(sql, AIRLINE)
    return rules_of(select, view)


def _statement(sql: str, view: str, reference: str, event: Event) -> str:
    rule = next(r for r in _rules(sql, view) if (r.reference, r.event) == (reference, event))
    return rule.statement


def _same(ours: str, paper: str) -> bool:
    return sqlglot.parse(ours, read="duckdb") == sqlglot.parse(paper, read="duckdb")


SPECIAL = "res.flight_id = 7 AND res.psgr_id = psgr.psgr_id AND psgr.meal IS NOT NULL"
PRINTED = [
    (
        "5.5, ins-res-special-meals",
        (SPECIAL_MEALS, "special_meals", "res", "inserted"),
        "INSERT INTO special_meals SELECT res.seat, psgr.meal FROM air.inserted_res AS res, "
        f"air.psgr WHERE {SPECIAL} AND (res.seat, psgr.meal) NOT IN "
        "(SELECT * FROM inserted_special_meals)",
    ),
    (
        "5.5, del-res-special-meals",
        (SPECIAL_MEALS, "special_meals", "res", "deleted"),
        "DELETE FROM special_meals WHERE (seat, meal) IN (SELECT res.seat, psgr.meal "
        f"FROM air.deleted_res AS res, air.old_psgr AS psgr WHERE {SPECIAL})",
    ),
    (
        "5.5, old-upd-res-special-meals",
        (SPECIAL_MEALS, "special_meals", "res", "old_updated"),
        "DELETE FROM special_meals WHERE (seat, meal) IN (SELECT res.seat, psgr.meal "
        f"FROM air.old_updated_res AS res, air.old_psgr AS psgr WHERE {SPECIAL})",
    ),
    (
        "5.5, new-upd-res-special-meals",
        (SPECIAL_MEALS, "special_meals", "res", "new_updated"),
        "INSERT INTO special_meals SELECT res.seat, psgr.meal FROM air.new_updated_res AS res, "
        f"air.psgr WHERE {SPECIAL} AND (res.seat, psgr.meal) NOT IN "
        "(SELECT * FROM inserted_special_meals)",
    ),
    (
        "5.5, ins-res-ff-res",
        (FF_RES_DISTINCT, "ff_res", "res", "inserted"),
        "INSERT INTO ff_res SELECT DISTINCT psgr.ffn FROM air.psgr, air.inserted_res AS res "
        "WHERE psgr.psgr_id = res.psgr_id AND psgr.ffn NOT IN (SELECT * FROM ff_res)",
    ),
    (
        "5.5, rematerialize-ff-res",
        (FF_RES_DISTINCT, "ff_res", "res", "deleted"),
        "DELETE FROM ff_res; INSERT INTO ff_res SELECT DISTINCT psgr.ffn FROM air.psgr, air.res "
        "WHERE psgr.psgr_id = res.psgr_id",
    ),
    (
        "6.4, ins-ff-many-miles",
        (MANY_MILES, "many_miles", "ff", "inserted"),
        "INSERT INTO many_miles SELECT psgr_id FROM air.psgr WHERE psgr.ffn IN (SELECT ffn "
        "FROM air.inserted_ff AS ff WHERE miles > 50000) AND psgr_id NOT IN "
        "(SELECT * FROM inserted_many_miles)",
    ),
    (
        "6.4, del-ff-many-miles",
        (MANY_MILES, "many_miles", "ff", "deleted"),
        "DELETE FROM many_miles WHERE psgr_id IN (SELECT psgr_id FROM air.old_psgr AS psgr WHERE "
        "psgr.ffn IN (SELECT ffn FROM air.deleted_ff AS ff WHERE miles > 50000))",
    ),
    (
        "7.3, ins-flight-bad-flight",
        (BAD_FLIGHT, "bad_flight", "flight", "inserted"),
        "DELETE FROM bad_flight WHERE res_id IN (SELECT res_id FROM air.res WHERE EXISTS "
        "(SELECT * FROM air.inserted_flight AS flight WHERE flight.flight_id = res.flight_id))",
    ),
    (
        "7.3, del-flight-bad-flight",
        (BAD_FLIGHT, "bad_flight", "flight", "deleted"),
        "INSERT INTO bad_flight SELECT res_id FROM air.res WHERE EXISTS (SELECT * FROM "
        "air.deleted_flight AS flight WHERE flight.flight_id = res.flight_id) AND res_id NOT IN "
        "(SELECT * FROM inserted_bad_flight)",
    ),
]


@pytest.mark.parametrize(("name", "rule", "paper"), PRINTED, ids=[each[0] for each in PRINTED])
def test_a_printed_rule(name: str, rule: tuple[str, str, str, Event], paper: str) -> None:
    assert _same(_statement(*rule), paper), name


def test_what_takes_rows_out_of_the_view_comes_first() -> None:
    actions = [rule.action for rule in _rules(BAD_FLIGHT)]
    assert actions == sorted(actions, key=lambda action: action == "insert")
    assert set(actions) == {"delete", "insert"}


# -- running the rules -----------------------------------------------------------------------------

Rows = dict[int, tuple[int, ...]]
RELATIONS = {relation.name: relation for relation in AIRLINE}


CONNECTION = duckdb.connect(":memory:", config={"threads": 1})
CONNECTION.execute("CREATE SCHEMA air")


@dataclass
class Airline:
    """The relations before and after a transaction in DuckDB, and the view before it."""

    before: dict[str, Rows]
    after: dict[str, Rows]

    def maintained(self, sql: str, rules: tuple[Rule, ...]) -> set[tuple[Any, ...]]:
        """The view after the rules whose events have occurred."""
        self._fill(sql)
        triggered = [rule for rule in rules if self._occurred(rule)]
        anew = [rule for rule in triggered if rule.action == "rematerialize"]
        for rule in anew[:1] or triggered:
            had = self._view()
            CONNECTION.execute(rule.statement)
            for row in self._view() - had:
                places = ", ".join("?" * len(row))
                CONNECTION.execute(f"INSERT INTO inserted_v VALUES ({places})", row)
        return self._view()

    def expected(self, sql: str) -> set[tuple[Any, ...]]:
        return set(CONNECTION.execute(sql).fetchall())

    def _view(self) -> set[tuple[Any, ...]]:
        rows = CONNECTION.execute("SELECT * FROM v").fetchall()
        assert len(rows) == len(set(rows)), "a row of the view occurs twice"
        return set(rows)

    def _fill(self, sql: str) -> None:
        for name, relation in RELATIONS.items():
            before, after = self.before[name], self.after[name]
            both = before.keys() & after.keys()
            changed = [key for key in both if before[key] != after[key]]
            self._table(name, relation, list(before.values()))
            self._table(f"old_{name}", relation, list(before.values()))
            self._table(f"inserted_{name}", relation, [after[k] for k in after.keys() - both])
            self._table(f"deleted_{name}", relation, [before[k] for k in before.keys() - both])
            self._table(f"old_updated_{name}", relation, [before[k] for k in changed])
            self._table(f"new_updated_{name}", relation, [after[k] for k in changed])
        CONNECTION.execute(f"CREATE OR REPLACE TABLE v AS {sql}")
        CONNECTION.execute("CREATE OR REPLACE TABLE inserted_v AS SELECT * FROM v WHERE FALSE")
        for name, relation in RELATIONS.items():
            self._table(name, relation, list(self.after[name].values()))

    def _table(self, name: str, relation: Relation, rows: list[tuple[int, ...]]) -> None:
        columns = ", ".join(f"{column} BIGINT" for column in relation.column_names)
        CONNECTION.execute(f"CREATE OR REPLACE TABLE air.{name} ({columns})")
        if rows:
            values = ", ".join(f"({', '.join(map(str, row))})" for row in rows)
            CONNECTION.execute(f"INSERT INTO air.{name} VALUES {values}")

    def _occurred(self, rule: Rule) -> bool:
        table = f"air.{rule.event}_{rule.relation.name}"
        return CONNECTION.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone() is not None


def random_airline(dice: Random) -> Airline:
    """A transaction that changes some rows of any relations; all keys hold before and after."""
    before = {name: _random_rows(dice, relation) for name, relation in RELATIONS.items()}
    after = {}
    for name, relation in RELATIONS.items():
        other = _random_rows(dice, relation)
        kept = {k: row for k, row in before[name].items() if dice.random() < 0.7}
        mixed = {**other, **kept} if dice.random() < 0.6 else before[name]
        after[name] = _with_keys(name, relation, mixed)
    return Airline(before, after)


def _random_rows(dice: Random, relation: Relation) -> Rows:
    width = len(relation.column_names) - 1
    # 7 is the flight of some views, and more miles than 2 are many.
    rows = {
        key: (key, *(dice.choice((1, 2, 7)) for _ in range(width)))
        for key in dice.sample((1, 2, 3, 7), dice.randint(2, 4))
    }
    return _with_keys(relation.name, relation, rows)


def _with_keys(name: str, relation: Relation, rows: Rows) -> Rows:
    """The rows without those that repeat a further key of another row."""
    kept: Rows = {}
    for primary, row in sorted(rows.items()):
        values = dict(zip(relation.column_names, row, strict=True))
        there = [dict(zip(relation.column_names, each, strict=True)) for each in kept.values()]
        clashes = any(
            all(values[column] == other[column] for column in key)
            for key in RELATIONS[name].further_keys
            for other in there
        )
        if not clashes:
            kept[primary] = row
    return kept


VIEWS = {
    "special meals": SPECIAL_MEALS,
    "frequent fliers": FF_RES_DISTINCT,
    "many miles": MANY_MILES.replace("50000", "2"),
    "bad flight": BAD_FLIGHT,
    "flights at a seat": BAD_FLIGHT.replace("flight.flight_id = res.flight_id", "day = seat"),
    "seats without a flight": BAD_FLIGHT.replace("SELECT res_id", "SELECT DISTINCT seat"),
    "not in": (
        "SELECT res_id FROM air.res WHERE flight_id NOT IN (SELECT flight_id FROM air.flight)"
    ),
    "below all": (
        "SELECT res_id, flight_id FROM air.res WHERE seat < ALL (SELECT day FROM air.flight)"
    ),
    "any": "SELECT psgr_id, ffn FROM air.psgr WHERE ffn <> ANY (SELECT ffn FROM air.ff)",
    "two in a subquery": (
        "SELECT psgr_id FROM air.psgr WHERE EXISTS (SELECT 1 FROM air.res, air.flight WHERE "
        "res.psgr_id = psgr.psgr_id AND res.flight_id = flight.flight_id AND flight.flight_id = 7)"
    ),
    "two excluded": (
        "SELECT psgr_id FROM air.psgr WHERE NOT EXISTS (SELECT 1 FROM air.res, air.flight WHERE "
        "res.psgr_id = psgr.psgr_id AND res.flight_id = flight.flight_id AND flight.flight_id = 7)"
    ),
    "elsewhere": (
        "SELECT res_id FROM air.res WHERE seat = 1 OR seat IN (SELECT miles FROM air.ff)"
    ),
}


@pytest.mark.parametrize("name", VIEWS)
def test_the_rules_keep_the_view_through_any_transaction(name: str) -> None:
    sql = VIEWS[name]
    rules = _rules(sql)
    changed = 0
    for seed in range(20):
        airline = random_airline(Random(seed))
        after = airline.maintained(sql, rules)
        assert after == airline.expected(sql), seed
        changed += after != airline.maintained(sql, ())
    assert changed > 2


def test_a_reference_that_is_not_safe_must_not_be_treated_as_one() -> None:
    """The control: with a rule that takes res as safe, a flier disappears with one of several
    reservations.
    """
    as_if_safe = Rule(
        "res",
        RELATIONS["res"],
        "deleted",
        "delete",
        "DELETE FROM v WHERE ffn IN (SELECT psgr.ffn FROM air.old_psgr psgr, air.deleted_res res"
        " WHERE psgr.psgr_id = res.psgr_id)",
    )
    psgr: Rows = {1: (1, 0, 0, 0, 5)}
    res: Rows = {1: (1, 1, 1, 1), 2: (2, 1, 2, 1)}
    before: dict[str, Rows] = {"flight": {}, "ff": {}, "psgr": psgr, "res": res}
    airline = Airline(before, {**before, "res": {1: res[1]}})
    assert airline.maintained(FF_RES_DISTINCT, (as_if_safe,)) == set()
    assert airline.expected(FF_RES_DISTINCT) == {(5,)}


RES: Rows = {1: (1, 1, 1, 3)}
ONE: Rows = {1: (1, 1, 3)}
TWO: Rows = {1: (1, 1, 3), 2: (2, 2, 3)}


def test_section_7_2_as_printed_forgets_the_other_row_that_still_excludes() -> None:
    """Flights on the day that the seat is named after; one of two is deleted."""
    sql = VIEWS["flights at a seat"]
    before: dict[str, Rows] = {"flight": TWO, "ff": {}, "psgr": {}, "res": RES}
    airline = Airline(before, {**before, "flight": ONE})
    printed = Rule(
        "flight",
        RELATIONS["flight"],
        "deleted",
        "insert",
        "INSERT INTO v SELECT res_id FROM air.res WHERE EXISTS (SELECT * FROM air.deleted_flight"
        " AS flight WHERE day = seat) AND res_id NOT IN (SELECT * FROM v)",
    )
    assert airline.maintained(sql, (printed,)) == {(1,)}
    assert airline.expected(sql) == set()
    assert Airline(airline.before, airline.after).maintained(sql, _rules(sql)) == set()


def test_section_7_2_as_printed_lets_an_update_bring_in_what_it_does_not_concern() -> None:
    """The flight number changes; the rules of deletion and insertion run for it, deletions from the
    view first.
    """
    before: dict[str, Rows] = {"flight": ONE, "ff": {}, "psgr": {}, "res": RES}
    airline = Airline(before, {**before, "flight": {1: (1, 9, 3)}})
    exists = "EXISTS (SELECT * FROM air.{} AS flight WHERE flight.flight_id = res.flight_id)"
    flight = RELATIONS["flight"]
    printed = (
        Rule(
            "flight",
            flight,
            "new_updated",
            "delete",
            "DELETE FROM v WHERE res_id IN (SELECT res_id FROM air.res WHERE "
            f"{exists.format('new_updated_flight')})",
        ),
        Rule(
            "flight",
            flight,
            "old_updated",
            "insert",
            "INSERT INTO v SELECT res_id FROM air.res WHERE "
            f"{exists.format('old_updated_flight')} AND res_id NOT IN (SELECT * FROM inserted_v)",
        ),
    )
    assert airline.maintained(BAD_FLIGHT, printed) == {(1,)}
    assert airline.expected(BAD_FLIGHT) == set()
    again = Airline(airline.before, airline.after)
    assert again.maintained(BAD_FLIGHT, _rules(BAD_FLIGHT)) == set()


def test_what_excluded_together_and_goes_together_is_looked_for_as_it_was_before() -> None:
    """One transaction deletes the reservation and its flight; each was the other's only partner."""
    sql = VIEWS["two excluded"]
    flight: Rows = {7: (7, 1, 3)}
    res: Rows = {1: (1, 2, 7, 3)}
    psgr: Rows = {2: (2, 0, 0, 0, 5)}
    before = {"flight": flight, "ff": {}, "psgr": psgr, "res": res}
    airline = Airline(before, {**before, "flight": {}, "res": {}})
    assert airline.maintained(sql, ()) == set()
    assert airline.maintained(sql, _rules(sql)) == airline.expected(sql) == {(2,)}


def test_every_reference_has_a_rule_for_every_event() -> None:
    for sql in VIEWS.values():
        rules = _rules(sql)
        references = {rule.reference for rule in rules}
        assert len(rules) == len(references) * len(EVENTS)
