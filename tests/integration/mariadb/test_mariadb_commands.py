"""Commands over MariaDB sources: doctor, connector, inspect, run on Spark; what is refused."""

import random
import re
from pathlib import Path

import orjson
import pytest

from infra.localbroker import LocalBroker
from infra.localmariadb import LocalMariaDB
from tests.cases.stories import KEYED
from tests.harness.databases import DatabaseWorld
from tests.harness.running import ended
from tests.integration.postgres.test_postgres_commands import said
from warehouse.tables import ViewTables


def test_a_view_is_examined_inspected_and_kept_by_spark(
    broker: LocalBroker,
    server: LocalMariaDB,
    topic: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with DatabaseWorld(tmp_path, broker.bootstrap, topic, KEYED).on(server) as world:
        world.publish()
        world.commit_at_random(random.Random(5), 20)
        world.number_from_here()
        file = world.write_configuration()

        def examined() -> dict[str, str]:
            arguments = ["sources", "doctor", "--config", file, "--source", "a", "--json"]
            code, text, problem = ended(arguments, capsys, monkeypatch)
            assert text, problem
            found = orjson.loads(text)["a"]
            assert code == (1 if any(each["needed"] for each in found) else 0)
            return {each["what"]: each["mend"] for each in found}

        assert examined() == {}
        with world.databases["a"].cursor() as cursor:
            cursor.execute("CREATE TABLE odd (id INT PRIMARY KEY, u UUID)")
            cursor.execute("CREATE TABLE bag (id INT)")
            cursor.execute("CREATE TABLE old (id INT PRIMARY KEY) ENGINE = MyISAM")
            cursor.execute(
                "CREATE TABLE child (id INT PRIMARY KEY, odd INT,"
                " CONSTRAINT f FOREIGN KEY (odd) REFERENCES odd (id) ON DELETE CASCADE)"
            )
            found = examined()
            assert {what.partition(":")[0] for what in found} == {"odd.u", "bag", "old", "child"}
            cursor.execute(
                found["bag: it has no key, by which rows are told apart"].replace("…", "id")
            )
            cursor.execute(next(mend for what, mend in found.items() if what.startswith("old")))
            assert {what.partition(":")[0] for what in examined()} == {"odd.u", "child"}
            cursor.execute("DROP TABLE viewsweep_marks")
            found = examined()
            [mend] = [mend for what, mend in found.items() if what.startswith("there is no table")]
            cursor.execute(mend.partition(";")[0])
            assert {what.partition(":")[0] for what in examined()} == {"odd.u", "child"}
            cursor.execute("DROP TABLE child, odd, old, bag")

        code, text = said("sources", "inspect", "--config", file)
        assert (code, "gives rows read one by one" in text) == (0, True), text
        code, text = said("sources", "connector", "a", "--config", file)
        assert code == 0
        assert '"transforms.one.replacement": "' + world.databases["a"].topic in text
        code, text = said("run", "--config", file, "--once")
        assert code == 0, text
        world.commit_at_random(random.Random(6), 20)
        world.wait_until_published()
        code, text = said("run", "--config", file, "--once")
        assert code == 0, text
        with world.job() as job:
            job.check()
            assert world.assert_complete(ViewTables(tmp_path / "tables", job.view)) > 10
        # The view is behind now, and so are the numbers that it knows.
        world.commit_at_random(random.Random(7), 20)
        world.wait_until_published()
        for amount in (("--fraction", "1"), ("--rows", "5")):
            code, text = said("audit", "v", "--config", file, *amount)
            assert (code, "HOLDS" in text) == (0, True), text


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ("mariadb_env = 'NO_SUCH_VARIABLE_HERE'", "NO_SUCH_VARIABLE_HERE is not set"),
        ("mariadb_file = 'nowhere'", "cannot be read"),
        ("mariadb_file = 'wrong'", "not the address of a MariaDB database"),
        ("mariadb_file = 'option'", "unknown option 'tls'"),
        ("mariadb_env = 'A'\npostgres_env = 'B'", "exclude each other"),
        ("postgres_env = 'A'\nmarks = 'x'", "belongs to mariadb_env"),
        ("mariadb_env = 'A'\nschema = 'x'", "belongs to postgres_env"),
    ],
)
def test_wrong_settings_are_named(lines: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "wrong").write_text("http://u:secret@h/x")
    (tmp_path / "option").write_text("mariadb://u:secret@h/x?tls=1")
    (tmp_path / "v.sql").write_text("SELECT id FROM a.r")
    file = tmp_path / "warehouse.toml"
    file.write_text(
        '[warehouse]\npath = "lake"\n[kafka]\nbootstrap = "127.0.0.1:1"\n[sources.a]\n'
        f'{lines}\n[views.v]\nsql = "v.sql"\n'
    )
    code, text = said("explain", tmp_path / "v.sql", "--config", file)
    assert (code != 0, problem in text) == (True, True), text
    assert not re.search("secret|Traceback", text)
