"""Options that several commands share, and the line that reports progress."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

ConfigOption = Annotated[
    Path,
    typer.Option(
        "--config", "-c", help="The configuration file: sources, broker, warehouse and views."
    ),
]


def report(message: str) -> None:
    """Prints a line of progress on stderr."""
    Console(stderr=True).print(escape(message), highlight=False, soft_wrap=True)
