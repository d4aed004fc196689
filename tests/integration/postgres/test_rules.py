"""Rules on a real PostgreSQL: after each statement the view's table is what its text gives."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from protocols.analysis.references import Selected
from protocols.analysis.safety import SelectAnalysis, analysis_of
from protocols.rules import derivation, functions, membership
from protocols.rules import view as views
from protocols.rules.derivation import Effect, Rule
from protocols.rules.substitution import over
from protocols.rules.transition import Transition
from protocols.rules.view import Branch, Place
from protocols.views.catalog import Catalog
from tests.cases import ruledviews
from tests.cases.airline import (
    BAD_FLIGHT,
    FF_RES_DISTINCT,
    MANY_MILES,
    SPECIAL_MEALS,
)
from tests.harness.ruled import Ran, RuledDatabase, fresh_views, stories

UNION = "SELECT flight_id FROM air.flight UNION SELECT flight_id FROM air.res"
VIEWS = {
    "special_meals": SPECIAL_MEALS,
    "ff_res": FF_RES_DISTINCT,
    "many_miles": MANY_MILES,
    "bad_flight": BAD_FLIGHT,
    "flights": UNION,
    "both": UNION.replace("UNION", "INTERSECT"),
    "unbooked": UNION.replace("UNION", "EXCEPT"),
    "meals": SPECIAL_MEALS.replace("AND psgr.meal IS NOT NULL", ""),
    "no_meal": "SELECT res_id FROM air.res WHERE seat NOT IN (SELECT meal FROM air.psgr)",
    "halves": "SELECT res_id, seat / 2 AS half FROM air.res WHERE seat / 2 > 0",
    # A row may be excluded by both at once.
    "neither": "SELECT res_id FROM air.res WHERE seat NOT IN (SELECT day FROM air.flight)"
    " AND NOT EXISTS (SELECT 1 FROM air.flight f WHERE f.flight_id = res.flight_id)",
    "pairs": "SELECT a.res_id AS x, b.res_id AS y FROM air.res a, air.res b WHERE a.seat = b.seat",
}
STATEMENTS = [
    "INSERT INTO air.flight VALUES (7, 1, 1), (8, 1, 2)",
    "INSERT INTO air.psgr VALUES (1, 1, 1, 1, 1), (2, 2, 2, NULL, 2)",
    "INSERT INTO air.ff VALUES (1, 60000), (2, 10)",
    "INSERT INTO air.res VALUES (1, 1, 7, 1), (2, 2, 7, 2), (3, 1, 9, 2), (4, 2, 8, 3)",
    "UPDATE air.psgr SET meal = 3",
    "UPDATE air.psgr SET name = 5",
    "UPDATE air.ff SET miles = miles + 49995",
    "UPDATE air.psgr SET meal = NULL WHERE psgr_id = 1",
    "DELETE FROM air.flight WHERE flight_id = 7",
    "INSERT INTO air.flight VALUES (7, 1, 1) ON CONFLICT (flight_id) DO UPDATE SET day = 5",
    "INSERT INTO air.flight VALUES (7, 1, 1) ON CONFLICT (flight_id) DO UPDATE SET day = 4",
    "UPDATE air.flight SET flight_id = 9, day = 3 WHERE flight_id = 8",
    "DELETE FROM air.res WHERE res_id = 3",
    "WITH a AS (DELETE FROM air.res WHERE res_id = 1) DELETE FROM air.psgr WHERE psgr_id = 1",
    "MERGE INTO air.res USING (VALUES (2), (5)) AS n (k) ON res_id = k"
    " WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT VALUES (k, 2, 7, 9)",
    "INSERT INTO air.res VALUES (6, 2, 20, 21)",
    "UPDATE air.res SET seat = 20 WHERE res_id = 6",
    "INSERT INTO air.flight VALUES (20, 20, 20)",
    "TRUNCATE air.res",
    "INSERT INTO air.res VALUES (1, 2, 7, 1)",
    "DELETE FROM air.psgr",
]


def test_the_views_of_the_paper_are_right_after_each_statement(
    database: Callable[..., RuledDatabase],
) -> None:
    ruled = database()
    for name, text in VIEWS.items():
        ruled.install(name, text)
    seen: dict[str, set[str]] = {name: set() for name in VIEWS}
    for statement in STATEMENTS:
        ruled.execute(statement)
        assert ruled.wrong() == [], statement
        for name in VIEWS:
            seen[name].add(str(sorted(ruled.rows(name), key=str)))
    assert min(map(len, seen.values())) > 2, seen


def test_random_views_are_right_after_each_random_statement(
    database: Callable[..., RuledDatabase],
) -> None:
    """`python -m bench.rules campaign` does this for hours."""
    dice = Random(4)
    ruled = database(ruledviews.TABLES, ruledviews.CATALOG)
    for name, text in fresh_views(dice, 8, ruledviews.CATALOG).items():
        ruled.install(name, text)
    ran = Ran()
    for story in stories(dice, 100):
        assert ruled.told(story, ran) == [], ran.last
    assert ran.done > 80


def test_what_follows_from_a_statement_belongs_to_it(
    database: Callable[..., RuledDatabase],
) -> None:
    """Cascades, also within one table, and triggers of the user."""
    ruled = database(
        """
        CREATE SCHEMA air;
        CREATE TABLE air.part (id bigint PRIMARY KEY, whole bigint REFERENCES air.part ON DELETE
            CASCADE, price bigint);
        CREATE TABLE air.log (part bigint REFERENCES air.part ON DELETE CASCADE, note bigint,
            PRIMARY KEY (part, note));
        CREATE FUNCTION air.noted() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            INSERT INTO air.log VALUES (NEW.id, NEW.price); RETURN NULL; END $$;
        CREATE TRIGGER noted AFTER INSERT OR UPDATE ON air.part FOR EACH ROW
            EXECUTE FUNCTION air.noted();
        """,
        Catalog(()),
    )
    ruled.read_catalog("air")
    ruled.install("kept", "SELECT p.id, p.price, l.note FROM air.part p, air.log l WHERE part = id")
    ruled.install(
        "tops",
        "SELECT p.id FROM air.part p WHERE NOT EXISTS"
        " (SELECT 1 FROM air.part w, air.log l WHERE w.id = p.whole AND l.part = w.id)",
    )
    for statement in (
        "INSERT INTO air.part VALUES (1, NULL, 5), (2, 1, 6), (3, 2, 7), (4, 3, 8), (5, NULL, 9)",
        "UPDATE air.part SET price = price + 100 WHERE id < 4",
        "DELETE FROM air.log WHERE part = 2",
        "DELETE FROM air.part WHERE id = 2",
        "BEGIN",
        "DELETE FROM air.part WHERE id = 1",
        "ROLLBACK",
        "DELETE FROM air.part",
    ):
        ruled.execute(statement)
        assert ruled.wrong() == [], statement


# -- defects that must be found ------------------------------------------------------------------

Patch = Callable[[pytest.MonkeyPatch], None]


def _all_safe(patch: pytest.MonkeyPatch) -> None:
    def analysis(select: Selected) -> SelectAnalysis:
        found = analysis_of(select)
        safe = (replace(e, insert_safe=True, delete_safe=True) for e in found.references)
        return replace(found, references=tuple(safe))

    patch.setattr(views, "analysis_of", analysis)


def _without_one_reference(patch: pytest.MonkeyPatch) -> None:
    effects = derivation._effects

    def fewer(transition: Transition, number: int, branch: Branch, place: Place) -> Any:
        return (
            iter(()) if place.reference.name == "b" else effects(transition, number, branch, place)
        )

    patch.setattr(derivation, "_effects", fewer)


def _new_instead_of_old(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(derivation, "_before", lambda *_: {})


def _old_instead_of_new(patch: pytest.MonkeyPatch) -> None:
    def gained(transition: Transition, number: int, branch: Branch, place: Place) -> Effect:
        tables = derivation._before(transition, branch.places)
        tables[id(place.node)] = transition.inserted(place.reference.relation)
        rows = over(branch, transition.view.columns, tables)
        return Effect(place, number, "ins", rows, False, True)

    patch.setattr(derivation, "_gained", gained)


def _insertions_first(patch: pytest.MonkeyPatch) -> None:
    derive = derivation.rules

    def swapped(transition: Transition) -> tuple[Rule, ...]:
        return tuple(sorted(derive(transition), key=lambda rule: rule.action == "delete"))

    patch.setattr(functions, "rules", swapped)


def _not_tested_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(derivation, "restricted", lambda rows, _: rows)


def _nulls_by_equality(patch: pytest.MonkeyPatch) -> None:
    def equal(one: str, other: str, *_: bool, **__: bool) -> str:
        return f"{one} = {other}"

    patch.setattr(membership, "equal", equal)


def _others_not_asked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(derivation, "is_in_view", lambda *known: bool(known[-1]))


def _nothing_collected(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(functions, "_number_open", lambda _: "0")


BOTH_GO = "WITH a AS (DELETE FROM air.res WHERE res_id = 1) DELETE FROM air.psgr WHERE psgr_id = 1"
TWO_PSGR = "INSERT INTO air.psgr VALUES (1, 1, 1, 1, 1), (2, 2, 2, NULL, 2)"
TWO_RES = "INSERT INTO air.res VALUES (1, 1, 7, 1), (2, 1, 8, 1)"
LATER = BAD_FLIGHT.replace("WHERE flight.", "WHERE flight.day > 0 AND flight.")
DEFECTS: dict[str, tuple[Patch, str, Sequence[str]]] = {
    "an unsafe reference as if it were safe": (
        _all_safe,
        FF_RES_DISTINCT,
        [TWO_PSGR, TWO_RES, "DELETE FROM air.res WHERE res_id = 1"],
    ),
    "an unsafe negative reference as if it were safe": (
        _all_safe,
        BAD_FLIGHT.replace("SELECT res_id", "SELECT DISTINCT seat"),
        [TWO_RES, "INSERT INTO air.flight VALUES (7, 1, 1)"],
    ),
    "no rule for one of two references": (
        _without_one_reference,
        VIEWS["pairs"],
        ["INSERT INTO air.res VALUES (1, 1, 7, 1)", "INSERT INTO air.res VALUES (2, 1, 8, 1)"],
    ),
    "the new state where the old one is meant": (
        _new_instead_of_old,
        SPECIAL_MEALS,
        [
            TWO_PSGR,
            TWO_RES,
            BOTH_GO,
        ],
    ),
    "the old state where the new one is meant": (
        _old_instead_of_new,
        SPECIAL_MEALS,
        [
            TWO_PSGR,
            "WITH a AS (INSERT INTO air.res VALUES (1, 1, 7, 1))"
            " DELETE FROM air.psgr WHERE psgr_id = 1",
        ],
    ),
    "insertions before deletions": (
        _insertions_first,
        SPECIAL_MEALS,
        [TWO_PSGR, TWO_RES, "UPDATE air.psgr SET meal = 9"],
    ),
    "a deletion that is DU-safe, not tested again (Section 7.2 as printed)": (
        _not_tested_again,
        LATER,
        [
            "INSERT INTO air.flight VALUES (7, 1, 1)",
            "INSERT INTO air.res VALUES (1, 1, 7, 1)",
            "UPDATE air.flight SET day = 2",
        ],
    ),
    "NULLs compared by equality": (
        _nulls_by_equality,
        VIEWS["meals"],
        [TWO_PSGR, "INSERT INTO air.res VALUES (1, 2, 7, 1)", "DELETE FROM air.res"],
    ),
    "a set operator whose other side is not asked": (
        _others_not_asked,
        UNION,
        ["INSERT INTO air.flight VALUES (7, 1, 1)", TWO_RES, "DELETE FROM air.flight"],
    ),
    "several changes of one statement, each followed alone": (
        _nothing_collected,
        SPECIAL_MEALS,
        [
            TWO_PSGR,
            TWO_RES,
            BOTH_GO,
        ],
    ),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_a_planted_defect_is_found(
    name: str, database: Callable[..., RuledDatabase], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant, text, statements = DEFECTS[name]
    ruled = database()
    ruled.install("right", text)
    plant(monkeypatch)
    ruled.install("planted", text)
    found = []
    for statement in statements:
        ruled.execute(statement)
        found += ruled.wrong()
    assert set(found) == {"planted"}
