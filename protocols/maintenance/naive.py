"""The control: SWEEP without compensation. It must fail, or a test of SWEEP proves nothing.

It sends the same queries in the same order and takes every answer for the state it wanted. As
long as nothing is concurrent it is right; with concurrent updates it counts some combinations
twice and some not at all, and the view is wrong for good (the anomalies in section 1 of
algorithms.md).
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
