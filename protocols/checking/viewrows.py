"""Numbers the rows of a view, so that everything later is arithmetic on whole numbers."""

from collections.abc import Iterable, Sequence

import polars as pl

from protocols.algebra.types import ColumnType, column_type
from protocols.checking.changes import StepChanges, summed
from protocols.checking.rewriting import ViewText
from protocols.checking.trace import Row, StateLine
from protocols.checking.versions import Versions
from protocols.errors import WrongUse

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


class ViewRows:
    """Every row that the view was found to have, or that a run showed, in the table `numbered`."""

    def __init__(self, text: ViewText, versions: Versions) -> None:
        self._versions = versions
        #: Name and type of each; in SQL they go by c0, c1, …
        self.columns = _view_columns(text, versions)
        versions.run(f"CREATE TABLE numbered (id BIGINT, {self.typed})")

    def identified(self, table: str) -> StepChanges:
        """The changes in a table with the view's columns, `_step` and `_n`."""
        self.number(table)
        found = self._versions.fetched(f"SELECT r.id, f._step, f._n FROM {table} f {self.numbers}")
        return summed(found["id"], found["_step"], found["_n"])

    def number(self, table: str) -> None:
        """Numbers each row of a table that has no number yet."""
        self._versions.run(
            f"INSERT INTO numbered SELECT (SELECT count(*) FROM numbered) + "
            f"row_number() OVER () - 1, {self.names} FROM (SELECT DISTINCT {self.names} "
            f"FROM {table} f WHERE NOT EXISTS (SELECT 1 FROM numbered r WHERE {self._same}))"
        )

    @property
    def _same(self) -> str:
        columns = range(len(self.columns))
        return " AND ".join(f"f.c{i} IS NOT DISTINCT FROM r.c{i}" for i in columns)

    @property
    def numbers(self) -> str:
        """For FROM, after a table `f` of rows: joins their numbers."""
        return f"JOIN numbered r ON {self._same}"

    def rows(self, ids: Iterable[int]) -> dict[int, Row]:
        """The rows that have these numbers."""
        wanted = ", ".join(str(id_) for id_ in ids)
        sql = f"SELECT * FROM numbered WHERE id IN ({wanted or 'NULL'})"
        return {row[0]: tuple(row[1:]) for row in self._versions.run(sql).fetchall()}

    def shown(self, states: Sequence[StateLine]) -> StepChanges:
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
        self._versions.register("found", frame)
        return self.identified("found")

    def _decoded(self, row: Row, line: int) -> Row:
        if len(row) != len(self.columns):
            raise WrongUse(
                f"line {line}: the row {list(row)!r} has {len(row)} values, "
                f"but the view has {len(self.columns)} columns"
            )
        try:
            return tuple([type_.decode(v) for (_, type_), v in zip(self.columns, row, strict=True)])
        except (ValueError, OverflowError) as error:
            raise WrongUse(f"line {line}: a row of the view: {error}") from None

    # SQL over the columns

    @property
    def typed(self) -> str:
        """The column definitions of a table that holds rows."""
        return ", ".join(f"c{i} {type_.name}" for i, (_, type_) in enumerate(self.columns))

    @property
    def names(self) -> str:
        return ", ".join(f"c{i}" for i in range(len(self.columns)))

    def casts(self) -> str:
        """DuckDB's results cast to the types in which rows are compared."""
        return ", ".join(f"{self.cast(i)} AS c{i}" for i in range(len(self.columns)))

    def cast(self, i: int) -> str:
        return f"c{i}::{self.columns[i][1].name}"


def _view_columns(text: ViewText, versions: Versions) -> tuple[tuple[str, ColumnType], ...]:
    first = text.over(versions.alive(lambda _: 0))
    described = versions.run(f"DESCRIBE {first}").fetchall()
    return tuple((name, _known_type(type_)) for name, type_, *_ in described)


def _known_type(name: str) -> ColumnType:
    """The type in which values of a view's column are compared."""
    try:
        return column_type(_AS_KNOWN.get(name, name))
    except ValueError:
        return column_type("VARCHAR")
