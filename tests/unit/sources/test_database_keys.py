"""A source enforces its declared keys and foreign keys: it refuses what DuckDB finds broken.

A scenario (`protocols/simulation/possible.py`) with the same story does the same.
"""

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import polars as pl
import pytest

from protocols.errors import WrongUse
from protocols.simulation.scenario import scenario_from_json
from protocols.views.catalog import catalog_from_json
from sources.simulated.admission import TransactionRefused
from sources.simulated.database import SourceDatabase
from sources.simulated.queryserver import commit_until_refused, status_of
from sources.simulated.rows import table_name
from sources.transaction import RowChange, Transaction

#: People have a boss or none, desks a number in their room and an owner or none.
FORMS: dict[str, Any] = {
    "people": {
        "columns": {"id": "BIGINT", "name": "VARCHAR", "boss": "BIGINT"},
        "key": ["id"],
        "keys": [["name"]],
        "foreign_keys": [{"columns": ["boss"], "references": "people"}],
    },
    "desks": {
        "columns": {"room": "VARCHAR", "number": "BIGINT", "owner": "VARCHAR", "by": "BIGINT"},
        "keys": [["room", "number"]],
        "foreign_keys": [
            {"columns": ["owner"], "references": "people", "to": ["name"]},
            {"columns": ["by"], "references": "people", "mandatory": True},
            {"columns": ["room"], "references": "house.rooms"},
        ],
    },
}
CATALOG = catalog_from_json({"shop": {"relations": FORMS}}, whole=False)
ROOMS = {"house": {"relations": {"rooms": {"columns": {"name": "VARCHAR"}, "key": ["name"]}}}}
PEOPLE = [(1, "ann", None), (2, "bob", 1)]
DESKS = [("a", 1, "bob", 1)]
Row = tuple[Any, ...]
State = dict[str, Counter[Row]]


def frames(people: list[Row], desks: list[Row]) -> dict[str, pl.DataFrame]:
    rows = {"people": people, "desks": desks}
    return {
        relation.name: pl.DataFrame(
            rows[relation.name],
            schema={name: type_.dtype for name, type_ in relation.columns},
            orient="row",
        )
        for relation in CATALOG
    }


def created(directory: Path, people: list[Row] = PEOPLE, desks: list[Row] = DESKS) -> Any:
    return SourceDatabase.create(directory / "shop.db", "shop", CATALOG, frames(people, desks))


def changes(*signed: tuple[str, Row, int]) -> Transaction:
    return Transaction(tuple(RowChange(*each) for each in signed))


def held(database: SourceDatabase) -> State:
    with database.snapshot() as (cursor, _):
        return {
            relation.name: Counter(
                cursor.execute(f"SELECT * FROM {table_name(relation)}").fetchall()
            )
            for relation in CATALOG
        }


# -- refusals and their messages -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("refused", "reason"),
    [
        (changes(("people", (3, "bob", 1), 1)), "row (3, 'bob', 1): a row with this key"),
        (changes(("people", (3, "bob", 1), 1)), "this key (name) exists"),
        (changes(("people", (3, None, 1), 1)), "row (3, None, 1): key column name is NULL"),
        (changes(("desks", ("a", 1, None, 1), 1)), "this key (room, number) exists"),
        (changes(("desks", ("b", 1, None, 1), 2)), "this key (room, number) exists"),
        (changes(("desks", ("b", None, None, 1), 1)), "key column number is NULL"),
        (
            changes(("desks", ("b", 1, None, None), 1)),
            "row ('b', 1, None, None): column of a mandatory foreign key by is NULL",
        ),
        (
            changes(("people", (3, "eve", 9), 1)),
            "row (3, 'eve', 9): by foreign key shop.people(boss) -> shop.people(id) it references"
            " (9), which does not exist; insert that first",
        ),
        (
            changes(("desks", ("b", 1, "eve", 1), 1)),
            "by foreign key shop.desks(owner) -> shop.people(name) it references ('eve')",
        ),
        (
            changes(("people", (2, "bob", 1), -1)),
            "cannot delete row (2, 'bob', 1): by foreign key shop.desks(owner) -> shop.people(name)"
            " row ('a', 1, 'bob', 1) references it; delete that first",
        ),
        (
            changes(("people", (2, "bob", 1), -1), ("people", (2, "bo", 1), 1)),
            "row ('a', 1, 'bob', 1) references it",
        ),
        (changes(("people", (1, "ann", None), -1)), "row (2, 'bob', 1) references it"),
    ],
)
def test_a_transaction_that_breaks_a_key_is_refused_with_its_row(
    tmp_path: Path, refused: Transaction, reason: str
) -> None:
    with created(tmp_path) as database:
        before = held(database)
        with pytest.raises(TransactionRefused) as caught:
            database.commit(refused)
        assert reason in str(caught.value)
        assert (database.version, held(database)) == (0, before)


def test_what_holds_at_the_end_of_a_transaction_is_committed(tmp_path: Path) -> None:
    with created(tmp_path) as database:
        exchanged = [("people", row, -1) for row in PEOPLE]
        exchanged += [("people", (1, "bob", None), 1), ("people", (2, "ann", 1), 1)]
        database.commit(changes(*exchanged))
        new = (("desks", ("b", 1, "eve", 3), 1), ("people", (3, "eve", 3), 1))
        database.commit(changes(*new))
        database.commit(changes(*((name, row, -1) for name, row, _ in new)))
        assert held(database)["people"] == Counter([(1, "bob", None), (2, "ann", 1)])
        assert database.version == 3


def test_in_a_group_each_transaction_is_judged_by_itself(tmp_path: Path) -> None:
    with created(tmp_path) as database:
        child, parent = changes(("people", (4, "dan", 3), 1)), changes(("people", (3, "eve", 1), 1))
        with pytest.raises(TransactionRefused) as caught:
            database.commit_many([child, parent])
        assert caught.value.index == 0
        assert database.commit_many([parent, child]) == 2
        free = changes(("people", (4, "dan", 3), -1))
        assert database.commit_many([free, changes(("people", (3, "eve", 1), -1))]) == 4


def test_across_sources_a_row_may_come_before_the_one_that_it_references(tmp_path: Path) -> None:
    """Room b is at another source, which is not asked."""
    with created(tmp_path) as database:
        assert database.commit(changes(("desks", ("b", 1, None, 1), 1))) == 1


@pytest.mark.parametrize(
    ("people", "desks", "reason"),
    [
        (
            [*PEOPLE, (3, "bob", 1)],
            [],
            "2 initial rows have the same key (name) as another; the first",
        ),
        ([*PEOPLE, (3, None, 1)], [], "key column name is NULL in an initial row"),
        (PEOPLE, [("a", 1, None, 1), ("a", 1, None, 2)], "have the same key (room, number)"),
        (PEOPLE, [("a", 1, None, None)], "column of a mandatory foreign key by is NULL"),
        (PEOPLE, [("a", 1, "eve", 1)], "the initial row ('a', 1, 'eve', 1) of shop.desks"),
        ([(1, "ann", 2)], [], "the initial row (1, 'ann', 2) of shop.people references a row that"),
    ],
)
def test_initial_rows_that_break_a_key_are_refused(
    tmp_path: Path, people: list[Row], desks: list[Row], reason: str
) -> None:
    with pytest.raises(WrongUse) as refused:
        created(tmp_path, people, desks)
    assert reason in str(refused.value)
    assert not list(tmp_path.iterdir())


def test_what_is_declared_is_there_after_a_restart_and_in_the_status(tmp_path: Path) -> None:
    created(tmp_path).close()
    with SourceDatabase.open(tmp_path / "shop.db") as database:
        assert status_of(database)["relations"] == FORMS
        with pytest.raises(TransactionRefused, match="references it"):
            database.commit(changes(("people", (1, "ann", None), -1)))


def test_a_catalog_whose_foreign_keys_fit_nothing_makes_no_source() -> None:
    wrong = {**FORMS["people"], "foreign_keys": [{"columns": ["boss"], "references": "bosses"}]}
    with pytest.raises(WrongUse, match="there is no relation 'bosses'"):
        catalog_from_json({"shop": {"relations": {"people": wrong}}}, whole=False)


# -- compared with DuckDB --------------------------------------------------------------------------

_BROKEN = (
    "SELECT 1 FROM people GROUP BY id HAVING count(*) > 1 OR id IS NULL",
    "SELECT 1 FROM people GROUP BY name HAVING count(*) > 1 OR name IS NULL",
    "SELECT 1 FROM desks GROUP BY room, number HAVING count(*) > 1",
    "SELECT 1 FROM desks WHERE room IS NULL OR number IS NULL",
    "SELECT 1 FROM people WHERE boss NOT IN (SELECT id FROM people WHERE id IS NOT NULL)",
    "SELECT 1 FROM desks WHERE owner NOT IN (SELECT name FROM people WHERE name IS NOT NULL)",
    'SELECT 1 FROM desks WHERE "by" IS NULL OR "by" NOT IN (SELECT id FROM people)',
)


def broken(plain: duckdb.DuckDBPyConnection, state: State) -> bool:
    """Whether DuckDB finds a key or a foreign key that does not hold."""
    if any(count < 0 for rows in state.values() for count in rows.values()):
        return True
    people, desks = (list(state[name].elements()) for name in ("people", "desks"))
    for name, frame in frames(people, desks).items():
        given = frame.to_arrow()
        plain.execute(f"CREATE OR REPLACE TABLE {name} AS SELECT * FROM given")
        del given
    return any(plain.execute(query).fetchall() for query in _BROKEN)


Signed = list[tuple[str, Row, int]]


def drawn(dice: Random, state: State) -> Signed:
    """A transaction of a few changes, many of them of existing rows."""
    signed: Signed = []
    for _ in range(dice.choice((1, 1, 2, 3))):
        name = dice.choice(("people", "people", "desks"))
        there = sorted(state[name].elements(), key=repr)
        if there and dice.random() < 0.4:
            signed.append((name, dice.choice(there), -1))
        else:
            who, number = dice.choice(("ann", "bob", "eve", "dan", None)), dice.randint(1, 4)
            some = dice.choice((1, 2, 3, None))
            row = (number, who, some) if name == "people" else ("a", number, who, some)
            signed.append((name, row, 1))
    return signed


def after(state: State, signed: Signed) -> State:
    now = {name: Counter(rows) for name, rows in state.items()}
    for name, row, count in signed:
        now[name][row] += count
    return {name: Counter({r: n for r, n in rows.items() if n}) for name, rows in now.items()}


def good_for_scenario(state: State, group: list[Signed]) -> int:
    """The number of updates that a scenario from this state accepts before the refused one."""
    relations = {
        name: {**form, "rows": [list(row) for row in state[name].elements()]}
        for name, form in FORMS.items()
    }
    updates = [
        [{"relation": name, "row": list(row), "count": n} for name, row, n in signed]
        for signed in group
    ]
    form = {
        "view": "SELECT id FROM shop.people",
        "sources": {"shop": {"relations": relations}, **ROOMS},
        "updates": [{"source": "shop", "changes": each} for each in updates],
    }
    try:
        scenario_from_json(form)
    except WrongUse as error:
        return int(str(error).removeprefix("updates[").partition("]")[0])
    return len(group)


def test_source_and_scenario_refuse_exactly_what_duckdb_finds_broken(tmp_path: Path) -> None:
    dice, seen = Random(5), Counter[int | None]()
    with created(tmp_path) as database, duckdb.connect() as plain:
        for _ in range(150):
            states, group = [held(database)], list[Signed]()
            for _ in range(dice.choice((1, 1, 2, 3))):
                group.append(drawn(dice, states[-1]))
                states.append(after(states[-1], group[-1]))
            wrong = (i for i, state in enumerate(states[1:]) if broken(plain, state))
            good = next(wrong, len(group))
            assert good_for_scenario(states[0], group) == good, group
            outcome = commit_until_refused(database, [changes(*signed) for signed in group])
            assert outcome.committed == good, group
            assert held(database) == states[good]
            seen[good] += good < len(group)
            seen[None] += good == len(group)
    assert min(seen[each] for each in (None, 0, 1)) > 10, seen
