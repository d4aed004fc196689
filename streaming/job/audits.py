"""The audits of a running job: every so often, in a thread of its own (`audit_every`).

Each works like `viewsweep audit` beside the job, with its own connections and handles, so no batch
waits for it and nothing of the job is trusted. A finding stays in the status while the job runs: a
later audit may only have looked elsewhere.
"""

import threading
import time
from collections.abc import Callable, Sequence

from protocols.failures import as_ours
from streaming.auditing import Amount, audit
from streaming.job.context import Context
from streaming.stopping import Stopped


class Audits:
    """Audits the views of a job one after the other."""

    def __init__(self, context: Context, every: float, kept: Callable[[], Sequence[str]]) -> None:
        """`every`: seconds from one round to the next. `kept`: the views that are kept now."""
        self._context = context
        self._every = every
        self._kept = kept

    def start(self) -> None:
        threading.Thread(target=self._run, name="audits", daemon=True).start()

    def _run(self) -> None:
        while not self._context.stopping.wait(self._every):
            for view in self._kept():
                if self._context.stopping.is_set():
                    return
                self._audit(view)

    def _audit(self, view: str) -> None:
        """Audits a view; one that cannot be made now is made the next time."""
        context = self._context
        try:
            found = audit(context.configuration, view, Amount(), _silent, context.stopping)
        except Stopped:
            return
        except Exception as error:
            context.report(f"view {view} could not be audited: {as_ours(error)}")
            return
        known = context.measures.audits.get(view)
        if known is None or known.holds or not found.holds:
            context.measures.audits[view] = found
        if not found.holds:
            context.report(f"audit at {time.strftime('%H:%M:%S')}: {found}")


def _silent(_message: str) -> None:
    """Drops messages: the job itself reports sources that do not answer."""
