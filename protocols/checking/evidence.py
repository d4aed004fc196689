"""The shown states of a run beside the expected ones."""

import numpy as np

from protocols.checking.changes import StepChanges
from protocols.checking.claims import troubles
from protocols.checking.history import VersionHistory
from protocols.checking.order import DeliveryOrder
from protocols.checking.trace import Trace


class Evidence:
    """The states of a trace against the view along the delivered prefixes."""

    def __init__(self, trace: Trace, order: DeliveryOrder, history: VersionHistory) -> None:
        self.trace = trace
        self.order = order
        self.history = history
        self.positions = np.array([state.position for state in trace.states], dtype=np.int64)
        # The last position that is judged: of all, or of those shown if the trace has no end line.
        self.last = order.last
        if trace.end is None and len(self.positions):
            self.last = int(min(order.last, self.positions.max()))
        self.troubles = troubles(trace, order, self.last)
        # The expected changes of the view by position; the shown changes by number of the state.
        self.expected: StepChanges = history.along(order.prefixes[: self.last + 1])
        self.shown: StepChanges = history.view.shown(trace.states)
        # The first state that includes a position; len(states) if none does.
        running = np.maximum.accumulate(np.minimum(self.positions, self.last))
        self.including = np.searchsorted(running, np.arange(self.last + 1), side="left")
        # By state: the rows too many or too few, against the delivered prefixes.
        self.wrong = self.shown.minus(self.expected.at(self.including))
