"""Attacks on a running warehouse, and what came of each; `bench/hostile.py` runs them.

A family is a module here with one function, `outcomes(settings)`, which tries one attack after the
other on real parts and yields an `Outcome` for each. An attack is survived when the program ends or
goes on in words: no traceback, no wrong row, nothing lost, memory within bounds.
"""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Settings:
    """How much is tried, and where."""

    #: An empty directory for whatever the attacks need.
    directory: Path
    #: The few cases of `make test` instead of all.
    short: bool = False
    #: Decides what is drawn.
    seed: int = 1


@dataclass(frozen=True)
class Outcome:
    """One attack, or many of one kind."""

    #: For example: "DECIMAL text 1e-77 in 600 records".
    attack: str
    #: For example: "both readers refuse offset 12".
    result: str
    good: bool
    #: How many attacks of this kind the line stands for.
    cases: int = 1
