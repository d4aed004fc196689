"""The status of a job in another process: the same value, and the command that shows it."""

import dataclasses
import datetime
from pathlib import Path

import orjson
import pytest

from page.statusjson import status_from
from page.watched import JobElsewhere
from streaming.figures.heldback import HeldBack, Waiting
from streaming.figures.status import JobStatus
from streaming.settings.pagesection import PageSettings
from tests.harness.pages import a_status, served, site_of
from tests.harness.running import ended

NOON = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
HELD = HeldBack("v", (Waiting("g", NOON, {"a": 3}, ("b",)),), {"a": (3, 5)})
CONFIGURATION = """
[warehouse]
path = "lake"
[kafka]
bootstrap = "127.0.0.1:9"
[sources.a]
address = "grpc://127.0.0.1:9"
[views.v]
sql = "v.sql"
"""


def everything() -> JobStatus:
    """A status whose times survive the rounding of its JSON form."""
    status = a_status()
    [view] = status.views
    return dataclasses.replace(
        status,
        seconds=12.5,
        updates_per_s_lately=3.5,
        waits=(),
        views=(dataclasses.replace(view, held_back=HELD),),
        executor_batches=({"positions": 3, "seconds": 1.5, "slices": []},),
    )


def test_a_status_survives_its_json_form() -> None:
    assert status_from(orjson.loads(orjson.dumps(everything().to_json()))) == everything()


def test_a_job_elsewhere_is_asked_at_its_address() -> None:
    with served(site_of(everything())) as page:
        port = int(page.url.rpartition(":")[2])
        assert JobElsewhere(PageSettings("127.0.0.1", port), None).status() == everything()
    assert JobElsewhere(PageSettings("127.0.0.1", port), None).status() is None
    assert JobElsewhere(None, None).status() is None


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "v.sql").write_text("SELECT id FROM a.r")
    return tmp_path


def configured(directory: Path, port: int | None) -> Path:
    file = directory / "warehouse.toml"
    page = "" if port is None else f'[page]\nlisten = "127.0.0.1:{port}"\n'
    file.write_text(CONFIGURATION + page)
    return file


def test_the_command_shows_the_job_its_views_and_what_is_wrong(
    directory: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(site_of(everything())) as page:
        file = configured(directory, int(page.url.rpartition(":")[2]))
        code, out, _ = ended(["status", "-c", file], capsys, monkeypatch)
        assert code == 1, "a view is held back"
        assert "batched-sweep" not in out
        assert "held back" in out
        assert "source b does not answer" in out
        code, out, _ = ended(["status", "-c", file, "--json"], capsys, monkeypatch)
        assert status_from(orjson.loads(out)) == everything()


def test_the_command_succeeds_for_a_job_that_keeps_all_views(
    directory: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    status = a_status()
    sources = tuple(dataclasses.replace(each, reachable=True) for each in status.sources)
    with served(site_of(dataclasses.replace(status, sources=sources))) as page:
        file = configured(directory, int(page.url.rpartition(":")[2]))
        assert ended(["status", "-c", file], capsys, monkeypatch)[0] == 0


def test_the_command_says_that_no_job_is_there(
    directory: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(site_of(None)) as page:
        port = int(page.url.rpartition(":")[2])
        code, _, said = ended(["status", "-c", configured(directory, port)], capsys, monkeypatch)
        assert code == 3
        assert "answers 503: no job gives its status here" in said
    code, _, said = ended(["status", "-c", configured(directory, port)], capsys, monkeypatch)
    assert (code, "no job shows itself at" in said) == (3, True)
    code, _, said = ended(["status", "-c", configured(directory, None)], capsys, monkeypatch)
    assert (code, "has no section [page]" in said) == (2, True)
