"""The pages of one view: its figures, its rows, its definition, its upkeep."""

import datetime
import functools
from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl
from markupsafe import Markup

from page.lake import RowsWanted, StoredRows
from protocols.analysis.svg import as_svg
from protocols.errors import WrongUse
from protocols.explaining.explanation import Explanation, explain
from protocols.explaining.page import page as explained
from protocols.views.catalog import Catalog, catalog_from_json
from streaming.figures.status import JobStatus, ViewStatus
from streaming.settings.configuration import Configuration
from streaming.settings.declared import declared
from warehouse.definition import read_definition

#: The charts and the questions by relation are those of so many positions, at most.
_POSITIONS = 5_000
_POINTS = 60
#: The latest updates that the first page lists.
_LISTED = 15


def of_job(status: JobStatus | None, name: str) -> ViewStatus | None:
    """The view's part of a job's status."""
    found = () if status is None else status.views
    return next((view for view in found if view.name == name), None)


def live(stored: StoredRows, known: ViewStatus | None) -> dict[str, Any]:
    """The part of the first page that renews itself: the standing and the last updates."""
    standing = stored.standing
    assert standing is not None, "a view without a state has a page of its own"
    recent = stored.transactions(max(0, standing.position - _LISTED), standing.position)
    return {
        "standing": standing,
        "known": known,
        "recent": list(reversed(list(updates(recent)))),
    }


def updates(transactions: pl.DataFrame) -> Iterator[dict[str, Any]]:
    """One entry for each position: its transactions and their times."""
    for (position,), part in transactions.group_by("position", maintain_order=True):
        times = part.select("committed_at", "installed_at").rows()
        committed = min((each for each, _ in times if each is not None), default=None)
        installed = max((each for _, each in times if each is not None), default=None)
        delay = None
        if committed is not None and installed is not None:
            delay = (installed - committed).total_seconds()
        asked = [question for each in part["questions"].to_list() for question in each or ()]
        yield {
            "position": position,
            "parts": [(row["source"], row["version"]) for row in part.iter_rows(named=True)],
            "committed_at": committed,
            "installed_at": installed,
            "delay": delay,
            "questions": asked,
            "shown": all(part["shown"].fill_null(True)) if "shown" in part.columns else True,
        }


def figures(stored: StoredRows) -> dict[str, Any]:
    """Charts over the last positions, and what was asked for them, by relation."""
    standing = stored.standing
    upto = 0 if standing is None else standing.position
    found = stored.transactions(max(0, upto - _POSITIONS), upto)
    timed = found.drop_nulls(["committed_at", "installed_at"])
    return {
        "charts": list(_charts(timed)),
        "asked": list(_asked(found)),
        "positions": found["position"].n_unique(),
    }


def _charts(timed: pl.DataFrame) -> Iterator[dict[str, Any]]:
    if timed.height < 2:
        return
    installed = timed["installed_at"].dt.epoch("ms")
    first, last = int(installed.min()), int(installed.max())  # type: ignore[arg-type]
    width = max(1000, (last - first) // _POINTS + 1)
    place = ((installed - first) // width).alias("place")
    delay = (timed["installed_at"] - timed["committed_at"]).dt.total_milliseconds().alias("delay")
    by_place = (
        pl.DataFrame([place, delay])
        .group_by("place")
        .agg(pl.len(), pl.col("delay").median().alias("p50"))
    )
    counts = dict(by_place.select("place", "len").iter_rows())
    medians = dict(by_place.select("place", "p50").iter_rows())
    places = range((last - first) // width + 1)
    rates: list[float | None] = [counts.get(n, 0) * 1000 / width for n in places]
    delays: list[float | None] = [medians.get(n) for n in places]
    end = datetime.datetime.fromtimestamp(last / 1000, datetime.UTC)
    span = f"{(last - first) / 1000:,.0f} s up to {end:%Y-%m-%d %H:%M:%S}"
    for name, values, unit in (
        ("Updates a second", rates, ""),
        ("Median freshness", delays, " ms"),
    ):
        most = max(value for value in values if value is not None)
        yield {"name": name, "line": values, "highest": f"{most:,.0f}{unit}", "span": span}


def _asked(found: pl.DataFrame) -> Iterator[dict[str, Any]]:
    """For each relation: its questions and bytes, in all and for each update."""
    updates_ = max(1, found["position"].n_unique())
    asked = found.select("questions").explode("questions", empty_as_null=False).drop_nulls()
    if asked.is_empty():
        return
    by_relation = (
        asked.unnest("questions")
        .group_by("source", "relation")
        .agg(
            pl.len().alias("questions"),
            pl.col("keys").sum(),
            pl.col("rows").sum(),
            (pl.col("bytes").sum() + pl.col("answer_bytes").sum()).alias("bytes"),
        )
        .sort("source", "relation")
    )
    for row in by_relation.iter_rows(named=True):
        each = {"per_update": row["questions"] / updates_, "bytes_each": row["bytes"] / updates_}
        yield {**row, **each}


def rows(stored: StoredRows, asked: Mapping[str, str]) -> dict[str, Any]:
    """A page of the rows, and the form by which others are found."""
    standing = stored.standing
    assert standing is not None, "a view without a state has a page of its own"
    position = _number(asked, "position")
    if asked.get("time"):
        position = min(stored.position_before(_moment(asked["time"])), standing.position)
    if position is not None and not 0 <= position <= standing.position:
        raise WrongUse(
            f"position {position:,} is not there: the view has the positions 0 to"
            f" {standing.position:,}"
        )
    wanted = RowsWanted(
        position,
        asked.get("q", ""),
        asked.get("sort") if asked.get("sort") in stored.view.schema else None,
        asked.get("order") == "falling",
        max(1, _number(asked, "page") or 1),
    )
    return {
        "wanted": wanted,
        "found": stored.rows(wanted),
        "first": stored.folded(),
        "last": standing.position,
    }


def _number(asked: Mapping[str, str], name: str) -> int | None:
    text = asked.get(name, "").strip()
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 15:
        raise WrongUse(f"{name} has to be a whole number, not {text!r}")
    return int(text)


def _moment(text: str) -> datetime.datetime:
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise WrongUse(f"{text!r} is not a time; write it as 2026-01-31T12:00:00 (UTC)") from None
    return moment if moment.tzinfo is None else moment.astimezone(datetime.UTC).replace(tzinfo=None)


@functools.lru_cache(maxsize=64)
def _explained(name: str, sql: str, catalog: Catalog) -> Explanation:
    return explain(name, sql, catalog)


def definition(configuration: Configuration, stored: StoredRows) -> dict[str, Any]:
    """The view's SQL, its tree and graphs, and what `viewsweep explain` says of it."""
    view = stored.view
    form = read_definition(configuration.warehouse / view.name)
    assert form is not None, "the view was read from it"
    catalog = declared(catalog_from_json(form["sources"]), configuration.sources)
    found = _explained(view.name, view.sql, catalog)
    text = explained(found)
    return {
        "sql": view.sql.strip(),
        # Made here, from escaped labels.
        "drawing": Markup(as_svg(found.drawing)),
        "text": text.partition("\n\n")[2],
    }
