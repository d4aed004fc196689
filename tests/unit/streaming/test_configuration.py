"""`warehouse.toml`: each fault is named by its key, and nothing is guessed."""

from pathlib import Path

import pytest

from protocols.errors import WrongUse
from streaming.settings.configuration import JobSettings, read_configuration
from streaming.settings.pagesection import PageSettings

GOOD = """
[warehouse]
path = "tables"
[kafka]
bootstrap = "127.0.0.1:9092"
[sources.shop]
address = "grpc://127.0.0.1:1"
[sources.crm]
address = "grpc+tls://crm:2"
topic = "crm-changes"
token_env = "CRM_TOKEN"
tls_roots = "crm.pem"
[views.first]
sql = "first.sql"
[views.second]
sql = "sub/second.sql"
protocol = "naive"
dialect = "postgres"
history_hours = 48
[job]
upkeep_every_seconds = 5
readers_minutes = 0.5
records_per_batch = 7
patience_seconds = 2.5
"""


@pytest.fixture(autouse=True)
def _no_broker_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VIEWSWEEP_BROKER", raising=False)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "sub").mkdir()
    (tmp_path / "first.sql").write_text("SELECT id FROM shop.orders")
    (tmp_path / "sub/second.sql").write_text("SELECT name FROM crm.people")
    return tmp_path


def written(directory: Path, text: str) -> Path:
    file = directory / "warehouse.toml"
    file.write_text(text)
    return file


def test_a_source_may_publish_in_several_topics(directory: Path) -> None:
    text = GOOD.replace('"crm-changes"', '["people", "towns"]')
    assert read_configuration(written(directory, text)).sources["crm"].topics == ("people", "towns")


def test_a_good_file_says_everything(directory: Path) -> None:
    read = read_configuration(written(directory, GOOD))
    assert read.warehouse == directory / "tables"
    assert read.kafka.bootstrap == "127.0.0.1:9092"
    shop, crm = read.sources["shop"], read.sources["crm"]
    assert (shop.address, shop.topics, shop.token_env) == ("grpc://127.0.0.1:1", ("shop",), None)
    assert (crm.topics, crm.token_env, crm.tls_roots) == (
        ("crm-changes",),
        "CRM_TOKEN",
        directory / "crm.pem",
    )
    assert read.view("first").protocol == "batched-sweep"
    assert (read.view("first").dialect, read.view("second").dialect) == (None, "postgres")
    assert read.view("second").sql == "SELECT name FROM crm.people"
    assert (read.view("first").history_hours, read.view("second").history_hours) == (None, 48)
    assert read.job == JobSettings(
        records_per_batch=7, patience_seconds=2.5, upkeep_every_seconds=5, readers_minutes=0.5
    )


def test_no_batch_is_for_the_executors_at_zero(directory: Path) -> None:
    assert read_configuration(written(directory, GOOD + "executor_rows = 0")).job.executor_rows == 0


def test_the_environment_names_the_broker(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIEWSWEEP_BROKER", "elsewhere:1")
    without = GOOD.replace('bootstrap = "127.0.0.1:9092"', "")
    for text in (GOOD, without):
        assert read_configuration(written(directory, text)).kafka.bootstrap == "elsewhere:1"


def without(*lines: str) -> str:
    return "\n".join(line for line in GOOD.splitlines() if not line.startswith(lines))


PAGE = GOOD + '[page]\nlisten = "127.0.0.1:8090"\n'


def test_a_page_listens_on_loopback_as_it_is(directory: Path) -> None:
    page = read_configuration(written(directory, PAGE)).page
    assert page == PageSettings("127.0.0.1", 8090)
    assert page.url == "http://127.0.0.1:8090"
    assert read_configuration(written(directory, GOOD)).page is None
    six = read_configuration(written(directory, PAGE.replace("127.0.0.1:8090", "[::1]:1"))).page
    assert six is not None
    assert (six.host, six.url) == ("::1", "http://[::1]:1")


def test_a_page_elsewhere_needs_a_token_and_tls(directory: Path) -> None:
    guarded = PAGE.replace("127.0.0.1:8090", "warehouse.example:8090") + (
        'token_env = "PAGE_TOKEN"\ncertificate_file = "c.pem"\nkey_file = "k.pem"\n'
    )
    page = read_configuration(written(directory, guarded)).page
    assert page is not None
    assert (page.token_env, page.certificate_file) == ("PAGE_TOKEN", directory / "c.pem")
    assert page.url == "https://warehouse.example:8090"


WRONG = {
    "page.listen is missing": GOOD + "[page]\n",
    "page.listen has to be a text, not 8090": PAGE.replace('"127.0.0.1:8090"', "8090"),
    "page.listen has to be HOST:PORT": PAGE.replace("127.0.0.1:8090", "8090"),
    "page.listen: there is no port 80900": PAGE.replace(":8090", ":80900"),
    "page.listen: 0.0.0.0 can be reached from other machines, so the page needs a token": (
        PAGE.replace("127.0.0.1", "0.0.0.0")
    ),
    "page.token is not known here": PAGE + 'token = "secret"',
    "page.key_file is missing": PAGE + 'certificate_file = "c.pem"',
    "page has to be a table": "page = 1\n" + GOOD,
    "warehouse.path is missing": without("path", "[warehouse]"),
    "kafka.bootstrap is missing": without("bootstrap"),
    "kafka.bootstrap has to be a text, not 9092": GOOD.replace('"127.0.0.1:9092"', "9092"),
    "sources.shop.address is missing": GOOD.replace('address = "grpc://127.0.0.1:1"', ""),
    "sources.crm.topic has to be a text, or a list of texts, not ''": GOOD.replace(
        "crm-changes", ""
    ),
    "sources.crm.topic is empty": GOOD.replace('"crm-changes"', "[]"),
    "sources.crm.topic names a topic twice": GOOD.replace('"crm-changes"', '["a", "b", "a"]'),
    "sources.crm.topic is 'shop', the topic of source 'shop'": GOOD.replace(
        '"crm-changes"', '["a", "shop"]'
    ),
    "sources.crm.token_env has to be a text, not True": GOOD.replace('"CRM_TOKEN"', "true"),
    "sources.crm.tls_roots has to be a text": GOOD.replace('"crm.pem"', "[1]"),
    "sources.crm.adress is not known here": GOOD.replace('address = "grpc+', 'adress = "grpc+'),
    "sources.crm.relations has to be a table": GOOD.replace(
        'token_env = "CRM_TOKEN"', "relations = []"
    ),
    "sources.crm.relations.people has to be a table": GOOD.replace(
        'token_env = "CRM_TOKEN"', "relations.people = []"
    ),
    "sources.crm.relations.people.key is not known here; there are: foreign_keys, keys": (
        GOOD.replace('token_env = "CRM_TOKEN"', 'relations.people.key = ["id"]')
    ),
    "sources.shop has to be a table": without("[sources.shop]", "address").replace(
        "[sources.crm]", "[sources]\nshop = 1\n[sources.crm]"
    ),
    "views.first.sql is missing": GOOD.replace('sql = "first.sql"', ""),
    "views.first.sql names a file: put the SQL into one": GOOD.replace(
        '"first.sql"', '"SELECT id FROM shop.orders"'
    ),
    "views.first.sql cannot read": GOOD.replace("first.sql", "third.sql"),
    "views.second.protocol there is no protocol 'magic'": GOOD.replace("naive", "magic"),
    "views.a/b is not a view name, which becomes a directory": GOOD.replace(
        "views.first", 'views."a/b"'
    ),
    "views._checkpoints is the name of one of viewsweep's own directories": GOOD.replace(
        "views.first", "views._checkpoints"
    ),
    "source '': a name must have at least one character": GOOD.replace(
        "sources.shop", 'sources.""'
    ),
    r"source 'a\nb': a name must have": GOOD.replace("sources.shop", r'sources."a\nb"'),
    "warehouse.path is 's3://bucket/lake'; a lake is a directory": GOOD.replace(
        '"tables"', '"s3://bucket/lake"'
    ),
    "warehouse.path is 'file:///lake'": GOOD.replace('"tables"', '"file:///lake"'),
    "views is missing: at least one [views.NAME] is needed": GOOD.partition("[views.first]")[0],
    "job.patience_seconds has to be a number above 0, not 0": GOOD.replace("2.5", "0"),
    "job.patience_seconds has to be a number above 0, not nan": GOOD.replace("2.5", "nan"),
    "job.patience_seconds has to be a number above 0, not '2.5'": GOOD.replace("2.5", "'2.5'"),
    "job.records_per_batch has to be a whole number above 0, not 7.5": GOOD.replace("= 7", "= 7.5"),
    "job.records_per_batch has to be a whole number above 0, not True": GOOD.replace(
        "= 7", "= true"
    ),
    "views.second.history_hours has to be a number above 0, not -1": GOOD.replace("48", "-1"),
    "views.second.history_hours has to be a number above 0, not 'all'": GOOD.replace("48", "'all'"),
    'job.audit_every has to be a time such as "90s", "10m", "1h" or "2d", not 60': GOOD.replace(
        "readers_minutes = 0.5", "audit_every = 60"
    ),
    "job.readers_minutes has to be a number above 0, not 0": GOOD.replace("0.5", "0"),
    "job.upkeep_every_seconds has to be a number above 0, not 0": GOOD.replace("= 5", "= 0"),
    "job.page_rows has to be a whole number above 0, not -1": GOOD + "page_rows = -1",
    "job.executor_rows has to be a whole number above 0, or 0 for none, not -1": GOOD
    + "executor_rows = -1",
    "job.executor_rows has to be a whole number above 0, or 0 for none, not False": GOOD
    + "executor_rows = false",
    "job.pages is not known here; there are: answer_megabytes": GOOD + "pages = 1",
    "extra is not known here": GOOD + "[extra]",
    "warehouse has to be a table": "warehouse = 1",
}


@pytest.mark.parametrize(("complaint", "text"), WRONG.items(), ids=WRONG.keys())
def test_what_is_wrong_is_named_by_its_key(directory: Path, complaint: str, text: str) -> None:
    file = written(directory, text)
    with pytest.raises(WrongUse) as refused:
        read_configuration(file)
    message = str(refused.value)
    assert message.startswith(f"{file}: ")
    assert complaint in message
    assert "\n" not in message


def test_a_file_without_sources_is_refused(directory: Path) -> None:
    head, _, rest = GOOD.partition("[sources.shop]")
    text = head + "[views.first]" + rest.partition("[views.first]")[2]
    with pytest.raises(WrongUse, match=r"sources is missing: at least one \[sources.NAME\]"):
        read_configuration(written(directory, text))


def test_text_that_is_not_toml_is_refused_with_its_place(directory: Path) -> None:
    with pytest.raises(WrongUse, match=r"warehouse.toml is not TOML: .*line 2"):
        read_configuration(written(directory, "[kafka]\nbootstrap\n[job]"))


def test_bytes_that_are_no_text_are_refused(directory: Path) -> None:
    (directory / "warehouse.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(WrongUse, match="is not TOML"):
        read_configuration(directory / "warehouse.toml")


def test_a_view_file_that_is_no_text_is_refused(directory: Path) -> None:
    (directory / "first.sql").write_bytes(b"\xff")
    with pytest.raises(WrongUse, match=r"views.first.sql .*first.sql: line 1 is not UTF-8"):
        read_configuration(written(directory, GOOD))


@pytest.mark.parametrize("name", ["missing.toml", "sub"])
def test_a_file_that_cannot_be_read_is_named(directory: Path, name: str) -> None:
    with pytest.raises(WrongUse, match=f"cannot read .*{name}: "):
        read_configuration(directory / name)


def test_one_view_needs_no_name_and_several_do(directory: Path) -> None:
    several = read_configuration(written(directory, GOOD))
    with pytest.raises(WrongUse, match="choose one with --view: first, second"):
        several.view(None)
    with pytest.raises(
        WrongUse, match=r"there is no \[views.third\]; choose one of: first, second"
    ):
        several.view("third")
    first, _, second = GOOD.partition("[views.second]")
    alone = first + "[job]" + second.partition("[job]")[2]
    assert read_configuration(written(directory, alone)).view(None).name == "first"


def test_another_protocol_may_be_chosen_and_must_exist(directory: Path) -> None:
    view = read_configuration(written(directory, GOOD)).view("first")
    assert view.with_protocol("naive").protocol == "naive"
    with pytest.raises(
        WrongUse, match=r"there is no protocol .magic.; choose one of: sweep, .*naive"
    ):
        view.with_protocol("magic")


def test_audits_are_made_every_so_often_if_wanted(directory: Path) -> None:
    assert read_configuration(written(directory, GOOD)).job.audit_every is None
    for text, seconds in (("90s", 90), ("10m", 600), ("1h", 3600), ("2d", 172_800)):
        content = GOOD.replace("readers_minutes = 0.5", f'audit_every = "{text}"')
        assert read_configuration(written(directory, content)).job.audit_every == seconds
