"""`viewsweep page`: the web page of a configuration, beside its running job or without one."""

import threading
from pathlib import Path
from typing import Annotated

import typer

from cli.common import ConfigOption, page_packages, report
from streaming.settings.configuration import read_configuration
from streaming.settings.pagesection import PageSettings

_DEFAULT = PageSettings("127.0.0.1", 8090)


def page(
    config: ConfigOption = Path("warehouse.toml"),
    listen: Annotated[
        str | None,
        typer.Option(
            help="Where to listen, as HOST:PORT.",
            show_default=f"the configuration's, or {_DEFAULT.host}:{_DEFAULT.port}",
        ),
    ] = None,
) -> None:
    """Show the views of a configuration in a browser, from their tables. Ctrl-C ends it.

    If a job with a section [page] runs, its status is shown too; that job's own page shows more:
    the questions and answers of the latest updates.
    """
    configuration = read_configuration(config)
    settings = configuration.page or _DEFAULT
    with page_packages():
        from page.serving import serving, token_of
        from page.site import site
        from page.watched import JobElsewhere
    # Without --listen it takes the address at which a running job would be: then none runs.
    watched = JobElsewhere(configuration.page if listen is not None else None, token_of(settings))
    here = settings if listen is None else settings.at(listen)
    with serving(site(watched, configuration), here) as url:
        report(f"the page of {config}: {url}; Ctrl-C ends it")
        threading.Event().wait()
