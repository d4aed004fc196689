"""Guards every request: who may look, under which name, and what a browser may do.

A page shows rows of databases. So scripts and styles come from here only, no other site may frame
it, and a request for another host's name is refused: a site that lets its own name point to this
machine could read along otherwise.
"""

import hashlib
import hmac
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from streaming.settings.pagesection import PageSettings, is_loopback

_COOKIE = "viewsweep"
#: Whoever asks whether the job lives needs no token, and learns nothing else.
_OPEN = ("/healthz", "/static/")
_LARGEST_FORM = 4096
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self';"
    " img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none';"
    " frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}
_LOGIN = """<!doctype html><html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width"><title>viewsweep</title>
<link rel="stylesheet" href="/static/page.css">
<main class="login"><h1>viewsweep</h1><form method="post" action="/login">
<label for="token">Token</label>
<input id="token" name="token" type="password" autocomplete="current-password" autofocus required>
<button>Look</button></form>{problem}</main></html>"""


def guarded(app: ASGIApp, settings: PageSettings, token: str | None) -> ASGIApp:
    """The app behind these checks."""
    return _Guard(app, settings, token)


class _Guard:
    def __init__(self, app: ASGIApp, settings: PageSettings, token: str | None) -> None:
        self._app = app
        self._token = token
        self._encrypted = settings.encrypted
        #: The names under which it may be asked; None for any, since a token is needed.
        self._hosts = (
            {"localhost", "127.0.0.1", "[::1]", settings.host, f"[{settings.host}]"}
            if is_loopback(settings.host)
            else None
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        answer = await self._refusal(scope, receive)
        await (answer or self._app)(scope, receive, send_guarded)

    async def _refusal(self, scope: Scope, receive: Receive) -> Response | None:
        headers, path = Headers(scope=scope), scope["path"]
        host = headers.get("host", "")
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        if self._hosts is not None and name.lower() not in self._hosts:
            return PlainTextResponse(f"there is no page for the host {name!r} here\n", 421)
        if self._token is None or path.startswith(_OPEN):
            return None
        if path == "/login":
            return await self._login(Request(scope, receive))
        if self._is_let_in(headers):
            return None
        if "text/html" in headers.get("accept", ""):
            return RedirectResponse("/login", 303)
        words = "a token is needed: Authorization: Bearer TOKEN\n"
        return PlainTextResponse(words, 401, {"www-authenticate": "Bearer"})

    def _is_let_in(self, headers: Headers) -> bool:
        assert self._token is not None
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and _same(given, self._token):
            return True
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(_COOKIE)
        except CookieError:
            return False
        return cookie is not None and _same(cookie.value, _sealed(self._token))

    async def _login(self, request: Request) -> Response:
        assert self._token is not None
        if request.method != "POST":
            return HTMLResponse(_LOGIN.format(problem=""))
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > _LARGEST_FORM:
                return PlainTextResponse("this is no token\n", 413)
        given = parse_qs(body.decode("utf-8", "replace")).get("token", [""])[0]
        if not _same(given, self._token):
            return HTMLResponse(_LOGIN.format(problem="<p>This is not the token.</p>"), 403)
        answer = RedirectResponse("/", 303)
        answer.set_cookie(
            _COOKIE, _sealed(self._token), httponly=True, samesite="strict", secure=self._encrypted
        )
        return answer


def _same(given: str, known: str) -> bool:
    return hmac.compare_digest(given.encode(), known.encode())


def _sealed(token: str) -> str:
    """The cookie that the browser keeps instead of the token."""
    return hmac.new(token.encode(), b"viewsweep page", hashlib.sha256).hexdigest()
