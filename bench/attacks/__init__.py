"""Attacks on a running warehouse, and their outcomes; `bench/hostile.py` runs them.

A family is a module here with one function, `outcomes(settings)`, which tries one attack after the
other on real parts and yields an `Outcome` for each. The program survives an attack if it goes on,
or ends with a message: no traceback, no wrong row, nothing lost, memory within bounds.
"""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class AttackSettings:
    """The number of attacks, their directory and their seed."""

    #: An empty directory for the files of the attacks.
    directory: Path
    #: The few cases of `make test` instead of all.
    short: bool = False
    #: The seed of everything random.
    seed: int = 1


@dataclass(frozen=True)
class AttackOutcome:
    """One attack, or many of one kind."""

    #: For example: "DECIMAL text 1e-77 in 600 records".
    attack: str
    #: For example: "both readers refuse offset 12".
    result: str
    good: bool
    #: The number of attacks of this kind that the line stands for.
    cases: int = 1
