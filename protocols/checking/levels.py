"""How consistent a warehouse can be: the levels, as data.

Zhuge, Garcia-Molina and Wiener defined them for views over several sources [ZGMW96: The Strobe
algorithms for multi-source warehouse consistency, PDIS 1996], after the same levels for one source
[ZGHW95: View maintenance in a warehousing environment, SIGMOD 1995]. Let V[x] be the view over the
sources at the version vector x, and let x be *legal* if it has each global transaction whole or not
at all. The warehouse shows states ws_0, …, ws_q; `top` is everything that was delivered.

Transactions of different sources commute, so the serial schedules of a run are exactly the paths
from 0 to top in steps of one transaction (a global one is one step) through legal vectors. A
delivery order is one such path, so the last level implies the one before it.

Each state is published with a vector. The x of `weak` and `strong` below has to be that vector; the
checker can be asked to accept any other, too (`claimedvectors.py`).
"""

from dataclasses import dataclass

from protocols.errors import WrongUse


@dataclass(frozen=True)
class Level:
    """A level; `implies` names the next weaker one."""

    name: str
    definition: str
    citation: str
    implies: str | None

    def __str__(self) -> str:
        return self.name


CONVERGENT = Level(
    "convergent",
    "the last state is V[top]: the view is right in the end",
    "ZGMW96, section 3",
    None,
)
WEAK = Level(
    "weak",
    "every state is V[x] for some legal x: no state is shown that never existed",
    "ZGMW96, section 3",
    "convergent",
)
STRONG = Level(
    "strong",
    "the states are V[x_0], V[x_1], … with legal x_0 <= x_1 <= … up to top: time never runs back",
    "ZGMW96, section 3",
    "weak",
)
COMPLETE = Level(
    "complete",
    "the states are all values of the view along one serial schedule, in its order: "
    "no value is left out",
    "ZGMW96, section 3",
    "strong",
)
DELIVERY = Level(
    "complete-in-delivery-order",
    "there is one state for every position k, and it is the view after exactly the first k "
    "transactions that were delivered",
    "Agrawal, El Abbadi, Singh, Yurek, SIGMOD 1997, section 5",
    "complete",
)

# Weakest first.
LEVELS = (CONVERGENT, WEAK, STRONG, COMPLETE, DELIVERY)


def level_named(name: str) -> Level:
    """The level of that name; WrongUse lists all names."""
    for level in LEVELS:
        if level.name == name:
            return level
    raise WrongUse(f"unknown level {name!r}; choose one of: {', '.join(map(str, LEVELS))}")
