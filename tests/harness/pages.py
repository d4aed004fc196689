"""A page that is served in this process, and requests to it."""

import contextlib
import dataclasses
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from starlette.types import ASGIApp

from page.serving import serving
from page.site import site
from protocols.maintenance.registry import DEFAULT
from sources.kafka import Kafka
from streaming.figures.answers import AnswerFigures
from streaming.figures.audited import Audited
from streaming.figures.measuring import Behind, Measures
from streaming.figures.status import JobStatus, SourceStatus, ViewStatus, status_of
from streaming.settings.configuration import Configuration, JobSettings, ViewSettings
from streaming.settings.pagesection import PageSettings

LOOPBACK = PageSettings("127.0.0.1", 0)


@dataclass(frozen=True)
class Response:
    """The answer to a request."""

    code: int
    text: str
    headers: Mapping[str, str]


@dataclass
class Served:
    """A page at an address."""

    url: str
    trusting: ssl.SSLContext | None = None
    headers: dict[str, str] = field(default_factory=dict)

    def get(self, path: str, data: bytes | None = None, **headers: str) -> Response:
        """Asks once; follows no redirection."""
        more = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(self.url + path, data, {**self.headers, **more})
        opener = urllib.request.build_opener(
            _NoRedirection(), urllib.request.HTTPSHandler(context=self.trusting)
        )
        try:
            with opener.open(request, timeout=30) as found:
                return Response(found.status, found.read().decode(), dict(found.headers.items()))
        except urllib.error.HTTPError as error:
            with error:
                return Response(error.code, error.read().decode(), dict(error.headers.items()))


class _NoRedirection(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


@contextlib.contextmanager
def served(app: ASGIApp, settings: PageSettings = LOOPBACK) -> Iterator[Served]:
    """The app, at a port that the system chooses."""
    with serving(app, settings) as url:
        yield Served(url)


class Fixed:
    """Stands for a job whose status is given."""

    here = True
    recording = None

    def __init__(self, status: JobStatus | None) -> None:
        self.given = status

    def status(self) -> JobStatus | None:
        return self.given


def site_of(
    status: JobStatus | None, views: Iterable[str] = (), lake: Path = Path("no lake")
) -> ASGIApp:
    """The site about a job with this status, which keeps views of these names in a lake."""
    settings = {name: ViewSettings(name, Path("v.sql"), "SELECT 1", DEFAULT) for name in views}
    kafka = Kafka("127.0.0.1:9")
    known = Configuration(Path("warehouse.toml"), lake, kafka, {}, settings, JobSettings())
    return site(Fixed(status), known)


def a_status() -> JobStatus:
    """A job in which everything is known: two sources, a view, copies, waits, errors."""
    answers = AnswerFigures().answered(0.003, 120).answered(0.2, 80).answered(99.0, 1)
    answers = answers.failed("source b does not answer", 1_790_000_000.0)
    measures = Measures(phase="keeping", updates=12, queries=4, corrected=3, bytes=2048)
    measures.copies["b.s"] = 40
    measures.steps["sweep"] = 1.25
    measures.note_wait("answers of b", True)
    measures.waits["answers of b"] -= 3
    status = status_of(
        measures,
        [
            SourceStatus("a", True, 7, Behind(0, 0.0)),
            SourceStatus("b", False, 5, Behind(9, 2.5), "holes", answers),
        ],
        [ViewStatus("v", "sweep", 12, {"a": 7, "b": 5}, 2, 1, 33, 1_790_000_001.5, None, None)],
    )
    vector, at = {"a": 6, "b": 5}, 1_790_000_000.0
    audit = Audited("v", 11, vector, at, 1.5, 2, 10, 33, 4, 512, 0, (), None, ())
    views = tuple(dataclasses.replace(view, audit=audit) for view in status.views)
    status = dataclasses.replace(status, views=views)
    return dataclasses.replace(status, freshness_p50_ms=20.0, freshness_p99_ms=250.0)
