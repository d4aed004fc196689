"""What the view should have been, at every step of a chain of vectors at once.

Each relation's history is a table of signed rows tagged with the version that brought them (initial
rows: 0). Along a chain x_0 <= x_1 <= … (the delivered prefixes, or the vectors that a run claims)
every version has one step: the first x_i that includes it. So each row of a relation has *lives*:
intervals of steps in which its multiplicity is constant. A combination of lives, one per atom,
exists in the intersection of their intervals, and intervals on a line meet if they do in pairs. So

    ONE join, of lives, on the view's own conditions and the overlap of each pair of lives

yields every result row that ever existed, from its first step to its last: its count is added at
the one and taken away at the other, and their sum per (row, step) is V[x_i] - V[x_(i-1)] for all i.

(The textbook form joins the signed rows themselves and tags a result with the largest step among
its atoms: V[x] is then the sum of what is tagged <= x, for *every* vector x. That is what the
lattice search needs, and `tagged` gives it; but a row that changed m times at each of n sources has
m**n such combinations, most of which cancel, and only about n*m lives that meet.)

A view that is no select-project-join is not linear in its relations. Then its plain SQL is
evaluated at each vector, over the rows alive there: at many vectors in one statement, as a subquery
that depends on the vector, which DuckDB takes apart by itself in a tenth of the time that as many
statements take.

Nothing here comes from the protocols: no compensation, no algebra, no parser of views.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import polars as pl

from protocols.algebra.types import ColumnType, column_type
from protocols.checking.order import Order, Part, Vectors, first_steps
from protocols.checking.plans import NotEvaluated, executed, judging
from protocols.checking.rewriting import Atom, ViewText, view_text
from protocols.checking.trace import Row, State, Trace
from protocols.errors import WrongUse
from protocols.views.catalog import Relation

Ints = npt.NDArray[np.int64]

# The end of a life that does not end.
FOREVER = 2**62
# DuckDB is given so many vectors at once, or fewer where relations are large. (A vector is a bit.)
_VECTORS_AT_ONCE = 60
_ROWS_AT_ONCE = 1_000_000

_AS_KNOWN = {
    "TINYINT": "BIGINT",
    "SMALLINT": "BIGINT",
    "INTEGER": "BIGINT",
    "UTINYINT": "BIGINT",
    "USMALLINT": "BIGINT",
    "UINTEGER": "BIGINT",
    "UBIGINT": "DECIMAL(38,0)",
    "HUGEINT": "DECIMAL(38,0)",
    "FLOAT": "DOUBLE",
}


@dataclass(frozen=True)
class Changes:
    """Signed counts of rows (by their number) per step; each pair of row and step at most once."""

    rows: Ints
    steps: Ints
    counts: Ints

    def minus(self, other: "Changes") -> "Changes":
        """What is left after the other's counts are taken away; zeros go."""
        return summed(
            np.concatenate([self.rows, other.rows]),
            np.concatenate([self.steps, other.steps]),
            np.concatenate([self.counts, -other.counts]),
        )

    def at(self, steps: Ints) -> "Changes":
        """The same changes, step i renamed to steps[i]."""
        return summed(self.rows, steps[self.steps], self.counts)

    def until(self, step: int) -> dict[int, int]:
        """The sum of all changes up to a step: count by row, without zeros."""
        chosen = self.steps <= step
        total = summed(self.rows[chosen], np.zeros_like(self.rows[chosen]), self.counts[chosen])
        return dict(zip(total.rows.tolist(), total.counts.tolist(), strict=True))

    def of(self, row: int) -> list[tuple[int, int]]:
        """A row's (step, count), in order of steps."""
        chosen = self.rows == row
        pairs = zip(self.steps[chosen].tolist(), self.counts[chosen].tolist(), strict=True)
        return sorted(pairs)


def summed(rows: Ints, steps: Ints, counts: Ints) -> Changes:
    """Adds up the counts per (row, step) and drops zeros."""
    if not len(rows):
        return Changes(rows, steps, counts)
    order = np.lexsort((rows, steps))
    rows, steps, counts = rows[order], steps[order], counts[order]
    starts = np.flatnonzero(np.concatenate([[True], (np.diff(rows) != 0) | (np.diff(steps) != 0)]))
    totals = np.add.reduceat(counts, starts)
    kept = totals != 0
    return Changes(rows[starts][kept], steps[starts][kept], totals[kept])


@dataclass(frozen=True)
class Life:
    """A row of a relation, its multiplicity, and the versions from which and until which."""

    atom: Atom
    row: Row
    count: int
    born: Part
    gone: Part | None


class History:
    """All versions of all relations in DuckDB, and the view over them."""

    def __init__(self, trace: Trace, order: Order) -> None:
        self.order = order
        self.text: ViewText = view_text(trace.run.view, trace.run.catalog)
        self._number = {relation: i for i, relation in enumerate(self.text.relations)}
        self._source = {source: i for i, source in enumerate(order.sources)}
        # In memory; spills to nowhere. Holds history_i, life_i and copy_i (a life as often as its
        # row is there) per relation, all in versions, and the numbered rows of the view.
        self._db = judging(duckdb.connect(":memory:"))
        self._db.execute("SET preserve_insertion_order = false")
        self._load(trace)
        self.columns = self._view_columns()
        typed = ", ".join(f"c{i} {type_.name}" for i, (_, type_) in enumerate(self.columns))
        self._db.execute(f"CREATE TABLE numbered (id BIGINT, {typed})")

    def __enter__(self) -> "History":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._db.close()

    # The view's own history

    def along(self, chain: Vectors) -> Changes:
        """The expected changes of the view along a chain; the whole V[x_0] is at step 0."""
        if not self.text.is_spj:
            return self._evaluated(chain, differences=True)
        for relation, i in self._number.items():
            source = self._source[relation.source]
            versions = np.arange(len(self.order.positions[source]), dtype=np.int64)
            steps = first_steps(chain, source, versions)
            known = steps < len(chain)
            self._table("step", pl.DataFrame({"_version": versions[known], "_at": steps[known]}))
            self._db.execute(
                f"CREATE OR REPLACE TABLE met_{i} AS "
                + _lives(relation, f"history_{i} JOIN step USING (_version)")
            )
        self._join_lives()
        return self._identified("found")

    def tagged(self) -> tuple[Ints, dict[int, Ints], Ints]:
        """Result rows of the signed histories, their version per source, their counts."""
        sources = sorted({self._source[atom.relation.source] for atom in self.text.atoms})
        extra = [self._product("_count"), *(self._largest("_version", s) for s in sources)]
        inner = self.text.tagged(self._name("history"), ("_count", "_version"), extra)
        tags = [f"y{s}" for s in sources]
        self._run(
            f"CREATE OR REPLACE TABLE found AS SELECT {self._casts()}, {', '.join(tags)}, "
            f"sum(_n)::BIGINT AS _n FROM ({inner}) AS j({self._names}, _n, {', '.join(tags)}) "
            f"GROUP BY ALL HAVING sum(_n) <> 0"
        )
        self._number_rows("found")
        found = self._fetched(f"SELECT r.id, {', '.join(tags)}, _n FROM found f {self._numbers}")
        return found["id"], {s: found[f"y{s}"] for s in sources}, found["_n"]

    def at(self, vectors: Vectors) -> Changes:
        """The whole view at each of some vectors, in any order: step i holds V[x_i]."""
        return self._evaluated(vectors, differences=False)

    # The states that a run showed

    def shown(self, states: Sequence[State]) -> Changes:
        """The changes that the states of a trace claim; step i is the i-th state."""
        rows: list[Row] = []
        steps: list[int] = []
        counts: list[int] = []
        for step, state in enumerate(states):
            for row, count in state.changes:
                rows.append(self._decoded(row, state.line))
                steps.append(step)
                counts.append(count)
        schema = {f"c{i}": type_.dtype for i, (_, type_) in enumerate(self.columns)}
        frame = pl.DataFrame(rows, schema=schema, orient="row")
        frame = frame.with_columns(
            pl.Series("_step", steps, pl.Int64), pl.Series("_n", counts, pl.Int64)
        )
        self._table("found", frame)
        return self._identified("found")

    def rows(self, ids: Iterable[int]) -> dict[int, Row]:
        """The rows that have these numbers."""
        wanted = ", ".join(str(id_) for id_ in ids)
        found = self._run(f"SELECT * FROM numbered WHERE id IN ({wanted or 'NULL'})").fetchall()
        return {row[0]: tuple(row[1:]) for row in found}

    # Where a row comes from

    def origins(self, id_: int, limit: int = 1000) -> list[tuple[Life, ...]]:
        """Combinations of lives that give a row, whether or not they ever met."""
        if not self.text.is_spj:
            return []
        row = self.rows([id_])[id_]
        tags = ("_count", "_from", "_to")
        extra = []
        for atom in self.text.atoms:
            own = [f"{_quoted(atom.alias)}.{_quoted(c)}" for c in atom.relation.column_names]
            own += [f"{tag}_{atom.number}" for tag in tags]
            extra.append(f"row({', '.join(own)})")
        inner = self.text.tagged(self._name("life"), tags, extra)
        lives = ", ".join(f"life{atom.number}" for atom in self.text.atoms)
        same = " AND ".join(
            f"{self._cast(i)} IS NOT DISTINCT FROM ${i + 1}::{type_.name}"
            for i, (_, type_) in enumerate(self.columns)
        )
        found = self._run(
            f"SELECT {lives} FROM ({inner}) AS j({self._names}, {lives}) WHERE {same} "
            f"LIMIT {limit}",
            list(row),
        ).fetchall()
        return [self._combination(values) for values in found]

    def _combination(self, values: Sequence[Any]) -> tuple[Life, ...]:
        lives = []
        for atom, value in zip(self.text.atoms, values, strict=True):
            cells = list(value.values()) if isinstance(value, dict) else list(value)
            *row, count, born, gone = cells
            source = self._source[atom.relation.source]
            end = None if gone == FOREVER else (source, int(gone))
            lives.append(Life(atom, tuple(row), int(count), (source, int(born)), end))
        return tuple(lives)

    # Loading

    def _load(self, trace: Trace) -> None:
        rows: dict[tuple[str, str], list[Row]] = defaultdict(list)
        versions: dict[tuple[str, str], list[int]] = defaultdict(list)
        counts: dict[tuple[str, str], list[int]] = defaultdict(list)
        for place, initial in trace.run.initial.items():
            rows[place].extend(initial)
            versions[place].extend([0] * len(initial))
            counts[place].extend([1] * len(initial))
        for commit in trace.commits:
            for change in commit.changes:
                place = (commit.source, change.relation)
                rows[place].append(change.row)
                versions[place].append(commit.version)
                counts[place].append(change.count)
        for relation, i in self._number.items():
            place = (relation.source, relation.name)
            schema = {name: type_.dtype for name, type_ in relation.columns}
            frame = pl.DataFrame(rows[place], schema=schema, orient="row").with_columns(
                pl.Series("_version", versions[place], pl.Int64),
                pl.Series("_count", counts[place], pl.Int64),
            )
            self._load_relation(relation, i, frame)

    def _load_relation(self, relation: Relation, i: int, frame: pl.DataFrame) -> None:
        columns = _column_list(relation)
        self._table("loaded", frame)
        self._run(
            f"CREATE TABLE history_{i} AS SELECT {columns}, _version, sum(_count)::BIGINT AS _count"
            f" FROM loaded GROUP BY ALL HAVING sum(_count) <> 0"
        )
        versioned = f"(SELECT *, _version AS _at FROM history_{i})"
        self._run(f"CREATE TABLE life_{i} AS {_lives(relation, versioned)}")
        below = self._run(
            f"SELECT _from, row({columns}) FROM life_{i} WHERE _count < 0 ORDER BY _from LIMIT 1"
        ).fetchone()
        if below:
            version, row = below
            raise WrongUse(
                f"{relation.source}'s version {version} takes the row "
                f"{shown_row(_cells(row))} from {relation}, which does not have it"
            )
        self._run(
            f"CREATE TABLE copy_{i} AS SELECT {columns}, _from, _to FROM ("
            f"SELECT *, unnest(range(_count)) AS _copy FROM life_{i})"
        )

    def _view_columns(self) -> tuple[tuple[str, ColumnType], ...]:
        first = self.text.over(lambda relation: self._alive(relation, "0"))
        described = self._run(f"DESCRIBE {first}").fetchall()
        return tuple((name, _known_type(type_)) for name, type_, *_ in described)

    # Evaluating

    def _join_lives(self) -> None:
        """Fills `found` with the changes of the view, from the lives in met_i."""
        atoms = [atom.number for atom in self.text.atoms]
        overlaps = [f"_from_{a} < _to_{b}" for a in atoms for b in atoms if a != b]
        froms = ", ".join(f"_from_{a}" for a in atoms)
        tos = ", ".join(f"_to_{a}" for a in atoms)
        extra = [self._product("_count"), f"greatest({froms})", f"least({tos})"]
        inner = self.text.tagged(self._name("met"), ("_count", "_from", "_to"), extra, overlaps)
        self._run(
            f"CREATE OR REPLACE TABLE joined AS SELECT {self._casts()}, _n, _from, _to "
            f"FROM ({inner}) AS j({self._names}, _n, _from, _to)"
        )
        self._run(
            f"CREATE OR REPLACE TABLE found AS SELECT {self._names}, _step, "
            f"sum(_n)::BIGINT AS _n FROM ("
            f"SELECT {self._names}, _from AS _step, _n FROM joined UNION ALL "
            f"SELECT {self._names}, _to AS _step, -_n FROM joined WHERE _to < {FOREVER}) "
            f"GROUP BY ALL HAVING sum(_n) <> 0"
        )

    def _evaluated(self, vectors: Vectors, differences: bool) -> Changes:
        """The plain SQL at each vector; for differences only where one that matters moves."""
        steps = np.arange(len(vectors), dtype=np.int64)
        if differences:
            sources = [self._source[relation.source] for relation in self.text.relations]
            moves = (np.diff(vectors[:, sources], axis=0) != 0).any(axis=1)
            steps = steps[np.concatenate([[True], moves])]
        typed = ", ".join(f"c{i} {type_.name}" for i, (_, type_) in enumerate(self.columns))
        self._run(f"CREATE OR REPLACE TABLE found ({typed}, _step BIGINT, _n BIGINT)")
        size = self._vectors_at_once()
        for first in range(0, len(steps), size):
            # Differences begin with the last vector of the stretch before.
            begin, end = max(0, first - differences), min(first + size, len(steps))
            self._evaluate(vectors[steps[begin:end]], begin)
            if begin < first:
                self._drop_what_stays(end - begin)
            self._run(
                f"INSERT INTO found SELECT {self._names}, _step, sum(_n) FROM ("
                f"SELECT {self._names}, _step, 1 AS _n FROM evaluated WHERE _step >= {first} "
                f"UNION ALL SELECT {self._names}, _step + 1, -1 FROM evaluated "
                f"WHERE {differences} AND _step < {end - 1}) GROUP BY ALL HAVING sum(_n) <> 0"
            )
        return self._identified("found").at(steps)

    def _vectors_at_once(self) -> int:
        counts = (self._run(f"SELECT count(*) FROM copy_{i}") for i in self._number.values())
        rows = sum(count.fetchall()[0][0] for count in counts)
        return int(max(1, min(_VECTORS_AT_ONCE, _ROWS_AT_ONCE // max(1, rows))))

    def _evaluate(self, vectors: Vectors, first: int) -> None:
        """Fills `evaluated` with the view at these vectors, numbered from `first` on."""
        at = {f"at_{source}": vectors[:, source] for source in range(len(self.order.sources))}
        places = np.arange(len(vectors), dtype=np.int64)
        marks = {"_step": first + places, "_mark": 1 << places}
        self._table("_vector", pl.DataFrame({**marks, **at}))
        self._run(
            f"CREATE OR REPLACE TABLE evaluated AS SELECT {self._casts()}, _step, _mark "
            f"FROM ({self._at_each(vectors, first)}) AS j({self._names}, _step, _mark)"
        )

    def _at_each(self, vectors: Vectors, first: int) -> str:
        """The view for the rows of `_vector`, which are these."""
        if self.text.fits_lateral:
            view = self.text.over(lambda r: self._alive(r, f"_vector.at_{self._source[r.source]}"))
            return f"SELECT v.*, _step, _mark FROM _vector, LATERAL ({view}) AS v"
        views = (
            self.text.over(lambda r, at=at: self._alive(r, str(at[self._source[r.source]])))  # type: ignore[misc]
            for at in vectors
        )
        # Each by itself, beside its row of `_vector`.
        parts = (
            f"SELECT v.*, _step, _mark FROM ({view}) AS v, (FROM _vector WHERE _step = {step})"
            for step, view in enumerate(views, first)
        )
        return " UNION ALL ".join(parts)

    def _drop_what_stays(self, vectors: int) -> None:
        """Leaves out rows that are there once at each of so many vectors: nearly all of them."""
        self._run(
            f"CREATE OR REPLACE TABLE evaluated AS SELECT {self._names}, unnest(_steps) AS _step "
            f"FROM (SELECT {self._names}, list(_step) AS _steps FROM evaluated "
            f"GROUP BY {self._names} "
            f"HAVING count(*) <> {vectors} OR bit_or(_mark) <> {2**vectors - 1})"
        )

    def _alive(self, relation: Relation, version: str) -> str:
        """The rows that a relation has at a version, for FROM."""
        return (
            f"(SELECT {_column_list(relation)} FROM copy_{self._number[relation]} "
            f"WHERE _from <= {version} AND {version} < _to)"
        )

    # Numbering rows, so that everything after is arithmetic on whole numbers

    def _identified(self, table: str) -> Changes:
        self._number_rows(table)
        found = self._fetched(f"SELECT r.id, f._step, f._n FROM {table} f {self._numbers}")
        return summed(found["id"], found["_step"], found["_n"])

    def _number_rows(self, table: str) -> None:
        self._run(
            f"INSERT INTO numbered SELECT (SELECT count(*) FROM numbered) + "
            f"row_number() OVER () - 1, {self._names} FROM (SELECT DISTINCT {self._names} "
            f"FROM {table} f WHERE NOT EXISTS (SELECT 1 FROM numbered r WHERE {self._same}))"
        )

    @property
    def _same(self) -> str:
        columns = range(len(self.columns))
        return " AND ".join(f"f.c{i} IS NOT DISTINCT FROM r.c{i}" for i in columns)

    @property
    def _numbers(self) -> str:
        return f"JOIN numbered r ON {self._same}"

    @property
    def _names(self) -> str:
        return ", ".join(f"c{i}" for i in range(len(self.columns)))

    def _casts(self) -> str:
        return ", ".join(f"{self._cast(i)} AS c{i}" for i in range(len(self.columns)))

    def _cast(self, i: int) -> str:
        return f"c{i}::{self.columns[i][1].name}"

    def _decoded(self, row: Row, line: int) -> Row:
        if len(row) != len(self.columns):
            raise WrongUse(
                f"line {line}: the row {list(row)!r} has {len(row)} values, "
                f"the view has {len(self.columns)} columns"
            )
        try:
            return tuple([type_.decode(v) for (_, type_), v in zip(self.columns, row, strict=True)])
        except (ValueError, OverflowError) as error:
            raise WrongUse(f"line {line}: a row of the view: {error}") from None

    # SQL over atoms

    def _name(self, kind: str) -> Any:
        return lambda relation: f"{kind}_{self._number[relation]}"

    def _product(self, tag: str) -> str:
        return " * ".join(f"{tag}_{atom.number}::HUGEINT" for atom in self.text.atoms)

    def _largest(self, tag: str, source: int) -> str:
        own = [a for a in self.text.atoms if self._source[a.relation.source] == source]
        return f"greatest({', '.join(f'{tag}_{atom.number}' for atom in own)})"

    def _table(self, name: str, frame: pl.DataFrame) -> None:
        self._db.register("arriving", frame.to_arrow())
        self._run(f"CREATE OR REPLACE TABLE {name} AS SELECT * FROM arriving")
        self._db.unregister("arriving")

    def _fetched(self, sql: str) -> dict[str, Ints]:
        return {name: np.asarray(v, np.int64) for name, v in self._run(sql).fetchnumpy().items()}

    def _run(self, sql: str, values: list[Any] | None = None) -> duckdb.DuckDBPyConnection:
        try:
            return executed(self._db, sql, values)
        except duckdb.Error as error:
            words = f"DuckDB cannot evaluate the view: {_first_line(error)}"
            raise NotEvaluated(words) from None


def _lives(relation: Relation, table: str) -> str:
    """The intervals of `_at` in which a row's multiplicity is constant and not zero."""
    columns = _column_list(relation)
    return (
        f"SELECT * FROM (SELECT {columns}, _at AS _from, "
        f"lead(_at, 1, {FOREVER}) OVER alive AS _to, (sum(_n) OVER alive)::BIGINT AS _count "
        f"FROM (SELECT {columns}, _at, sum(_count) AS _n FROM {table} "
        f"GROUP BY {columns}, _at HAVING sum(_count) <> 0) "
        f"WINDOW alive AS (PARTITION BY {columns} ORDER BY _at)) WHERE _count <> 0"
    )


def _known_type(name: str) -> ColumnType:
    """The type that values of a view's column are compared in."""
    try:
        return column_type(_AS_KNOWN.get(name, name))
    except ValueError:
        return column_type("VARCHAR")


def shown_row(row: Sequence[Any]) -> str:
    """A row as it is written in a finding: (1, 'p', NULL)."""
    return f"({', '.join('NULL' if value is None else _shown(value) for value in row)})"


def _shown(value: Any) -> str:
    return repr(value) if isinstance(value, str | bool | int | float) else str(value)


def _cells(row: Any) -> Sequence[Any]:
    return list(row.values()) if isinstance(row, dict) else list(row)


def _column_list(relation: Relation) -> str:
    return ", ".join(_quoted(column) for column in relation.column_names)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
