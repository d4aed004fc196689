"""The commands `python -m bench.rules …`."""

import typer

from bench.rules.campaign import campaign
from bench.rules.cost import cost
from bench.rules.language import language
from bench.rules.writers import writers

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Long runs of views that rules keep."
)
for each in (campaign, writers, cost, language):
    app.command()(each)

if __name__ == "__main__":
    app()
