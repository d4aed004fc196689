"""What several commands share: options that mean the same, a line for the person who watches."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

ConfigOption = Annotated[
    Path, typer.Option("--config", "-c", help="The warehouse.toml that describes everything.")
]
ViewOption = Annotated[
    str | None, typer.Option("--view", help="Which of the views, if there are several.")
]


def report(message: str) -> None:
    """A line for the person who watches."""
    Console(stderr=True).print(escape(message), highlight=False, soft_wrap=True)
