"""The options of a command as one frozen dataclass, each with its help and default.

@dataclass(frozen=True)
class Options:
    seed: Annotated[int, typer.Option(help="Seed of the run.")] = 0

@taking(Options)
def simulate(options: Options) -> None: ...
"""

import dataclasses
from collections.abc import Callable
from functools import wraps
from inspect import Parameter, Signature
from typing import Any, TypeVar, get_type_hints

Options = TypeVar("Options")


def taking(options: type[Options]) -> Callable[[Callable[[Options], None]], Callable[..., None]]:
    """Decorates a function that takes the dataclass: Typer sees its fields as parameters."""
    hints = get_type_hints(options, include_extras=True)
    parameters = [
        Parameter(
            field.name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if field.default is dataclasses.MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in dataclasses.fields(options)  # type: ignore[arg-type]
    ]

    def shown(command: Callable[[Options], None]) -> Callable[..., None]:
        @wraps(command)
        def with_options(**given: Any) -> None:
            command(options(**given))

        with_options.__annotations__ = hints
        with_options.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        return with_options

    return shown
