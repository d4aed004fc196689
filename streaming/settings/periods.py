"""Periods of time as a user writes them: "90s", "10m", "1h", "2d"."""

import re

from protocols.errors import WrongUse

_FORM = re.compile(r"([1-9]\d{0,5})([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds_of(text: object) -> float:
    """The seconds of a period; WrongUse if it is none."""
    found = _FORM.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise WrongUse(f'has to be a time such as "90s", "10m", "1h" or "2d", not {text!r}')
    return float(int(found[1]) * _SECONDS[found[2]])
