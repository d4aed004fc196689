"""Shared by several commands: options, the messages about progress, packages of an extra."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from cli.events import report as report
from protocols.errors import WrongUse

ConfigOption = Annotated[
    Path,
    typer.Option(
        "--config", "-c", help="The configuration file: sources, broker, warehouse and views."
    ),
]


@contextmanager
def page_packages() -> Iterator[None]:
    """WrongUse if the block imports a package that only the page needs, and it is not there."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise WrongUse(
            f"the page needs {error.name}, which is not installed: pip install 'viewsweep[page]',"
            " or leave [page] out of the configuration"
        ) from None
