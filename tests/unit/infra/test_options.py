"""A command takes its options as one dataclass, and Typer shows each of them."""

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from infra.options import taking


@dataclass(frozen=True)
class Knobs:
    name: Annotated[str, typer.Argument(help="The name.")]
    rate: Annotated[float, typer.Option("--per-second", help="How fast.")] = 2.5
    twice: Annotated[bool, typer.Option("--twice")] = False
    tags: Annotated[list[str] | None, typer.Option("--tag")] = None


@taking(Knobs)
def command(knobs: Knobs) -> None:
    """Prints its options."""
    print(knobs)


app = typer.Typer()
app.command()(command)


@pytest.mark.parametrize(
    ("words", "knobs"),
    [
        (["x"], Knobs("x", 2.5, False, None)),
        (["--tag", "a", "x", "--twice", "--tag", "b"], Knobs("x", 2.5, True, ["a", "b"])),
        (["--per-second", "7", "y"], Knobs("y", 7.0, False, None)),
    ],
)
def test_what_is_given_and_what_is_not_come_as_one(words: list[str], knobs: Knobs) -> None:
    assert CliRunner().invoke(app, words).stdout == f"{knobs}\n"


def test_help_names_the_options_and_an_unknown_one_is_wrong_use() -> None:
    shown = CliRunner().invoke(app, ["--help"]).stdout
    for words in ("Prints its options.", "The name.", "--per-second", "How fast.", "2.5"):
        assert words in shown
    assert CliRunner().invoke(app, ["x", "--rate", "3"]).exit_code == 2
    assert CliRunner().invoke(app, []).exit_code == 2
