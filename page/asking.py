"""The status of a job in another process, asked at the address of its page."""

import ssl
import urllib.error
import urllib.request

import orjson

from page.statusjson import status_from
from protocols.errors import Unreachable, WrongUse
from streaming.figures.status import JobStatus
from streaming.settings.pagesection import PageSettings

#: An address that means every interface, and the one at which this machine reaches it.
_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}
_SECONDS = 5.0


def status_at(page: PageSettings, token: str | None, seconds: float = _SECONDS) -> JobStatus:
    """The status of the job that shows itself there; Unreachable if none does."""
    host = _ANYWHERE.get(page.host, page.host)
    here = PageSettings(host, page.port, None, page.certificate_file)
    request = urllib.request.Request(f"{here.url}/status.json")
    if token is not None:
        request.add_header("authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=seconds, context=_trusting(page)) as answer:
            return status_from(orjson.loads(answer.read()))
    except urllib.error.HTTPError as error:
        said = error.read().decode("utf-8", "replace").strip()
        if error.code in (401, 403):
            raise WrongUse(f"{here.url} refuses the token in {page.token_env}: {said}") from None
        raise Unreachable(f"{here.url} answers {error.code}: {said}") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = getattr(error, "reason", error)
        raise Unreachable(
            f"no job shows itself at {here.url}: {reason}. Is it running, with this section [page]?"
        ) from None


def _trusting(page: PageSettings) -> ssl.SSLContext | None:
    """Trusts the page's own certificate, whatever name it is for: both are in one file."""
    if page.certificate_file is None:
        return None
    try:
        context = ssl.create_default_context(cafile=str(page.certificate_file))
    except (OSError, ssl.SSLError) as error:
        raise WrongUse(f"page.certificate_file cannot be used: {error}") from None
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context
