"""The page in a real browser: what a reader does, and what is seen then."""

import dataclasses
import re
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from page.site import site
from page.watched import JobElsewhere
from protocols.algebra.delta import COUNT
from protocols.views.catalog import catalog_from_json
from protocols.views.sql import parse_view
from streaming.figures.answers import AnswerFigures
from streaming.figures.measuring import Measures
from streaming.figures.status import ViewStatus, status_of
from tests.harness.pages import a_status, served, site_of
from tests.harness.pageworld import SCRIPT, VIEWS, ShownWorld
from tests.harness.waiting import eventually
from tests.integration.page.conftest import opened
from warehouse.standing import Standing
from warehouse.tables import ViewTables

NARROW = {"width": 360, "height": 740}


def cells(table: Locator) -> list[list[str]]:
    """The texts of a table's rows."""
    rows: list[list[str]] = table.locator("tbody tr").evaluate_all(
        "rows => rows.map(r => [...r.cells].map(c => c.innerText.trim()))"
    )
    return rows


def shown_rows(tab: Page) -> Counter[tuple[str, ...]]:
    """The rows of all pages of a list of rows, with their counts."""
    found: Counter[tuple[str, ...]] = Counter()
    page = 1
    while True:
        for *row, times, _ in cells(tab.locator("table")):
            if row:
                found[tuple(row)] += int(times)
        following = tab.get_by_role("link", name="Next")
        if following.get_attribute("aria-disabled"):
            return found
        following.click()
        page += 1
        expect(tab.locator(".pager")).to_contain_text(f"Page {page} of")


def as_text(rows: Counter[tuple[Any, ...]]) -> Counter[tuple[str, ...]]:
    return Counter(
        {tuple("NULL" if v is None else str(v) for v in row): n for row, n in rows.items()}
    )


def as_of(position: int) -> re.Pattern[str]:
    """The words of a list of rows about its position."""
    return re.compile(rf"as of position {position:,}[.;]")


def fits(tab: Page) -> bool:
    """Whether the page itself, beside its tables, needs no scrolling to the side."""
    return bool(tab.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))


# -- finding one's way -----------------------------------------------------------------------------


def test_a_reader_goes_from_the_overview_to_the_cause_of_a_row(tab: Page) -> None:
    tab.goto("/")
    expect(tab.get_by_role("list", name="The way of an update")).to_contain_text("3 of 3")
    tab.get_by_role("link", name="left", exact=True).click()
    expect(tab.get_by_role("heading", level=1)).to_have_text("left")
    tab.get_by_role("link", name="Definition").click()
    expect(tab.locator("pre").first).to_contain_text("LEFT JOIN b.s s")
    expect(tab.locator(".drawing svg")).to_contain_text("left join")
    tab.get_by_role("link", name="Upkeep").click()
    expect(tab.locator("tbody tr")).to_have_count(3)
    tab.get_by_role("link", name="Rows").click()
    tab.get_by_role("link", name="Why is it here?").first.click()
    expect(tab.get_by_role("heading", level=1)).to_have_text("Why is this row here?")
    expect(tab.locator(".steps > li").first).to_be_visible()
    tab.go_back()
    tab.get_by_role("link", name="viewsweep", exact=True).click()
    expect(tab).to_have_url(re.compile(r"/$"))


def test_every_link_of_every_page_leads_somewhere(tab: Page) -> None:
    seen: set[str] = set()
    left = ["/"]
    while left and len(seen) < 60:
        path = left.pop()
        seen.add(path)
        answer = tab.goto(path)
        assert answer is not None
        assert answer.status == 200, path
        found = tab.locator("a[href^='/']").evaluate_all(
            "links => links.map(link => link.getAttribute('href'))"
        )
        kinds = {re.sub(r"\d+|row=.*", "", each) for each in seen | set(left)}
        for each in found:
            if re.sub(r"\d+|row=.*", "", each) not in kinds and "/corrected" not in each:
                kinds.add(re.sub(r"\d+|row=.*", "", each))
                left.append(each)
    assert len(seen) > 15


def test_an_address_that_is_none_says_so(tab: Page) -> None:
    for path in ("/view/none", "/nothing", "/view/v/update/99999", "/view/v/row?row=[1]"):
        answer = tab.request.get(path)
        assert answer.status == 404, path
        assert "Traceback" not in answer.text()


# -- rows ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("view", VIEWS)
def test_the_rows_at_a_position_are_those_that_duckdb_finds(
    tab: Page, shown: ShownWorld, view: str
) -> None:
    last = shown.tables(view).standing().position
    for position in (0, last // 3, last):
        tab.goto(f"/view/{view}/rows")
        tab.get_by_label("As of position").fill(str(position))
        tab.get_by_role("button", name="Show").click()
        expect(tab.locator("main")).to_contain_text(as_of(position))
        assert shown_rows(tab) == as_text(shown.truth(view, position)), position


def test_the_slider_chooses_a_position(tab: Page, shown: ShownWorld) -> None:
    tab.goto("/view/v/rows")
    slider = tab.get_by_role("slider", name="Position")
    slider.focus()
    slider.press("Home")
    expect(tab.locator("main")).to_contain_text(as_of(0))
    tab.get_by_role("slider", name="Position").focus()
    tab.get_by_role("slider", name="Position").press("ArrowRight")
    expect(tab.locator("main")).to_contain_text(as_of(1))
    tab.get_by_role("link", name="Current state").click()
    last = shown.tables("v").standing().position
    expect(tab.locator("main")).to_contain_text(as_of(last))


def test_a_time_before_everything_is_the_first_state(tab: Page) -> None:
    tab.goto("/view/v/rows")
    tab.get_by_label("or as of a time").fill("2001-01-01T00:00:00")
    tab.get_by_role("button", name="Show").click()
    expect(tab.locator("main")).to_contain_text(as_of(0))


def test_search_and_order_are_those_of_the_values(tab: Page) -> None:
    tab.goto("/view/v/rows")
    tab.keyboard.press("/")
    tab.keyboard.type("SCRIPT")
    tab.keyboard.press("Enter")
    expect(tab.locator("main")).to_contain_text("1 different row with “SCRIPT”")
    [row] = cells(tab.locator("table"))
    assert SCRIPT in row
    tab.goto("/view/left/rows")
    for arrow, falling in (("↑", False), ("↓", True)):
        tab.get_by_role("link", name=re.compile("^id")).click()
        expect(tab.locator("th").first).to_contain_text(arrow)
        order = [int(row[0]) for row in cells(tab.locator("table"))]
        assert order == sorted(order, reverse=falling)
        assert len(set(order)) > 3


def test_no_value_runs_as_a_script(tab: Page) -> None:
    tab.goto("/view/v/rows?q=script")
    expect(tab.locator("tbody")).to_contain_text(SCRIPT)
    tab.get_by_role("link", name="Why is it here?").click()
    expect(tab.locator(".facts")).to_contain_text(SCRIPT)
    tab.locator(".steps a").first.click()
    expect(tab.locator(".steps")).to_contain_text(SCRIPT)
    assert "stolen" not in tab.title()
    tab.goto(f"/view/v/rows?q={SCRIPT}")
    expect(tab.get_by_label("Search")).to_have_value(SCRIPT)
    assert "stolen" not in tab.title()


def test_the_history_of_a_row_is_that_of_its_key(tab: Page, shown: ShownWorld) -> None:
    tables = shown.tables("groups")
    changed = tables.changes().collect().group_by("y").len().sort("len").item(-1, "y")
    tab.goto(f"/view/groups/rows?q={changed}")
    row = tab.locator("tbody tr").filter(has=tab.locator(f"td:first-child:text-is('{changed}')"))
    row.get_by_role("link").click()
    expect(tab.get_by_role("heading", level=1)).to_have_text("Why is this row here?")
    said = [tuple(r[1:]) for r in cells(tab.locator(".steps"))]
    made = tables.changes().filter(pl.col("y") == changed).sort("_position", COUNT).collect()
    names = list(tables.view.schema)
    assert said == [tuple(map(str, r)) for r in made.select(names).iter_rows()]
    assert len(said) > 3


# -- updates ---------------------------------------------------------------------------------------


def test_an_update_is_told_step_by_step(tab: Page) -> None:
    tab.goto("/view/v")
    tab.get_by_role("link", name="The latest update whose answers had to be corrected").click()
    expect(tab.locator("main")).to_contain_text("Too new: the answer contains these later changes")
    expect(tab.locator(".verdict.good")).to_have_text("The steps above give exactly this change.")
    heading = tab.get_by_role("heading", level=1).inner_text()
    # The script begins when the page is loaded.
    tab.wait_for_load_state()
    tab.keyboard.press("k")
    expect(tab.get_by_role("heading", level=1)).not_to_have_text(heading)
    tab.wait_for_load_state()
    tab.keyboard.press("j")
    expect(tab.get_by_role("heading", level=1)).to_have_text(heading)
    tab.get_by_role("link", name="Previous").click()
    expect(tab.get_by_role("heading", level=1)).not_to_have_text(heading)


def test_a_group_shows_the_questions_of_its_batch(tab: Page) -> None:
    tab.goto("/view/left")
    tab.get_by_role("link", name="The latest update whose answers had to be corrected").click()
    expect(tab.locator(".steps")).to_contain_text("shared this question")


# -- what renews itself ----------------------------------------------------------------------------


def test_the_overview_renews_itself_until_it_is_paused(tab: Page, shown: ShownWorld) -> None:
    tab.goto("/")
    button = tab.get_by_role("button", name="Live")
    expect(button).to_be_visible()
    lead = tab.locator("#live .lead")
    shown.job.measures.phase = "first state"
    expect(lead).to_contain_text("reads the first states")
    button.click()
    expect(tab.get_by_role("button", name="Paused")).to_be_visible()
    shown.job.measures.phase = "keeping"
    tab.wait_for_timeout(2500)
    expect(lead).to_contain_text("reads the first states")
    tab.get_by_role("button", name="Paused").press("Enter")
    expect(lead).to_contain_text("keeps its views up to date")


def test_the_focus_stays_where_it_is_when_the_page_renews_itself(tab: Page) -> None:
    tab.goto("/")
    tab.get_by_role("link", name="groups").focus()
    tab.evaluate("document.querySelector('#live').dataset.mark = 'old'; renewed = 0")
    tab.evaluate(
        "new MutationObserver(() => renewed++).observe(document.querySelector('#live'),"
        " {childList: true})"
    )
    eventually(lambda: tab.evaluate("renewed") > 1, "the page has renewed itself")
    assert tab.evaluate("document.activeElement.innerText") == "groups"
    tab.keyboard.press("Enter")
    expect(tab.get_by_role("heading", level=1)).to_have_text("groups")


def test_a_dead_source_is_seen_and_its_return_too(tab: Page, shown: ShownWorld) -> None:
    source = shown.world.sources["b"]
    tab.goto("/")
    source.stop_server()
    try:
        troubles = tab.get_by_role("list", name="Troubles")
        expect(troubles).to_contain_text("source b does not answer, and its updates wait")
        expect(tab.locator(".flow")).to_contain_text("2 of 3")
        tab.get_by_role("link", name="b", exact=True).click()
        expect(tab.locator("#live")).to_contain_text("silent")
        expect(tab.locator(".troubles .grave")).to_contain_text("does not answer")
    finally:
        source.restart_server()
    expect(tab.locator("#live .pill")).to_have_text("answers")
    tab.goto("/")
    expect(tab.locator(".troubles")).to_have_count(0)


def test_a_source_shows_what_it_promises_and_how_it_answers(tab: Page, shown: ShownWorld) -> None:
    tab.goto("/source/c")
    expect(tab.locator("#live")).to_contain_text("answers of one version each")
    figures = shown.job.status().sources
    answers = next(each.answers for each in figures if each.name == "c").latencies
    bars = [text for text in tab.locator(".histogram text:not(.label)").all_text_contents() if text]
    assert bars == [f"{count:,}" for count in answers if count]
    expect(tab.locator("main")).to_contain_text(shown.world.sources["c"].topic)


# -- every window and every taste ------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_has_enough_contrast_and_fits_a_narrow_window(
    chromium: Browser, shown: ShownWorld, scheme: Any
) -> None:
    last = shown.tables("v").standing().position
    with opened(chromium, shown.page.url, color_scheme=scheme, viewport=NARROW) as tab:
        for path in (
            "/",
            "/view/v",
            "/view/v/rows",
            "/view/v/definition",
            "/view/v/upkeep",
            f"/view/v/update/{last}",
            "/source/a",
        ):
            tab.goto(path)
            assert fits(tab), path
            assert tab.evaluate(_FAINT) == [], path


#: The texts whose contrast with what is behind them is below 4.5, as WCAG computes it.
_FAINT = """() => {
  const parts = (colour) => (colour.match(/[\\d.]+/g) || []).map(Number);
  const light = (colour) => parts(colour).slice(0, 3).map((c) => c / 255)
    .map((c) => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, n) => sum + c * [0.2126, 0.7152, 0.0722][n], 0);
  const behind = (each) => {
    for (let at = each; at; at = at.parentElement) {
      const colour = parts(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return getComputedStyle(at).backgroundColor;
    }
    return "rgb(255, 255, 255)";
  };
  const faint = [];
  for (const each of document.querySelectorAll("main *, header *")) {
    const own = [...each.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || each.closest("svg, [aria-disabled], .skip") || !each.offsetParent) continue;
    const [a, b] = [light(getComputedStyle(each).color), light(behind(each))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) faint.push(each.innerText);
  }
  return faint;
}"""


def test_everything_is_reached_by_keyboard(tab: Page) -> None:
    tab.goto("/view/v/rows")
    tab.keyboard.press("Tab")
    expect(tab.get_by_role("link", name="To the content")).to_be_focused()
    reached = set()
    for _ in range(30):
        tab.keyboard.press("Tab")
        reached.add(tab.evaluate("document.activeElement.innerText || document.activeElement.id"))
    assert {"viewsweep", "Definition", "position", "q", "Show", "Why is it here?"} <= reached


def test_without_scripts_forms_still_work(chromium: Browser, shown: ShownWorld) -> None:
    with opened(chromium, shown.page.url, java_script_enabled=False) as tab:
        tab.goto("/view/v/rows")
        tab.get_by_label("Search").fill("script")
        tab.get_by_role("button", name="Show").click()
        expect(tab.locator("tbody")).to_contain_text(SCRIPT)


# -- other jobs ------------------------------------------------------------------------------------


def test_without_a_job_the_tables_are_shown(chromium: Browser, shown: ShownWorld) -> None:
    alone = site(JobElsewhere(None, None), shown.configuration)
    with served(alone) as page, opened(chromium, page.url) as tab:
        tab.goto("/")
        expect(tab.locator("#live")).to_contain_text("No job gives its status here")
        tab.get_by_role("link", name="v", exact=True).click()
        last = shown.tables("v").standing().position
        expect(tab.locator(".facts")).to_contain_text(f"{last}")
        tab.get_by_role("link", name=f"{last}", exact=True).click()
        expect(tab.locator("main")).to_contain_text("shown by the page of the job itself")
        tab.goto("/source/a")
        expect(tab.locator("#live")).to_contain_text("nothing is known of its answers")


def test_200_views_can_be_searched(chromium: Browser) -> None:
    names = [f"view_{number:03}" for number in range(200)]
    views = [ViewStatus(n, "sweep", 5, {"a": 5}, 0, 0, 9, None, None, None) for n in names]
    views[150] = dataclasses.replace(views[150], failed="a gap in the topic")
    status = dataclasses.replace(status_of(Measures(), a_status().sources, views), phase="keeping")
    with served(site_of(status, names)) as page, opened(chromium, page.url) as tab:
        tab.goto("/")
        expect(tab.locator("table").first.locator("tbody tr")).to_have_count(200)
        expect(tab.locator("tbody tr").first).to_contain_text("view_150")
        expect(tab.locator(".troubles")).to_contain_text("view view_150 failed: a gap")
        tab.keyboard.press("/")
        tab.keyboard.type("_19")
        tab.keyboard.press("Enter")
        expect(tab.locator("table").first.locator("tbody tr")).to_have_count(10)
        tab.wait_for_timeout(1500)
        expect(tab.locator("table").first.locator("tbody tr")).to_have_count(10)


def test_a_view_of_a_million_rows_is_searched_and_ordered(
    chromium: Browser, tmp_path: Path
) -> None:
    relation = {"columns": {"id": "BIGINT", "name": "VARCHAR"}, "key": ["id"]}
    catalog = catalog_from_json({"a": {"relations": {"r": relation}}})
    tables = ViewTables(tmp_path, parse_view("large", "SELECT id, name FROM a.r", catalog))
    tables.define()
    count, ids = 1_000_000, pl.int_range(1_000_000, eager=True)
    rows = pl.DataFrame({"id": ids, "name": ("n" + ids.cast(pl.String))})
    rows = rows.with_columns(pl.lit(1, pl.Int64).alias(COUNT))
    tables.begin(rows, Standing(0, {"a": 0}, {"a": (0,)}))
    tables.follow()
    with served(site_of(None, ["large"], tmp_path)) as page, opened(chromium, page.url) as tab:
        tab.goto("/view/large/rows")
        expect(tab.locator("main")).to_contain_text(f"{count:,} different rows")
        tab.get_by_role("link", name="id").click()
        expect(tab.locator("th").first).to_contain_text("↑")
        tab.get_by_role("link", name=re.compile("^id")).click()
        expect(tab.locator("th").first).to_contain_text("↓")
        assert cells(tab.locator("table"))[0][0] == "999999"
        tab.get_by_label("Search").fill("n77777")
        tab.get_by_role("button", name="Show").click()
        expect(tab.locator("main")).to_contain_text("11 different rows")
        assert [row[0] for row in cells(tab.locator("table"))][-1] == "77777"


def test_values_of_an_error_are_escaped(chromium: Browser) -> None:
    source = a_status().sources[1]
    answers = AnswerFigures().failed(f"no answer: {SCRIPT}", 1.0)
    sources = (dataclasses.replace(source, answers=answers),)
    status = dataclasses.replace(a_status(), sources=sources)
    with served(site_of(status)) as page, opened(chromium, page.url) as tab:
        tab.goto("/")
        expect(tab.locator(".troubles")).to_contain_text(SCRIPT)
        tab.wait_for_timeout(1500)
        assert "stolen" not in tab.title()
