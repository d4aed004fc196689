"""Pictures of the page of a running job: python -m bench.screenshots http://127.0.0.1:8090 --view V

Every page, wide and light, narrow and dark, into docs/page/.
"""

from pathlib import Path
from typing import Annotated
from urllib.request import urlopen

import orjson
import typer
from playwright.sync_api import Browser, sync_playwright

from infra.browser import browser

_WIDE = {"width": 1120, "height": 740}
_NARROW = {"width": 390, "height": 740}


def main(
    url: Annotated[str, typer.Argument(help="The address of the job's page.")],
    view: Annotated[str, typer.Option(help="The view whose pages are shown.")],
    into: Annotated[Path, typer.Option(help="The directory of the pictures.")] = Path("docs/page"),
) -> None:
    """Take a picture of every page of a running job."""
    with urlopen(f"{url}/status.json", timeout=10) as answer:
        status = orjson.loads(answer.read())
    with urlopen(f"{url}/view/{view}/corrected", timeout=30) as answer:
        update = answer.url.removeprefix(url)
    into.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=browser(), args=["--no-sandbox"])
        for name, path in _paths(view, update, sorted(status["sources"])[0]).items():
            _take(running, url, path, into / f"{name}.png", dark=False)
            _take(running, url, path, into / f"{name}-dark.png", dark=True)


def _paths(view: str, update: str, source: str) -> dict[str, str]:
    """Name of a picture → the page; `#first` stands for the first row's link there."""
    return {
        "overview": "/",
        "view": f"/view/{view}",
        "rows": f"/view/{view}/rows",
        "definition": f"/view/{view}/definition",
        "update": update,
        "row": f"/view/{view}/rows#first",
        "source": f"/source/{source}",
    }


def _take(running: Browser, url: str, path: str, file: Path, dark: bool) -> None:
    """A picture: wide and light, or narrow and dark."""
    size = _NARROW if dark else _WIDE
    tab = running.new_page(
        color_scheme="dark" if dark else "light",
        viewport={"width": size["width"], "height": size["height"]},
    )
    tab.goto(url + path)
    if path.endswith("#first"):
        with tab.expect_navigation():
            tab.get_by_role("link", name="Why is it here?").first.click()
    tab.wait_for_timeout(2500)
    whole = "/update/" in path
    height = tab.evaluate("document.documentElement.scrollHeight") if whole else size["height"]
    tab.set_viewport_size({"width": size["width"], "height": min(int(height), 1500)})
    tab.screenshot(path=file)
    tab.close()


if __name__ == "__main__":
    typer.run(main)
