"""One job, its page and one browser for all tests of the page."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from infra.browser import browser
from infra.localbroker import LocalBroker
from tests.harness.pageworld import ShownWorld, shown_world
from tests.harness.waiting import patience

#: What does not appear within this does not come at all.
_MOST_SECONDS = 90.0


@pytest.fixture(scope="session")
def shown(broker: LocalBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShownWorld]:
    with shown_world(tmp_path_factory.mktemp("shown"), broker.bootstrap) as shown:
        yield shown


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """A real browser; without one the tests fail, and say how to get it."""
    with sync_playwright() as playwright:
        # As root, in which tests may run, its sandbox does not work.
        running = playwright.chromium.launch(
            executable_path=browser(), args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        expect.set_options(timeout=_patience())
        yield running
        running.close()


@pytest.fixture
def tab(chromium: Browser, shown: ShownWorld) -> Iterator[Page]:
    """A new tab; a script that fails, or that may not run, fails the test."""
    with opened(chromium, shown.page.url) as tab:
        yield tab


def _patience() -> float:
    """Milliseconds to wait for something to appear."""
    return 1000 * min(patience() / 4, _MOST_SECONDS)


@contextmanager
def opened(chromium: Browser, url: str, **options: Any) -> Iterator[Page]:
    context = chromium.new_context(base_url=url, **options)
    context.set_default_timeout(_patience())
    said: list[str] = []
    tab = context.new_page()
    tab.on("console", lambda message: said.append(message.text))
    tab.on("pageerror", lambda error: said.append(str(error)))
    yield tab
    assert said == []
    context.close()
