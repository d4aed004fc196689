"""`viewsweep explain` and `constructs`: their output, exit codes and refusals."""

import contextlib
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
from sqlglot import parse_one

from cli import catalogs
from cli.explain import listed
from protocols.errors import WrongUse
from protocols.explaining.constructs import constructs
from protocols.views.catalog import Catalog, catalog_from_json
from protocols.views.scalar_calls import CALLS
from sources.simulated.database import SourceDatabase
from sources.simulated.queryserver import Endpoint, QueryServer
from sources.simulated.workloads import WORKLOADS
from tests.cases.airline import SOURCES, SPECIAL_MEALS
from tests.cases.example_views import NAMES, VIEWS, workload_of
from tests.harness.places import ROOT
from tests.harness.running import ended

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def viewsweep(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command line: exit code, stdout, stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        return ended(arguments, capsys, monkeypatch)

    return run


def file_of(name: str) -> str:
    return str(VIEWS / f"{name}.sql")


@pytest.mark.parametrize("name", NAMES)
def test_every_example_has_a_page(name: str, viewsweep: Run) -> None:
    code, page, _ = viewsweep("explain", file_of(name), "--workload", workload_of(name))
    assert code == 0
    assert page.startswith(f"View {name}\n")
    for heading in ("Tree", "Kept by", "Questions", "Keys", "What would make it cheaper"):
        assert f"\n\n{heading}\n" in page
    told = page.partition("\nTree\n")[2].partition("\n\n")[2]
    assert max(map(len, told.splitlines())) <= 100


def test_the_page_says_what_a_person_wants_to_know(viewsweep: Run) -> None:
    _, page, _ = viewsweep("explain", file_of("customers"), "--workload", "retail")
    assert "  └─ left join on c.id = o.customer_id\n     ├─ crm.customers c (id, name, seg" in page
    assert "any update: 2 → 1\n      first: crm.customers by (id) + sales.orders by (cust" in page
    assert "    c o · D  →  c · I\n" in page
    assert "  customer_id and order_id determine a row\n" in page
    assert "\n    viewsweep sources index sales.db --on orders=customer_id\n" in page
    assert "complete-in-delivery-order: sweep, batched-sweep\n" in page


def test_whole_relations_are_warned_of(viewsweep: Run) -> None:
    _, page, _ = viewsweep("explain", file_of("idle"), "--workload", "bank")
    assert "! reads cards.payments whole, unless remembered" in page
    assert "! reads core.accounts whole, every time" in page
    assert "link them by an equality of columns" in page


def test_json_says_the_same(viewsweep: Run) -> None:
    code, out, _ = viewsweep("explain", file_of("regulars"), "--workload", "retail", "--json")
    form = orjson.loads(out)
    assert code == 0
    assert form["updates"]["sales.orders"]["insertion"]["remembered"] == []
    assert form["updates"]["sales.orders"]["deletion"]["most"] == {"first": 1, "remembered": 1}
    assert form["keys"]["keys"] == [["customer_id"]]
    assert form["protocols"]["batched-sweep"] == "complete-in-delivery-order"


def test_it_is_drawn(tmp_path: Path, viewsweep: Run) -> None:
    file = tmp_path / "catalogue.svg"
    arguments = [file_of("catalogue"), "--workload", "retail"]
    code, out, err = viewsweep("explain", *arguments, "--svg", str(file), "--mermaid")
    assert code == 0
    assert f"{file}: drawn" in err.replace("\n", "")
    assert out.startswith("graph TD\n")
    texts = [each.text or "" for each in ElementTree.parse(file).iter() if each.text]
    for label in ("left join on c.id = o.customer_id", "subsumption", "maintenance, update of o"):
        assert label in texts
        assert f'["{label}"]' in out
    assert file.read_text() == (ROOT / "docs" / "catalogue.svg").read_text()


def test_a_label_without_room_is_whole_all_the_same(tmp_path: Path, viewsweep: Run) -> None:
    names = ", ".join(f"c.{name} AS the_{name}_of_the_customer" for name in ("id", "name"))
    view, file = tmp_path / "wide.sql", tmp_path / "wide.svg"
    view.write_text(f"SELECT {names} FROM crm.customers c")
    arguments = [str(view), "--workload", "retail", "--svg", str(file), "--mermaid"]
    _, out, _ = viewsweep("explain", *arguments)
    whole = f"select {names}"
    drawn = ElementTree.parse(file)
    texts = {each.tag.rpartition("}")[2]: each.text or "" for each in drawn.iter() if each.text}
    shortened = next(each.text for each in drawn.iter() if (each.text or "").endswith("…"))
    assert whole in out
    assert texts["title"] == whole
    assert shortened is not None
    assert whole.startswith(shortened[:-1])


def test_a_scenario_says_what_its_sources_hold(tmp_path: Path, viewsweep: Run) -> None:
    scenario = ROOT / "examples" / "scenarios" / "figure-5.json"
    view = tmp_path / "pairs.sql"
    view.write_text("SELECT x.D, y.F FROM b.R2 x JOIN c.R3 y ON x.D = y.E")
    code, page, _ = viewsweep("explain", str(view), "--catalog", str(scenario))
    assert code == 0
    assert "b.R2 x" in page


def test_bad_sql_is_refused_with_its_place(tmp_path: Path, viewsweep: Run) -> None:
    view = tmp_path / "bad.sql"
    view.write_text("SELECT c.id\nFROM crm.customers c\nORDER BY c.id")
    code, out, err = viewsweep("explain", str(view), "--workload", "retail")
    assert (code, out) == (2, "")
    assert f"{view}: line 3, column " in err.replace("\n", "")
    assert "ORDER BY" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "--config FILE, --catalog FILE or --workload NAME"),
        (["--workload", "retail", "--catalog", "x"], "give only one of --config, --catalog and"),
        (["--workload", "fish"], "there is no workload 'fish'"),
        (["--workload", "retail", "--json", "--mermaid"], "either --json or --mermaid"),
        (["--catalog", "/nowhere.json"], "cannot read /nowhere.json"),
        (["--catalog", "README.md"], "README.md is not JSON"),
        (["--config", "/nowhere.toml"], "cannot read /nowhere.toml"),
        (["--workload", "retail", "--svg", "/nowhere/x.svg"], "cannot write /nowhere/x.svg"),
    ],
)
def test_wrong_use_is_one_message(
    arguments: list[str], words: str, viewsweep: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    code, out, err = viewsweep("explain", file_of("customers"), *arguments)
    assert (code, out) == (2, "")
    assert words in err


def test_a_catalog_with_a_field_that_nobody_reads_is_refused(
    tmp_path: Path, viewsweep: Run
) -> None:
    form = {"columns": {"id": "BIGINT"}, "keys": [["id"]]}
    (tmp_path / "v.sql").write_text("SELECT id FROM a.r")
    arguments = ("explain", str(tmp_path / "v.sql"), "--catalog", str(tmp_path / "catalog.json"))

    def told(sources: object, **more: object) -> tuple[int, str, str]:
        (tmp_path / "catalog.json").write_bytes(orjson.dumps({"sources": sources, **more}))
        return viewsweep(*arguments)

    code, page, _ = told({"a": {"relations": {"r": form}}})
    assert code == 0
    assert "id determines a row" in page
    code, _, err = told({"a": {"relations": {"r": {**form, "foreign-keys": []}}}})
    assert (code, "relation a.r: unknown field 'foreign-keys'" in err) == (2, True)
    code, _, err = told({"a": {"relations": {"r": form}}}, indexes={})
    assert (code, "the catalog: unknown field 'indexes'" in err) == (2, True)


@pytest.mark.parametrize("form", [b"[]", b'{"sources": 1}', b'{"sources": {"a": 1}}'])
def test_a_catalog_that_is_none_is_wrong_use(form: bytes, tmp_path: Path, viewsweep: Run) -> None:
    file = tmp_path / "sources.json"
    file.write_bytes(form)
    code, _, err = viewsweep("explain", file_of("customers"), "--catalog", str(file))
    assert code == 2
    assert 's" has to map names' in err


def test_a_view_that_cannot_be_read_is_wrong_use(tmp_path: Path, viewsweep: Run) -> None:
    code, _, err = viewsweep("explain", str(tmp_path / "x.sql"), "--workload", "retail")
    assert code == 2
    assert "cannot read" in err


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            b"SELECT id\nFROM crm.customers -- \xff",
            "line 2 is not UTF-8 text; save the file as UTF-8",
        ),
        ("SELECT 1".encode("utf-16"), "line 1 is not UTF-8 text"),
        (None, "Is a directory"),
    ],
)
def test_what_is_no_text_is_said_in_words(
    tmp_path: Path, viewsweep: Run, content: bytes | None, said: str
) -> None:
    file = tmp_path / "x.sql"
    file.mkdir() if content is None else file.write_bytes(content)
    code, _, err = viewsweep("explain", str(file), "--workload", "retail")
    assert code == 2
    assert said in err
    assert "codec" not in err
    assert "Errno" not in err


def test_a_byte_order_mark_is_none_of_the_view(tmp_path: Path, viewsweep: Run) -> None:
    file = tmp_path / "x.sql"
    file.write_text("SELECT c.id FROM crm.customers c", encoding="utf-8-sig")
    assert viewsweep("explain", str(file), "--workload", "retail")[0] == 0


# -- the table -------------------------------------------------------------------------------------


def test_every_function_that_is_read_is_in_the_table_and_kept() -> None:
    shown = [parse_one(each.sql, dialect="duckdb") for each in constructs() if not each.refused]
    hidden = [node.__name__ for node in CALLS if not any(sql.find(node) for sql in shown)]
    # Parts of LIKE, and other names of DATE_TRUNC.
    assert set(hidden) <= {"Escape", "DateTrunc", "TimestampTrunc"}


def test_the_table_in_the_readme_is_up_to_date() -> None:
    text = (ROOT / "README.md").read_text()
    _, _, rest = text.partition("<!-- constructs -->\n")
    assert rest.partition("\n<!-- end of constructs -->")[0] == listed()


def test_the_table_is_put_between_its_marks(tmp_path: Path, viewsweep: Run) -> None:
    file = tmp_path / "README.md"
    file.write_text("before\n<!-- constructs -->\nold\n<!-- end of constructs -->\nafter\n")
    code, _, err = viewsweep("constructs", "--into", str(file))
    assert code == 0
    assert "table renewed" in err
    text = file.read_text()
    assert listed() in text
    assert "old" not in text
    assert text.endswith("<!-- end of constructs -->\nafter\n")


def test_a_file_without_marks_is_refused(tmp_path: Path, viewsweep: Run) -> None:
    file = tmp_path / "README.md"
    file.write_text("nothing here")
    code, _, err = viewsweep("constructs", "--into", str(file))
    assert code == WrongUse.exit_code
    assert "lacks the lines that mark the place of the table" in err


def test_the_table_as_json_has_kept_and_refused(viewsweep: Run) -> None:
    code, out, _ = viewsweep("constructs", "--json")
    lines = {each["construct"]: each for each in orjson.loads(out)}
    assert code == 0
    assert lines["`FULL JOIN`"]["refused"] is None
    assert "ORDER BY" in lines["`ORDER BY`"]["refused"]
    assert lines["`ORDER BY`"]["questions"] == "-"


# -- over real sources -----------------------------------------------------------------------------


def test_the_sources_of_a_configuration_say_what_they_hold(tmp_path: Path, viewsweep: Run) -> None:
    catalog = WORKLOADS["retail"].catalog
    with contextlib.ExitStack() as open_:
        lines = ['[warehouse]\npath = "lake"', '[kafka]\nbootstrap = "127.0.0.1:9"']
        for name in ("crm", "sales"):
            relations = tuple(relation for relation in catalog if relation.source == name)
            rows = WORKLOADS["retail"].source(name, 3).initial_rows()
            file = tmp_path / f"{name}.db"
            made = SourceDatabase.create(file, name, Catalog(relations), rows)
            server = QueryServer(open_.enter_context(made), Endpoint())
            open_.callback(server.stop)
            lines.append(f'[sources.{name}]\naddress = "{server.address}"')
        lines.append('[views.customers]\nsql = "customers.sql"')
        (tmp_path / "customers.sql").write_text((VIEWS / "customers.sql").read_text())
        config = tmp_path / "warehouse.toml"
        config.write_text("\n".join(lines))
        code, live, _ = viewsweep("explain", file_of("customers"), "--config", str(config))
    _, built_in, _ = viewsweep("explain", file_of("customers"), "--workload", "retail")
    assert code == 0
    assert live == built_in


def test_keys_of_sources_and_of_the_configuration_reach_the_page(
    tmp_path: Path, viewsweep: Run
) -> None:
    """Seed 001's special meals: one key from the source, and one from the configuration."""
    relations = SOURCES["air"]["relations"]
    says = {**relations, "res": {**relations["res"], "keys": [["psgr_id", "flight_id"]]}}
    catalog = catalog_from_json({"air": {"relations": says}})
    (tmp_path / "v.sql").write_text(SPECIAL_MEALS)
    config = tmp_path / "warehouse.toml"
    with contextlib.ExitStack() as open_:
        made = SourceDatabase.create(tmp_path / "air.db", "air", catalog, {})
        server = QueryServer(open_.enter_context(made), Endpoint())
        open_.callback(server.stop)
        text = (
            '[warehouse]\npath = "lake"\n[kafka]\nbootstrap = "127.0.0.1:9"\n'
            f'[sources.air]\naddress = "{server.address}"\n[views.v]\nsql = "v.sql"\n'
        )
        arguments = ("explain", str(tmp_path / "v.sql"), "--config", str(config))
        config.write_text(text)
        _, without, _ = viewsweep(*arguments)
        config.write_text(text + '[sources.air.relations.res]\nkeys = [["flight_id", "seat"]]')
        _, page, _ = viewsweep(*arguments)
        config.write_text(text + '[sources.air.relations.res]\nkeys = [["seats"]]')
        code, _, err = viewsweep(*arguments)
    assert "(res_id, (psgr_id, flight_id))" in without
    assert "rows may occur twice" in without
    assert "no row occurs twice\n  res is safe: its key (flight_id, seat) is bound" in page
    assert code == 2
    assert "sources.air.relations.res: relation air.res: further key column 'seats'" in err


def test_a_silent_source_is_named_and_not_waited_for_as_long_as_a_job_would(
    tmp_path: Path, viewsweep: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogs, "_PATIENCE_SECONDS", 1.0)
    config = tmp_path / "warehouse.toml"
    config.write_text(
        '[warehouse]\npath = "lake"\n[kafka]\nbootstrap = "127.0.0.1:9"\n'
        '[sources.crm]\naddress = "grpc://127.0.0.1:9"\n'
        '[views.customers]\nsql = "customers.sql"\n[job]\npatience_seconds = 600'
    )
    (tmp_path / "customers.sql").write_text((VIEWS / "customers.sql").read_text())
    code, out, err = viewsweep("explain", file_of("customers"), "--config", str(config))
    assert (code, out) == (3, "")
    assert "source crm at grpc://127.0.0.1:9 does not answer" in err
    assert "Tried for 1 s" in err
