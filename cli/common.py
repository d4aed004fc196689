"""Options that several commands share, and the line that reports progress."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from protocols.errors import WrongUse

ConfigOption = Annotated[
    Path,
    typer.Option(
        "--config", "-c", help="The configuration file: sources, broker, warehouse and views."
    ),
]


def report(message: str) -> None:
    """Prints a line of progress on stderr."""
    Console(stderr=True).print(escape(message), highlight=False, soft_wrap=True)


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
