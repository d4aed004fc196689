"""The browser of the tests: found, named, or missed with the way to get one."""

from pathlib import Path

import pytest

from infra import browser
from infra.errors import InfraError


def test_a_named_browser_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIEWSWEEP_BROWSER", "true")
    assert browser.browser().name == "true"


def test_a_missing_browser_is_missed_with_the_way_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("VIEWSWEEP_BROWSER", raising=False)
    with pytest.raises(InfraError, match="no browser to test the page in: install Chromium"):
        browser.browser()
    with pytest.raises(InfraError, match="only root can install one"):
        browser.install()
