"""`viewsweep trace`: writes the trace of a live run, for `viewsweep check`."""

from pathlib import Path
from typing import Annotated

import typer

from cli.common import ConfigOption, report
from streaming.settings.configuration import read_configuration


def trace(
    file: Annotated[Path, typer.Argument(help="Where to write the trace (JSON Lines).")],
    config: ConfigOption = Path("warehouse.toml"),
    view: Annotated[
        str | None, typer.Option(help="The view; needed if the configuration has several.")
    ] = None,
) -> None:
    """Collect the trace of a live run from the topics, Delta and the sources, for `check`."""
    from streaming.tracing import write_live_trace

    configuration = read_configuration(config)
    settings = configuration.view(view)
    positions = write_live_trace(configuration, settings, file)
    report(f"{file}: {positions} positions of view {settings.name}")
