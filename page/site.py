"""The site: which path shows what, and what becomes of errors."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import orjson
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from page.health import unready
from page.metrics import registry_of
from page.pages import Pages
from page.rendering import rendered
from page.watched import Watched
from protocols.errors import ViewsweepError, WrongUse
from protocols.failures import as_ours
from streaming.settings.configuration import Configuration

_HERE = Path(__file__).parent
#: Open pages get news this often, and at least a sign of life that often.
_NEWS_SECONDS = 1.0
_SIGN_SECONDS = 15.0


def site(watched: Watched, configuration: Configuration) -> Starlette:
    """The site about one job and the tables of its views."""
    pages = Pages(watched, configuration)
    return Starlette(
        routes=[
            *_for_programs(watched),
            Mount("/static", StaticFiles(directory=_HERE / "static")),
            Route("/live{path:path}", _live(pages)),
            *(Route(path, _page(show)) for path, show in pages.routes),
        ],
        lifespan=partial(_sampling, pages),
        exception_handlers={HTTPException: _not_found, Exception: _failed},
    )


@asynccontextmanager
async def _sampling(pages: Pages, _: Starlette) -> AsyncIterator[None]:
    """Takes samples for the charts as long as the site is served."""

    async def take() -> None:
        while True:
            await run_in_threadpool(pages.sample)
            await asyncio.sleep(_NEWS_SECONDS)

    taking = asyncio.create_task(take())
    yield
    taking.cancel()


def _for_programs(watched: Watched) -> list[Route]:
    registry = registry_of(watched.status)

    def status_json(_: Request) -> Response:
        status = watched.status()
        if status is None:
            return PlainTextResponse("no job gives its status here\n", 503)
        return Response(orjson.dumps(status.to_json()), media_type="application/json")

    def metrics(request: Request) -> Response:
        encoder, kind = choose_encoder(request.headers.get("accept", ""))
        return Response(encoder(registry), headers={"content-type": kind})

    def healthz(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    def readyz(_: Request) -> Response:
        reasons = unready(watched.status())
        return PlainTextResponse("\n".join(reasons or ["ok"]) + "\n", 503 if reasons else 200)

    return [
        Route("/status.json", status_json),
        Route("/metrics", metrics),
        Route("/healthz", healthz),
        Route("/readyz", readyz),
    ]


def _page(show: Callable[[Request], str | Response]) -> Callable[[Request], Response]:
    def answer(request: Request) -> Response:
        try:
            shown = show(request)
            return HTMLResponse(shown) if isinstance(shown, str) else shown
        except ViewsweepError as error:
            code = 404 if isinstance(error, WrongUse) else 503
            return _problem("This cannot be shown", str(error), code)

    return answer


def _problem(heading: str, words: str, code: int) -> Response:
    return HTMLResponse(rendered("problem.html", heading=heading, words=words), code)


def _not_found(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    words = f"{request.url.path}: {error.detail}"
    return _problem("There is no such page", words, error.status_code)


def _failed(_: Request, error: Exception) -> Response:
    return _problem("This cannot be shown", str(as_ours(error)), 500)


def _live(pages: Pages) -> Callable[[Request], Response]:
    """The part of a page that renews itself, each time it is another one."""

    def answer(request: Request) -> Response:
        path, query = request.path_params["path"], dict(request.query_params)
        if not pages.is_live(path):
            return PlainTextResponse("nothing renews itself there\n", 404)

        async def news() -> AsyncIterator[str]:
            last, said = "", time.monotonic()
            while True:
                part = await run_in_threadpool(pages.live, path, query)
                now = time.monotonic()
                if part != last:
                    yield f"data: {orjson.dumps(part).decode()}\n\n"
                    last, said = part, now
                elif now - said > _SIGN_SECONDS:
                    yield ": still here\n\n"
                    said = now
                await asyncio.sleep(_NEWS_SECONDS)

        return StreamingResponse(news(), media_type="text/event-stream")

    return answer
