"""Shows a job: the site about it, served while it runs."""

import contextlib
from collections.abc import Callable, Iterator

from page.serving import serving
from page.site import site
from page.watched import JobHere
from streaming.job.job import Job
from streaming.settings.configuration import Configuration


@contextlib.contextmanager
def shown(configuration: Configuration, report: Callable[[str], None], job: Job) -> Iterator[None]:
    """The page of the job, at the address that its configuration names."""
    assert configuration.page is not None, "the command asked whether there is one"
    with serving(site(JobHere(job), configuration), configuration.page) as url:
        report(f"the page of this job: {url}")
        yield
