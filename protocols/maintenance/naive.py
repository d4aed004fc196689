"""The control: SWEEP without compensation. It must fail, or a test of SWEEP proves nothing.

It sends the same queries in the same order and treats every answer as the state it wanted. Without
concurrent updates it is right; with them it counts some combinations twice and some not at all, and
the view stays wrong (the anomalies in section 1 of algorithms.md).
"""

from typing import TypeVar

from protocols.algebra.delta import Delta
from protocols.exchange.asof import as_answered
from protocols.exchange.mailbox import Mailbox
from protocols.maintenance.sweep import Sweep
from protocols.views.view import View

D = TypeVar("D", bound=Delta)


def naive(view: View, mailbox: Mailbox[D]) -> Sweep[D]:
    """SWEEP that believes every answer."""
    return Sweep(view, mailbox, as_answered)
