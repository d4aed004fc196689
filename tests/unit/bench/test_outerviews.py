"""An outer-join view beside its core: terms as DuckDB counts them, and a change that is tested."""

from pathlib import Path

import duckdb
import orjson
import polars as pl
import pytest
import typer
from typer.testing import CliRunner

from bench import outerviews
from bench.griffinkumar import change_of_v3
from bench.outerviews import V3, Report, main, measure
from bench.tpch import tpch

_SCALE, _SIZE = 0.01, 3_000
#: The view's terms by what they join, without the view's own SQL.
_TERMS = """
WITH lines AS (SELECT * FROM lineitem JOIN orders USING (orderkey)
               WHERE orderdate BETWEEN '1994-06-01' AND '1994-12-31')
SELECT 'COL' || CASE WHEN retailprice < 2000 THEN 'P' ELSE '' END, count(*)
FROM lines JOIN part USING (partkey) GROUP BY 1
UNION ALL
SELECT 'C', count(*) FROM customer WHERE custkey NOT IN (SELECT custkey FROM lines)
UNION ALL
SELECT 'P', count(*) FROM part
WHERE retailprice >= 2000 OR partkey NOT IN (SELECT partkey FROM lines)
"""


def terms(rows: dict[str, pl.DataFrame]) -> dict[str, int]:
    with duckdb.connect() as database:
        for name, frame in rows.items():
            database.register(name, frame.to_arrow())
        return dict(database.execute(_TERMS).fetchall())


@pytest.fixture(scope="module")
def rows() -> dict[str, pl.DataFrame]:
    return tpch(_SCALE)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return measure(_SCALE, 1, tmp_path_factory.mktemp("lake"), (_SIZE,))


def test_some_parts_are_too_dear_and_every_term_has_the_rows_that_duckdb_counts(
    rows: dict[str, pl.DataFrame], report: Report
) -> None:
    assert report.terms == terms(rows)
    assert report.terms.keys() == {"C", "P", "COL", "COLP"}


def test_a_batch_changes_as_many_rows_of_each_term_as_duckdb_counts(
    rows: dict[str, pl.DataFrame], report: Report
) -> None:
    lines = rows["lineitem"].sample(2 * _SIZE, seed=2).head(_SIZE)
    left = rows["lineitem"].join(lines, on=["orderkey", "linenumber"], how="anti")
    before, after = terms(rows), terms(rows | {"lineitem": left})
    due = {term: abs(after[term] - before[term]) for term in before}
    assert all(due.values()), "every term changes, or nothing is tested"
    affected = [each.affected for each in report.measured if each.view == V3]
    assert affected == [due, due]


def test_every_part_of_the_time_is_measured(report: Report) -> None:
    assert [(each.view, each.change) for each in report.measured] == [
        (view, change)
        for change in ("delete", "insert")
        for view in ("V3", "core", "Griffin-Kumar")
    ]
    for each in report.measured:
        assert each.engine > 0
        if each.view != "Griffin-Kumar":
            assert each.asking > 0
            assert each.applying > 0
            assert each.questions > 0


def test_a_change_of_griffin_and_kumar_that_lacks_a_row_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outerviews, "change_of_v3", lambda *given: change_of_v3(*given)[1:])
    with pytest.raises(SystemExit, match="Griffin and Kumar's change of V3 is another one"):
        measure(_SCALE, 1, tmp_path, (60,))


def test_the_command_prints_and_draws(tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(main)
    plot = tmp_path / "outer.svg"
    done = CliRunner().invoke(app, ["--quick", "--json", "--into", str(plot)])
    assert done.exit_code == 0, done.output
    assert {each["view"] for each in orjson.loads(done.stdout)["measured"]} == {
        "V3",
        "core",
        "Griffin-Kumar",
    }
    assert plot.read_text().count('aria-roledescription="line mark"') == 2 * 5
