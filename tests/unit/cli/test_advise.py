"""`viewsweep advise`: its output, what it refuses, and what it does not rely on."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import orjson
import polars as pl
import pytest

from protocols.views.catalog import Catalog, catalog_from_json
from sources.simulated.database import SourceDatabase
from sources.simulated.queryserver import Endpoint, QueryServer
from tests.cases.selfmaintenance import RUNNING, references, relation
from tests.harness.running import ended

Run = Callable[..., tuple[int, str, str]]
TOYS = (str(RUNNING / "cal_toy_sales.sql"), "--catalog", str(RUNNING / "department_stores.json"))
#: Orders at one source reference customers at another.
APART = {
    "sales": {
        "relations": {
            "orders": relation(
                "id customer", updates=[], foreign_keys=references(customer="crm.customers")
            )
        }
    },
    "crm": {"relations": {"customers": relation("id name", updates=["name"])}},
}
PAIRS = (
    "SELECT o.id, c.id AS customer, c.name"
    " FROM sales.orders o JOIN crm.customers c ON o.customer = c.id"
)


@pytest.fixture
def viewsweep(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command line: exit code, stdout, stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        return ended(arguments, capsys, monkeypatch)

    return run


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., tuple[str, ...]]:
    """Writes a view and a catalog; returns the arguments that name them."""

    def write(sql: str, sources: dict[str, Any]) -> tuple[str, ...]:
        (tmp_path / "v.sql").write_text(sql)
        (tmp_path / "catalog.json").write_bytes(orjson.dumps({"sources": sources}))
        return str(tmp_path / "v.sql"), "--catalog", str(tmp_path / "catalog.json")

    return write


def test_the_page_of_the_running_example(viewsweep: Run) -> None:
    code, page, _ = viewsweep("advise", *TOYS)
    assert code == 0
    assert (
        "  shop.sale: needed, for deletions from store, updates of store and insertions into line\n"
        "    CREATE VIEW aux_sale AS\n"
        "    SELECT sale_id, store_id, month\n"
        "    FROM shop.sale\n"
        "    WHERE year = 1996 AND\n"
        "          store_id IN (SELECT store_id FROM aux_store)\n"
    ) in page
    assert "  shop.line: nothing is stored, since it references all others" in page
    assert "  deletions store   π(V ⋈[sale_id] aux_sale ⋈[store_id] ∇store)\n" in page
    assert "  Total           880,003,000       820,000,090          400,090\n" in page
    assert "  shop.line(item_id) -> shop.item(item_id)\n" in page
    assert "  modifications of shop.sale never change store_id and year\n" in page
    assert max(map(len, page.partition("\nAuxiliary views\n")[2].splitlines())) <= 102


def test_json_has_the_same(viewsweep: Run) -> None:
    code, out, _ = viewsweep("advise", *TOYS, "--json")
    form = orjson.loads(out)
    assert code == 0
    found = {each["relation"]: (each["keep"], each["rows"]) for each in form["relations"]}
    assert found == {
        "shop.store": ("auxiliary", 40),
        "shop.sale": ("auxiliary", 400_000),
        "shop.item": ("auxiliary", 50),
        "shop.line": ("none", 0),
    }
    rows = [form[name] for name in ("base_rows", "local_rows", "auxiliary_rows")]
    assert rows == [880_003_000, 820_000_090, 400_090]
    assert form["relations"][-1]["sql"] is None


def test_its_statements_run_in_their_order(viewsweep: Run) -> None:
    form = orjson.loads(viewsweep("advise", *TOYS, "--json")[1])
    database = duckdb.connect()
    database.execute("CREATE SCHEMA shop")
    for each in catalog_from_json(orjson.loads(Path(TOYS[2]).read_bytes())["sources"]):
        columns = ", ".join(f"{name} {type_.name}" for name, type_ in each.columns)
        database.execute(f"CREATE TABLE {each} ({columns})")
    for part in form["relations"]:
        if part["sql"] is not None:
            database.execute(part["sql"])
            database.execute(part["kept_as"])


def test_a_foreign_key_across_sources_is_not_relied_on(viewsweep: Run, written: Any) -> None:
    arguments = written(PAIRS, APART)
    code, page, _ = viewsweep("advise", *arguments)
    assert code == 0
    assert "sales.orders o: needed" in page
    told = " ".join(page.partition("\nNot relied on\n")[2].split())
    assert told.startswith(
        "sales.orders(customer) -> crm.customers(id): it leads to another source"
    )
    assert "say so: --together sales,crm" in told


def test_unless_the_sources_commit_together(viewsweep: Run, written: Any) -> None:
    arguments = written(PAIRS, APART)
    code, page, _ = viewsweep("advise", *arguments, "--together", "crm,sales")
    assert code == 0
    assert "sales.orders o: nothing is stored" in page
    assert "Not relied on" not in page
    told = " ".join(page.partition("\nRelied on\n")[2].split())
    assert "sales and crm commit together: each transaction over both is a global one" in told


def test_hints_say_what_would_make_it_smaller(viewsweep: Run, written: Any) -> None:
    relations = {
        "f": relation("k d", updates=[], foreign_keys=references(d="d")),
        "d": relation("k name grade", updates=["name"]),
    }
    sources = {"s": {"relations": relations}}
    sql = "SELECT f.k, d.name FROM s.f, s.d WHERE f.d = d.k AND d.grade = 1"
    _, page, _ = viewsweep("advise", *written(sql, sources))
    assert "with d.k in the SELECT list, changes of d would not need f" in page
    with_key = sql.replace("f.k,", "f.k, d.k AS dk,")
    _, page, _ = viewsweep("advise", *written(with_key, sources))
    assert "s.f: nothing is stored" in page
    del relations["d"]["updates"]
    _, page, _ = viewsweep("advise", *written(with_key, sources))
    assert 'if modifications of s.d never change grade, declare that ("updates")' in page


def test_without_sizes_there_is_no_table_of_rows(viewsweep: Run, written: Any) -> None:
    arguments = written(PAIRS, APART)
    code, page, _ = viewsweep("advise", *arguments)
    assert (code, "\nRows\n" in page) == (0, False)
    assert orjson.loads(viewsweep("advise", *arguments, "--json")[1])["base_rows"] is None


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELECT c.id FROM crm.customers c ORDER BY c.id", "line 1, column"),
        ("SELECT DISTINCT c.name FROM crm.customers c", "it has the operator 'distinct name'"),
        ("SELECT c.id + 1 AS x FROM crm.customers c", "the column 'x' of its SELECT list"),
    ],
)
def test_a_view_that_the_paper_is_not_about_is_refused(
    sql: str, words: str, viewsweep: Run, written: Any
) -> None:
    code, out, err = viewsweep("advise", *written(sql, APART))
    assert (code, out) == (2, "")
    assert words in err


@pytest.mark.parametrize(
    ("together", "words"),
    [("crm,shop", "there is no source 'shop'; choose one of: sales, crm"), ("crm", "at least two")],
)
def test_wrong_sources_are_wrong_use(
    together: str, words: str, viewsweep: Run, written: Any
) -> None:
    code, _, err = viewsweep("advise", *written(PAIRS, APART), "--together", together)
    assert code == 2
    assert words in err.replace("\n", " ")


def test_sizes_and_declarations_of_running_sources(tmp_path: Path, viewsweep: Run) -> None:
    """The source says how large its relations are, and the configuration what updates change."""
    relations = {
        "f": relation("k d", updates=[], foreign_keys=references(d="d")),
        "d": relation("k name grade"),
    }
    catalog = catalog_from_json({"s": {"relations": relations}})
    rows = _rows(catalog)
    (tmp_path / "v.sql").write_text(
        "SELECT f.k, d.k AS dk, d.name FROM s.f, s.d WHERE f.d = d.k AND d.grade = 1"
    )
    config = tmp_path / "warehouse.toml"
    with contextlib.ExitStack() as open_:
        made = SourceDatabase.create(tmp_path / "s.db", "s", catalog, rows)
        server = QueryServer(open_.enter_context(made), Endpoint())
        open_.callback(server.stop)
        text = (
            '[warehouse]\npath = "lake"\n[kafka]\nbootstrap = "127.0.0.1:9"\n'
            f'[sources.s]\naddress = "{server.address}"\n[views.v]\nsql = "v.sql"\n'
        )
        arguments = ("advise", str(tmp_path / "v.sql"), "--config", str(config), "--json")
        config.write_text(text)
        _, exposed, _ = viewsweep(*arguments)
        config.write_text(text + '[sources.s.relations.d]\nupdates = ["name"]')
        _, protected, _ = viewsweep(*arguments)
    told = [orjson.loads(each) for each in (exposed, protected)]
    assert [each["base_rows"] for each in told] == [110, 110]
    assert [each["auxiliary_rows"] for each in told] == [105, 5]


def _rows(catalog: Catalog) -> dict[str, Any]:
    f, d = catalog
    return {
        f.name: pl.DataFrame({"k": range(100), "d": [n % 10 for n in range(100)]}),
        d.name: pl.DataFrame(
            {"k": range(10), "name": [0] * 10, "grade": [n % 2 for n in range(10)]}
        ),
    }
