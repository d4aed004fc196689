"""The site: which path shows what."""

import orjson
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from page.health import unready
from page.metrics import registry_of
from page.watched import Watched


def site(watched: Watched) -> Starlette:
    """The site about one job."""

    def status_json(_: Request) -> Response:
        status = watched.status()
        if status is None:
            return PlainTextResponse("no job gives its status here\n", 503)
        return Response(orjson.dumps(status.to_json()), media_type="application/json")

    registry = registry_of(watched.status)

    def metrics(request: Request) -> Response:
        encoder, kind = choose_encoder(request.headers.get("accept", ""))
        return Response(encoder(registry), headers={"content-type": kind})

    def healthz(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    def readyz(_: Request) -> Response:
        reasons = unready(watched.status())
        return PlainTextResponse("\n".join(reasons or ["ok"]) + "\n", 503 if reasons else 200)

    return Starlette(
        routes=[
            Route("/status.json", status_json),
            Route("/metrics", metrics),
            Route("/healthz", healthz),
            Route("/readyz", readyz),
        ],
    )
