"""`viewsweep demo --sources mixed`: PostgreSQL, MariaDB and a simulated source under one view."""

from collections import Counter
from itertools import islice
from pathlib import Path

import duckdb
import orjson
import polars as pl
import pytest

from infra.localbroker import LocalBroker
from sources.simulated.workloads.retail import RETAIL
from tests.harness.running import ended

_UPDATES = 150
_SEED = 7


def test_a_view_over_three_kinds_of_sources_is_complete(
    broker: LocalBroker,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    directory = tmp_path / "kept"
    where = ["--keep", directory, "--broker", broker.bootstrap]
    options = ["--sources", "mixed", "--updates", _UPDATES, "--seed", _SEED, "--json"]
    code, said, problem = ended(["demo", *options, *where], capsys, monkeypatch)
    found = orjson.loads(said)
    # On a busy machine nothing may have been concurrent, which the demo counts as a failure.
    assert code == (0 if found["job"]["corrected_answers"] else 1), problem
    assert found["verdict"]["verdict"] == "valid"
    assert found["job"]["updates"] == _UPDATES
    shown = pl.read_delta(str(directory / "lake" / "demo" / "current"))
    assert Counter(shown.drop("_count").iter_rows()) == _expected()


def _expected() -> Counter[tuple[object, ...]]:
    """The view over what the workload has made of its relations, by DuckDB."""
    database = duckdb.connect()
    for source in RETAIL.sources:
        content = RETAIL.source(source, seed=_SEED)
        rows = {name: Counter(found.iter_rows()) for name, found in content.initial_rows().items()}
        for transaction in islice(content.transactions(), _UPDATES // len(RETAIL.sources)):
            for change in transaction.changes:
                rows[change.relation][change.row] += change.count
        database.execute(f"CREATE SCHEMA {source}")
        for name, of in rows.items():
            relation = content.catalog.find(source, name)
            assert relation is not None
            schema = {column: type_.dtype for column, type_ in relation.columns}
            frame = pl.DataFrame(list(of.elements()), schema=schema, orient="row")
            database.execute(f"CREATE TABLE {source}.{name} AS SELECT * FROM frame")
            del frame
    return Counter(database.execute(RETAIL.view).fetchall())
