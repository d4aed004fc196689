"""The pages for readers: each a function from a request to HTML."""

import re
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from page import sourcepage, updatepage, viewpage
from page.lake import StoredRows
from page.overview import overview
from page.rendering import rendered
from page.samples import Samples
from page.watched import Watched
from protocols.errors import ViewsweepError, WrongUse
from streaming.settings.configuration import Configuration

#: What several readers look at is rendered once in this time.
_FRESH_SECONDS = 0.9
_NOT_KEPT = "The questions and answers of this update are not kept any more; only recent ones are."
_NOT_HERE = "The questions and answers of recent updates are shown by the page of the job itself."
_TOO_LARGE = "The batch of this update was too large for its questions and answers to be kept."


#: What a template needs to know of a view.
Known: TypeAlias = Callable[[StoredRows], dict[str, Any]]


class Pages:
    """Renders the pages about one job and its views."""

    def __init__(self, watched: Watched, configuration: Configuration) -> None:
        self._watched = watched
        self._configuration = configuration
        self._samples = Samples(watched.status)
        #: What renews itself → (when it was rendered, what it was).
        self._rendered: dict[Any, tuple[float, str]] = {}
        self._rendering = threading.Lock()

    @property
    def routes(self) -> list[tuple[str, Callable[[Request], str | Response]]]:
        """Path → the function that renders it."""
        return [
            ("/", self._overview),
            ("/view/{name}", self._view),
            ("/view/{name}/rows", self._rows),
            ("/view/{name}/definition", self._definition),
            ("/view/{name}/upkeep", self._upkeep),
            ("/view/{name}/update/{position:int}", self._update),
            ("/view/{name}/corrected", self._corrected),
            ("/view/{name}/row", self._row),
            ("/source/{name}", self._source),
        ]

    def sample(self) -> None:
        """Takes a sample for the charts; called every second."""
        self._samples.take()

    # -- what renews itself ----------------------------------------------------------------------

    def is_live(self, path: str) -> bool:
        """Whether a part of this page renews itself."""
        return path == "/" or re.fullmatch(r"/(view|source)/[^/]+", path) is not None

    def live(self, path: str, query: Mapping[str, str]) -> str:
        """That part, rendered at most once a second for all who look at it."""
        key = (path, tuple(sorted(query.items())))
        with self._rendering:
            now = time.monotonic()
            at, part = self._rendered.get(key, (0.0, ""))
            if now - at < _FRESH_SECONDS and part:
                return part
            self._rendered = {
                k: each for k, each in self._rendered.items() if now - each[0] < 10 * _FRESH_SECONDS
            }
            part = self._live(path, query)
            self._rendered[key] = now, part
            return part

    def _live(self, path: str, query: Mapping[str, str]) -> str:
        status = self._samples.take()
        try:
            _, kind, *rest = path.split("/")
            if not kind:
                known = overview(self._configuration, status, self._samples, query.get("q", ""))
                return rendered("live/overview.html", **known)
            if kind == "source":
                known = sourcepage.source_page(self._configuration, status, rest[0])
                return rendered("live/source.html", **known)
            stored = self._stored(rest[0])
            known = viewpage.live(stored, viewpage.of_job(status, rest[0]))
            return rendered("live/view.html", name=rest[0], corrected=self._records, **known)
        except ViewsweepError as error:
            return rendered("live/problem.html", words=str(error))

    # -- whole pages -----------------------------------------------------------------------------

    def _overview(self, request: Request) -> str:
        search = request.query_params.get("q", "")
        known = overview(self._configuration, self._samples.take(), self._samples, search)
        return rendered("overview.html", **known)

    def _stored(self, name: str) -> StoredRows:
        self._configuration.view(name)
        return StoredRows(self._configuration.warehouse, name)

    def _of_view(
        self,
        request: Request,
        template: str,
        tab: str,
        know: Known,
    ) -> str:
        name = request.path_params["name"]
        settings = self._configuration.view(name)
        if not (self._configuration.warehouse / name / "changes" / "_delta_log").exists():
            return rendered("view_none.html", name=name, sql=settings.sql.strip())
        stored = self._stored(name)
        if stored.standing is None:
            return rendered("view_none.html", name=name, sql=settings.sql.strip())
        of_view = {"name": name, "schema": stored.view.schema, "corrected": self._records}
        return rendered(template, tab=tab, **of_view, **know(stored))

    @property
    def _records(self) -> bool:
        """Whether the answers of recent updates can be shown."""
        return self._watched.recording is not None

    def _view(self, request: Request) -> str:
        status = self._samples.take()

        def know(stored: StoredRows) -> dict[str, Any]:
            known = viewpage.of_job(status, stored.view.name)
            return {**viewpage.live(stored, known), **viewpage.figures(stored)}

        return self._of_view(request, "view_figures.html", "", know)

    def _rows(self, request: Request) -> str:
        asked = dict(request.query_params)
        return self._of_view(
            request, "view_rows.html", "/rows", lambda stored: viewpage.rows(stored, asked)
        )

    def _definition(self, request: Request) -> str:
        return self._of_view(
            request,
            "view_definition.html",
            "/definition",
            lambda stored: viewpage.definition(self._configuration, stored),
        )

    def _upkeep(self, request: Request) -> str:
        hours = self._configuration.view(request.path_params["name"]).history_hours

        def know(stored: StoredRows) -> dict[str, Any]:
            return {
                "sizes": stored.sizes(),
                "folded": stored.folded(),
                "standing": stored.standing,
                "history_hours": hours,
            }

        return self._of_view(request, "view_upkeep.html", "/upkeep", know)

    def _update(self, request: Request) -> str:
        name, position = request.path_params["name"], request.path_params["position"]
        known = viewpage.of_job(self._watched.status(), name)
        protocol = self._configuration.view(name).protocol if known is None else known.protocol

        def know(stored: StoredRows) -> dict[str, Any]:
            found = updatepage.update(stored, position, self._watched.recording, protocol)
            walked = found["walk"]
            too_large = walked is not None and walked.too_large
            why = _NOT_KEPT if self._watched.here else _NOT_HERE
            return {
                **found,
                "walk": None if too_large else walked,
                "not_kept": _TOO_LARGE if too_large else why,
                "nothing_asked": _nothing_asked(walked),
            }

        return self._of_view(request, "update.html", "", know)

    def _corrected(self, request: Request) -> Response:
        """Sends the reader to the latest update with something to take out."""
        name, recording = request.path_params["name"], self._watched.recording
        known = viewpage.of_job(self._watched.status(), name)
        if recording is None or known is None:
            raise WrongUse(_NOT_HERE)
        found = updatepage.latest_corrected(self._stored(name), recording, known.protocol)
        if found is None:
            raise WrongUse(
                "no answer to a recent update of this view contained anything that had to be taken"
                " out"
            )
        return RedirectResponse(f"/view/{quote(name)}/update/{found}", 303)

    def _row(self, request: Request) -> str:
        text = request.query_params.get("row", "")
        return self._of_view(
            request, "row.html", "", lambda stored: updatepage.row_history(stored, text)
        )

    def _source(self, request: Request) -> str:
        name = request.path_params["name"]
        if name not in self._configuration.sources:
            raise WrongUse(f"there is no source {name!r}")
        known = sourcepage.source_page(self._configuration, self._watched.status(), name)
        return rendered("source.html", **known)


def _nothing_asked(walked: Any) -> str:
    if walked is None or walked.committed:
        return (
            "What was remembered, or the changed rows themselves, were enough to find the change of"
            " the view."
        )
    return "The update concerns no row that this view could need."
