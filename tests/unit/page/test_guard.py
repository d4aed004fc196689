"""Who may look at a page: on loopback under its own name, elsewhere with the token and by TLS."""

import dataclasses
import os
import re
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from page.asking import status_at
from page.serving import serving
from protocols.errors import Unreachable, WrongUse
from streaming.settings.pagesection import PageSettings
from tests.harness.certificates import make_certificates
from tests.harness.pages import LOOPBACK, Served, a_status, served, site_of

TOKEN = "a token of a page"
PATHS = ["/status.json", "/metrics", "/readyz", "/"]


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> PageSettings:
    """A page on every interface, with a token and TLS."""
    made = make_certificates(tmp_path_factory.mktemp("tls"))
    return PageSettings("0.0.0.0", 0, "PAGE_TOKEN", made.certificate, made.key)


@pytest.fixture(scope="module")
def page(certified: PageSettings) -> Iterator[Served]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PAGE_TOKEN", TOKEN)
        with served(site_of(a_status()), certified) as page:
            trusting = ssl.create_default_context(cafile=str(certified.certificate_file))
            trusting.check_hostname = False
            trusting.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            yield Served(page.url.replace("0.0.0.0", "127.0.0.1"), trusting)


@pytest.mark.parametrize("path", PATHS)
def test_nothing_is_shown_without_the_token(page: Served, path: str) -> None:
    for found in (
        page.get(path),
        page.get(path, Authorization="Bearer wrong"),
        page.get(path, Cookie="viewsweep=wrong"),
    ):
        assert (found.code, found.text) == (401, "a token is needed: Authorization: Bearer TOKEN\n")


def test_the_token_opens_everything(page: Served) -> None:
    assert page.get("/metrics", Authorization=f"Bearer {TOKEN}").code == 200


def test_a_probe_needs_no_token(page: Served) -> None:
    assert page.get("/healthz").code == 200


def test_a_browser_is_asked_for_the_token_once(page: Served) -> None:
    sent_away = page.get("/", Accept="text/html")
    assert (sent_away.code, sent_away.headers["location"]) == (303, "/login")
    assert '<input id="token"' in page.get("/login").text
    assert page.get("/login", b"token=wrong").code == 403
    let_in = page.get("/login", b"token=" + TOKEN.replace(" ", "+").encode())
    cookie = let_in.headers["set-cookie"]
    assert TOKEN not in cookie
    assert {"HttpOnly", "Secure", "SameSite=strict"} <= set(re.split("; ", cookie))
    assert page.get("/status.json", Cookie=cookie.partition(";")[0]).code == 200


def test_an_endless_form_is_refused(page: Served) -> None:
    assert page.get("/login", b"token=" + b"x" * 10_000).code == 413


def test_on_loopback_a_request_under_another_name_is_refused() -> None:
    with served(site_of(a_status())) as page:
        port = page.url.rpartition(":")[2]
        for good in (f"127.0.0.1:{port}", f"localhost:{port}", "localhost", f"[::1]:{port}"):
            assert page.get("/readyz", Host=good).code == 503
        for bad in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example"):
            assert page.get("/readyz", Host=bad).code == 421


def test_a_browser_may_run_only_scripts_from_here() -> None:
    with served(site_of(a_status())) as page:
        headers = page.get("/readyz").headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe-inline" not in policy
    assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("lacking", ["token_env", "certificate_file"])
def test_off_loopback_a_page_without_token_or_tls_is_refused(
    certified: PageSettings, lacking: str
) -> None:
    here = dataclasses.replace(LOOPBACK, token_env="T", certificate_file=Path("c"))
    without: dict[str, Any] = {lacking: None}
    elsewhere = dataclasses.replace(here, key_file=Path("k"), **without)
    with pytest.raises(WrongUse, match=f"can be reached from other machines.*page.{lacking}"):
        elsewhere.at("192.168.0.1:8090")
    assert elsewhere.at("127.0.0.2:8090").port == 8090
    assert certified.at("192.168.0.1:1").host == "192.168.0.1"


def _serve(settings: PageSettings) -> None:
    with serving(site_of(None), settings):
        pass


def test_a_token_that_is_not_set_is_named() -> None:
    assert "NO_SUCH_TOKEN" not in os.environ
    settings = dataclasses.replace(LOOPBACK, token_env="NO_SUCH_TOKEN")
    with pytest.raises(WrongUse, match="variable NO_SUCH_TOKEN is not set"):
        _serve(settings)


def test_an_address_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        settings = dataclasses.replace(LOOPBACK, port=other.getsockname()[1])
        with pytest.raises(Unreachable, match="cannot listen on"):
            _serve(settings)


def test_files_that_are_no_certificates_are_named(tmp_path: Path) -> None:
    (tmp_path / "c").write_text("no certificate")
    settings = dataclasses.replace(
        LOOPBACK, certificate_file=tmp_path / "c", key_file=tmp_path / "c"
    )
    with pytest.raises(WrongUse, match=r"page.certificate_file and page.key_file cannot"):
        _serve(settings)


def test_a_command_asks_a_page_off_loopback(certified: PageSettings, page: Served) -> None:
    there = dataclasses.replace(certified, port=int(page.url.rpartition(":")[2]))
    assert status_at(there, TOKEN).views == a_status().views
    with pytest.raises(WrongUse, match="refuses the token in PAGE_TOKEN"):
        status_at(there, "wrong")
    plain = dataclasses.replace(there, certificate_file=None)
    with pytest.raises(Unreachable, match="no job shows itself"):
        status_at(plain, TOKEN)
