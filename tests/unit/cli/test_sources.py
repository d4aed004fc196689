"""`sources init`, `apply` and `index`: real-world files, loaded unchanged or refused."""

import json
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from sources.simulated.database import SourceDatabase
from tests.harness.running import ended

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def sources(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs `viewsweep sources …`; returns exit code, output and complaint."""

    def run(*arguments: object) -> tuple[int, str, str]:
        return ended(["sources", *arguments], capsys, monkeypatch)

    return run


def init(sources: Command, directory: Path, csv: str, *more: object) -> tuple[int, str, str]:
    file = directory / "item.csv"
    file.write_text(csv)
    database = directory / "shop.db"
    return sources("init", database, "--source", "shop", "--relation", f"item={file}", *more)


def held(directory: Path) -> list[tuple[object, ...]]:
    with duckdb.connect(str(directory / "shop.db")) as plain:
        return plain.execute("SELECT * FROM relations.item ORDER BY ALL").fetchall()


def apply(sources: Command, directory: Path, row: str, count: int = 1) -> tuple[int, str, str]:
    """Applies one transaction with a row as JSON text."""
    file = directory / "t.json"
    file.write_text(f'{{"changes": [{{"relation": "item", "row": {row}, "count": {count}}}]}}')
    return sources("apply", file, "--database", directory / "shop.db")


CSV = "id,price\n1,10.25\n2,0.1\n"
PRICE = ("--key", "item=id", "--type", "item.price=DECIMAL(10,2)")


def test_init_says_columns_types_and_key(sources: Command, tmp_path: Path) -> None:
    code, said, _ = init(sources, tmp_path, CSV, "--key", "item=id", "--index", "item=price")
    assert code == 0
    assert "item (2 rows)" in said
    assert "item (id BIGINT, price DOUBLE), key id, index on price" in said


def test_a_type_that_is_given_is_not_guessed(sources: Command, tmp_path: Path) -> None:
    code, said, _ = init(sources, tmp_path, CSV, *PRICE)
    assert code == 0
    assert "price DECIMAL(10,2)" in said
    assert [str(price) for _, price in held(tmp_path)] == ["10.25", "0.10"]


@pytest.mark.parametrize(
    ("value", "type_"),
    [("10.255", "DECIMAL(10,2)"), ("x", "DECIMAL(10,2)"), ("1e9", "DECIMAL(5,2)"), ("1", "DATE")],
)
def test_a_value_that_would_change_in_a_given_type_is_refused(
    value: str, type_: str, sources: Command, tmp_path: Path
) -> None:
    code, _, said = init(sources, tmp_path, f"id,x\n1,{value}\n", "--type", f"item.x={type_}")
    assert code == 2
    assert f"column 'x': '{value}' is not a {type_}" in said
    assert not (tmp_path / "shop.db").exists()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--type", "item.z=DATE"), "there is no column 'z'; choose one of: id, price"),
        (("--type", "other.x=DATE"), "there is no --relation other=…"),
        (("--type", "item.price=MONEY"), "unknown type 'MONEY'"),
    ],
)
def test_a_type_for_nothing_is_refused(
    options: tuple[str, str], complaint: str, sources: Command, tmp_path: Path
) -> None:
    code, _, said = init(sources, tmp_path, CSV, *options)
    assert code == 2
    assert complaint in said


@pytest.mark.parametrize(
    "csv",
    ["", "\n\n", "1,pen\n2,ink\n", "id,name\n1,pen\n2\n", "id,name\n1,pen,x\n2\n3,4,5,6\n"],
    ids=["empty", "blank", "headerless", "short lines", "ragged"],
)
def test_a_csv_file_without_header_or_with_ragged_lines_is_refused(
    csv: str, sources: Command, tmp_path: Path
) -> None:
    code, _, said = init(sources, tmp_path, csv)
    assert code == 2
    assert "relation shop.item" in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize("csv", ["id,name\n", "id;name\n1;x\n", "id\n1\n", "id\tname\n1\tx\n"])
def test_other_csv_files_are_taken(csv: str, sources: Command, tmp_path: Path) -> None:
    assert init(sources, tmp_path, csv)[0] == 0


def test_a_directory_that_is_missing_is_named(sources: Command, tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    code, _, said = sources("init", missing / "x.db", "--source", "crm", "--workload", "retail")
    assert code == 2
    assert f"there is no directory {missing} for x.db" in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize("price", ["10.25", '"10.25"', "10", "-0.5", "1e1"])
def test_a_number_is_a_decimal_as_it_is_written(
    price: str, sources: Command, tmp_path: Path
) -> None:
    init(sources, tmp_path, CSV, *PRICE)
    assert apply(sources, tmp_path, f"[7, {price}]")[0] == 0
    assert float(str(held(tmp_path)[-1][1])) == float(price.strip('"'))


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ("[7, 10.255]", "is not a DECIMAL(10,2)"),
        ("[7.5, 1]", "7.5 is not a BIGINT"),
        ("[7, NaN]", 'NaN has to be a text: "NaN"'),
        ("[7, " + "[" * 100_000, "nested too deeply"),
        ("[7", "not JSON"),
    ],
)
def test_what_is_no_value_is_refused_with_its_place(
    row: str, complaint: str, sources: Command, tmp_path: Path
) -> None:
    init(sources, tmp_path, CSV, *PRICE)
    code, _, said = apply(sources, tmp_path, row)
    assert code == 2
    assert complaint in said
    assert "t.json" in said


def test_a_float_is_a_double(sources: Command, tmp_path: Path) -> None:
    init(sources, tmp_path, CSV, "--key", "item=id")
    assert apply(sources, tmp_path, "[7, 0.1]")[0] == 0
    assert apply(sources, tmp_path, '[8, "NaN"]')[0] == 0
    assert held(tmp_path)[2] == (7, 0.1)


def test_a_count_of_two_is_for_bags(sources: Command, tmp_path: Path) -> None:
    init(sources, tmp_path, CSV)
    assert apply(sources, tmp_path, "[7, 1.5]", count=2)[0] == 0
    assert held(tmp_path).count((7, 1.5)) == 2


def test_an_index_is_made_later_and_twice_does_no_harm(sources: Command, tmp_path: Path) -> None:
    init(sources, tmp_path, CSV, "--key", "item=id")
    for _ in range(2):
        code, said, _ = sources("index", tmp_path / "shop.db", "--on", "item=price,id")
        assert code == 0
        assert "index on id, index on price" in said
    with SourceDatabase.open(tmp_path / "shop.db") as database:
        assert database.indexes == {"item": ("id", "price")}
    code, _, said = sources("index", tmp_path / "shop.db", "--on", "item=zz")
    assert code == 2
    assert "shop.item.zz: there is no such column" in said


def test_status_is_for_machines_as_well(sources: Command, tmp_path: Path) -> None:
    init(sources, tmp_path, CSV)
    _, said, _ = sources("status", "--database", tmp_path / "shop.db", "--json")
    assert json.loads(said)["indexes"] == {"item": []}


# -- keys and foreign keys -------------------------------------------------------------------------

PEOPLE, DESKS = "id,name,boss\n1,ann,\n2,bob,1\n", "room,number,owner\na,1,bob\n"


def init_two(sources: Command, directory: Path, *more: object) -> tuple[int, str, str]:
    (directory / "desks.csv").write_text(DESKS)
    files = ("--relation", f"desks={directory / 'desks.csv'}")
    return init(sources, directory, PEOPLE, *files, *more)


def test_init_declares_further_keys_and_foreign_keys(sources: Command, tmp_path: Path) -> None:
    options = ["--key", "item=id", "--key", "item=name", "--key", "desks=room,number"]
    options += ["--foreign-key", "item.boss=item", "--foreign-key", "desks.room=house.rooms"]
    options += ["--mandatory-foreign-key", "desks.owner=item(name)"]
    code, said, _ = init_two(sources, tmp_path, *options)
    assert code == 0
    assert "boss BIGINT), key id, further key name, foreign key boss -> item\n" in said
    assert "key room, number, foreign key room -> house.rooms, mandatory foreign key owner" in said
    _, told, _ = sources("status", "--database", tmp_path / "shop.db", "--json")
    desks = json.loads(told)["relations"]["desks"]
    assert desks["key"] == ["room", "number"]
    assert desks["foreign_keys"] == [
        {"columns": ["room"], "references": "house.rooms"},
        {"columns": ["owner"], "references": "item", "to": ["name"], "mandatory": True},
    ]
    code, _, complaint = apply(sources, tmp_path, '[3, "bob", 1]')
    assert (code, "a row with this key (name) exists" in complaint) == (2, True)
    code, _, complaint = apply(sources, tmp_path, '[3, "eve", 4]')
    assert (code, "row (3, 'eve', 4): by foreign key" in complaint) == (2, True)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--key", "item=id", "--key", "item=nam"), "further key column 'nam' is not among its"),
        (("--foreign-key", "item.boss=item"), "has to reference a key; shop.item has none"),
        (("--foreign-key", "desks.owner=items"), "no relation 'items'; choose one of: shop.item"),
        (("--foreign-key", "desks.owner=item(id"), "needs the form name.column,column=relation(c"),
        (("--foreign-key", "desks=item"), "needs the form name.column,column=relation(column"),
        (("--foreign-key", "chairs.owner=item"), "there is no --relation chairs="),
        (("--key", "desks=number", "--key", "desks=number,number"), "names column 'number' twice"),
        (
            ("--key", "item=id", "--mandatory-foreign-key", "item.boss=item"),
            "column of a mandatory foreign key boss is NULL in an initial row",
        ),
        (
            ("--key", "item=name", "--key", "item=boss"),
            "relation shop.item: key column boss is NULL in an initial row",
        ),
    ],
)
def test_init_refuses_keys_that_do_not_hold_or_fit(
    sources: Command, tmp_path: Path, options: tuple[str, ...], complaint: str
) -> None:
    code, _, said = init_two(sources, tmp_path, *options)
    assert code == 2
    assert complaint in said
    assert not (tmp_path / "shop.db").exists()
