"""Joint questions against the view's own SQL in DuckDB, and malformed questions.

The oracle does not know counts: rows are loaded as often as their count says, and rows with
negative counts into a separate table, whose results are subtracted.
"""

import datetime
import decimal
import itertools
import math
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import orjson
import polars as pl
import pytest

from protocols.algebra.delta import COUNT
from protocols.algebra.frame import Frame
from protocols.errors import SourceViolation, WrongUse
from protocols.exchange.questions import Joint
from protocols.views.catalog import Relation, catalog_from_json
from protocols.views.view import Atom, Link, View
from sources.simulated.database import SourceDatabase
from sources.simulated.joining import joined
from sources.simulated.queryserver import QueryServer
from sources.transaction import RowChange, Transaction
from sources.wire.answers import fault, schema_fault
from sources.wire.client import SourceClient
from sources.wire.messages import counted, decode_question, encode_question
from sources.wire.terms import Sum, in_groups
from tests.harness.innerjoins import parsed

CATALOG = catalog_from_json(
    {
        "a": {
            "relations": {
                "r": {"columns": {"x": "BIGINT", "d": "DOUBLE", "p": "DECIMAL(12,2)"}},
                "s": {"columns": {"x": "BIGINT", "select": "DOUBLE", "day": "DATE"}},
                'odd "u"': {"columns": {'a"b': "BIGINT", "t": "VARCHAR", "m": "TIMESTAMP"}},
            }
        }
    }
)
R, S, U = CATALOG.relations
#: {0}, {1}, … stand for the relations.
VIEWS = {
    "chain": (
        "SELECT r.p, r.d, s.day, u.t, u.m FROM {0} r JOIN {1} s ON r.x = s.x"
        ' JOIN {2} u ON s.x = u."a""b" WHERE u.t <> \'q\' AND (r.p > 0 OR s.day IS NULL)',
        (R, S, U),
    ),
    "doubles": ('SELECT r.d, s.x FROM {0} r JOIN {1} s ON r.d = s."select"', (R, S)),
    "itself": (
        "SELECT one.x, one.p AS p1, two.p AS p2 FROM {0} one JOIN {1} two ON one.x = two.x"
        " WHERE one.p < two.p",
        (R, R),
    ),
    "pair": ("SELECT r.x, r.p FROM {0} r JOIN {1} s ON r.x = s.x", (R, S)),
}
VALUES: dict[str, list[Any]] = {
    "BIGINT": [1, 2, 3, None],
    "DOUBLE": [0.5, -1.5, math.nan, math.inf, None],
    "DECIMAL": [decimal.Decimal(text) for text in ("9999999999.99", "-0.01", "0.10")],
    "DATE": [datetime.date(2024, 2, 29), datetime.date(1, 1, 1), None],
    "VARCHAR": ["", "'; DROP TABLE r; --", "q", None],
    "TIMESTAMP": [datetime.datetime(2024, 2, 29, 1, 2, 3, 4), None],
}
Row = tuple[Any, ...]
Rows = Counter[Row]


def name_of(relation: Relation) -> str:
    return 'a."' + relation.name.replace('"', '""') + '"'


def view(name: str) -> View:
    sql, relations = VIEWS[name]
    return parsed(sql.format(*map(name_of, relations)), CATALOG)


def some_rows(dice: random.Random, relation: Relation, most: int) -> list[Row]:
    types = [type_.family for _, type_ in relation.columns]
    return [tuple(dice.choice(VALUES[t]) for t in types) for _ in range(dice.randint(0, most))]


def frame(atom: Atom, rows: Mapping[Row, int]) -> Frame:
    """Rows of a relation in the columns of the atom, its condition not yet applied."""
    used = [atom.relation.column_names.index(column) for column in atom.columns]
    schema = {atom.qualified(c): atom.relation.type_of(c).dtype for c in atom.columns}
    picked = [(*(row[i] for i in used), count) for row, count in rows.items()]
    return Frame(pl.DataFrame(picked, schema={**schema, COUNT: pl.Int64}, orient="row"))


def plain(rows: pl.DataFrame) -> Rows:
    """Rows with NaN as a text, since it does not equal itself."""
    found: Rows = Counter()
    for *row, count in rows.iter_rows():
        found[tuple("NaN" if value != value else value for value in row)] += count
    return Counter({row: count for row, count in found.items() if count})


class Oracle:
    """The view's SQL, over tables of plain rows."""

    def __init__(self, held: Mapping[Relation, list[Row]]) -> None:
        self._db = duckdb.connect(":memory:", config={"threads": 1})
        self._db.execute("CREATE SCHEMA a")
        self._names = {relation: name_of(relation) for relation in held}
        for relation, rows in held.items():
            self._load(self._names[relation], relation, rows)
        self._tables = itertools.count()

    def _load(self, name: str, relation: Relation, rows: list[Row]) -> str:
        columns = ", ".join('"' + n.replace('"', '""') + f'" {t.name}' for n, t in relation.columns)
        self._db.execute(f"CREATE TABLE {name} ({columns})")
        for row in rows:
            places = ", ".join("?" * len(row))
            self._db.execute(f"INSERT INTO {name} VALUES ({places})", list(row))
        return name

    def evaluate(self, name: str, given: Mapping[int, Mapping[Row, int]]) -> Rows:
        sql, relations = VIEWS[name]
        signed: list[list[tuple[int, str]]] = []
        for index, relation in enumerate(relations):
            if index in given:
                signed.append([self._part(relation, given[index], sign) for sign in (1, -1)])
            else:
                signed.append([(1, self._names[relation])])
        total: Rows = Counter()
        for choice in itertools.product(*signed):
            sign = math.prod(each for each, _ in choice)
            for row in self._db.execute(sql.format(*(table for _, table in choice))).fetchall():
                total[tuple("NaN" if value != value else value for value in row)] += sign
        return Counter({row: count for row, count in total.items() if count})

    def _part(self, relation: Relation, rows: Mapping[Row, int], sign: int) -> tuple[int, str]:
        copies = [row for row, count in rows.items() for _ in range(max(sign * count, 0))]
        return sign, self._load(f"given{next(self._tables)}", relation, copies)


def database(path: Path, held: Mapping[Relation, list[Row]]) -> SourceDatabase:
    rows = {
        relation.name: pl.DataFrame(
            found, schema={n: t.dtype for n, t in relation.columns}, orient="row"
        )
        for relation, found in held.items()
    }
    return SourceDatabase.create(path / "a.duckdb", "a", CATALOG, rows)


@pytest.fixture
def source(tmp_path: Path) -> Iterator[SourceDatabase]:
    with database(tmp_path, {}) as made:
        yield made


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", VIEWS)
def test_the_answer_is_the_views_sql_with_the_rows_given(
    tmp_path: Path, name: str, seed: int
) -> None:
    dice = random.Random(f"{name}{seed}")
    held = {relation: some_rows(dice, relation, 12) for relation in CATALOG}
    oracle, asked = Oracle(held), view(name)
    with database(tmp_path, held) as source:
        for _ in range(8):
            given, terms = [], []
            for _ in range(dice.randint(1, 12)):
                atoms = [atom for atom in asked.atoms if dice.random() < 0.5]
                rows = {a: _counted(dice, some_rows(dice, a.relation, 4)) for a in atoms}
                given.append({atom.index: each for atom, each in rows.items()})
                terms.append({a.index: _selected(a, frame(a, each)) for a, each in rows.items()})
            question = Joint(asked, tuple(terms))
            joint = decode_question(encode_question(question))
            assert isinstance(joint, Sum)
            assert len(joint.groups) <= 2 ** len(asked.atoms)
            rows, version = joined(source, joint)
            found = pl.DataFrame(pl.from_arrow(rows))
            assert version == 0
            assert schema_fault(question, rows.schema) is None
            assert fault(question, counted(rows)) is None
            assert dict(found.schema) == {
                **{output.name: output.type.dtype for output in asked.outputs},
                COUNT: pl.Int64(),
            }
            expected: Rows = Counter()
            for each in given:
                expected.update(oracle.evaluate(name, each))
            assert plain(found) == Counter({r: n for r, n in expected.items() if n})


def _counted(dice: random.Random, rows: list[Row]) -> dict[Row, int]:
    return {row: dice.choice((-2, -1, 1, 3)) for row in rows}


def _selected(atom: Atom, rows: Frame) -> Frame:
    """The protocol applies an atom's condition before it gives rows for it."""
    own = Frame(rows.data.rename({atom.qualified(c): c for c in atom.columns}))
    own = own if atom.condition is None else own.where(atom.condition)
    return own.select(atom.renaming)


# --------------------------------------------------------------------------------- bad questions


def good() -> Joint[Frame]:
    asked = view("chain")
    return Joint(asked, ({0: frame(asked.atoms[0], {(1, 0.5, decimal.Decimal("0.10")): 1})}, {}))


def with_view(change: Callable[[View], View]) -> Joint[Frame]:
    return Joint(change(good().view), good().terms)


def with_atom(**changes: Any) -> Joint[Frame]:
    return with_view(lambda v: replace(v, atoms=(replace(v.atoms[0], **changes), *v.atoms[1:])))


ELSEWHERE = replace(R, source="b")
BAD: dict[str, tuple[Joint[Frame], str]] = {
    "another source": (with_atom(relation=ELSEWHERE), "is not a relation of this source, a"),
    "not held": (with_atom(relation=replace(R, name="zz")), "no relation 'zz'"),
    "altered": (
        with_atom(relation=replace(R, columns=R.columns[:2] + S.columns[2:])),
        "but it has the schema",
    ),
    "column": (with_atom(columns=("x", "p", "d", "zz")), "column 'zz'"),
    "condition": (
        with_atom(condition=good().view.atoms[2].condition),
        "names an unknown column 't'",
    ),
    "link": (
        with_view(lambda v: replace(v, links=(Link((0, "x"), (7, "x")),))),
        "column 'x' of atom 7",
    ),
    "link column": (
        with_view(lambda v: replace(v, links=(Link((0, "zz"), (1, "x")),))),
        "column 'zz' of atom 0",
    ),
    "link types": (
        with_view(lambda v: replace(v, links=(Link((0, "x"), (1, "day")),))),
        "compares BIGINT with DATE",
    ),
    "output": (
        with_view(lambda v: replace(v, outputs=(replace(v.outputs[0], column="r.zz"),))),
        "column 'r.zz'",
    ),
    "output type": (
        with_view(lambda v: replace(v, outputs=(replace(v.outputs[0], type=R.type_of("x")),))),
        "outputs r.p as BIGINT",
    ),
    "output twice": (
        with_view(lambda v: replace(v, outputs=(v.outputs[0], v.outputs[0]))),
        "or the same name twice: p, p",
    ),
    "alias twice": (
        with_view(lambda v: replace(v, atoms=(v.atoms[0], replace(v.atoms[1], alias="r")))),
        "two columns with the same name",
    ),
    "no terms": (Joint(good().view, ()), "at least one term"),
    "rows of no atom": (Joint(good().view, ({5: frame(good().view.atoms[0], {})},)), "atom 5"),
    "rows of another atom": (
        Joint(good().view, ({1: frame(good().view.atoms[0], {})},)),
        "rows of s have the columns",
    ),
    "overflow": (
        Joint(
            good().view,
            (
                {
                    atom.index: frame(atom, {row: 2**40})
                    for atom, row in zip(
                        good().view.atoms,
                        [(1, 0.5, decimal.Decimal(1)), (1, 0.5, None), (1, "p", None)],
                        strict=True,
                    )
                },
            ),
        ),
        "the view over source a",
    ),
}


@pytest.mark.parametrize(("joint", "reason"), BAD.values(), ids=BAD.keys())
def test_what_the_source_cannot_answer_is_refused(
    source: SourceDatabase, joint: Joint[Frame], reason: str
) -> None:
    with pytest.raises(WrongUse) as caught:
        joined(source, in_groups(joint))
    assert reason in str(caught.value)


def test_a_ticket_that_is_no_question_is_refused() -> None:
    line, _, streams = encode_question(good()).partition(b"\n")
    header = orjson.loads(line)
    spoil: dict[str, Any]
    for spoil in (
        {"terms": 5},
        {"terms": [{"x": 3}]},
        {"terms": [{"number": 1, "given": {"0": 10**9}}]},
        {"terms": [{"number": 0, "given": {}}]},
        {"terms": [{"number": "1", "given": {}}]},
        {"joint": {}},
        {"joint": {**header["joint"], "links": [[1, 2, 3]]}},
        {"joint": {**header["joint"], "residuals": [["zz"]]}},
        {"joint": {**header["joint"], "outputs": [["n", "r.x", "FLOAT4"]]}},
        {"joint": {**header["joint"], "atoms": [{"alias": 3}]}},
    ):
        ticket = orjson.dumps({**header, **spoil}) + b"\n" + streams
        with pytest.raises(WrongUse, match="the question"):
            decode_question(ticket)


# ----------------------------------------------------------------------------------- over the wire


def test_a_joint_answer_is_one_state_while_the_source_commits(source: SourceDatabase) -> None:
    """r and s always have the same rows, so their join has as many rows as either, unless the
    answer mixes two commits.
    """
    asked, failures, stop = view("pair"), [], threading.Event()

    def commit() -> None:
        for number in range(60):
            price = decimal.Decimal(number)
            inserted = [
                RowChange("r", (number, 0.0, price), 1),
                RowChange("s", (number, 0.0, None), 1),
            ]
            source.commit(Transaction(tuple(inserted)))
        stop.set()

    server = QueryServer(source)
    with SourceClient(server.address) as client:
        writer = threading.Thread(target=commit)
        writer.start()
        seen = set()
        while not stop.is_set():
            one = client.ask(Joint(asked, ({},)))
            if one.rows.data[COUNT].sum() != one.inclusion.version:
                failures.append((one.rows.data, one.inclusion.version))
            seen.add(one.inclusion.version)
        writer.join()
        empty = client.ask(Joint(asked, ({}, {0: frame(asked.atoms[0], {})})))
        assert empty.rows.data.height == empty.inclusion.version == 60
        bad = replace(asked, atoms=(replace(asked.atoms[0], relation=ELSEWHERE), asked.atoms[1]))
        with pytest.raises(SourceViolation, match="is not a relation of this source"):
            client.ask(Joint(bad, ({},)))
    server.stop()
    assert not failures
    assert len(seen) > 3
