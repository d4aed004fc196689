"""The protocols by name, with their requirements and promises, as data.

The help of the command line, the table in the README and every refusal are made from this, so a
view or a workload that a protocol cannot keep is refused with the reason before anything runs.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal

from protocols.checking.levels import COMPLETE, DELIVERY, STRONG, Level
from protocols.errors import WrongUse
from protocols.exchange.mailbox import Mailbox
from protocols.exchange.protocol import Maintaining, Starting
from protocols.exchange.questions import Maintenance
from protocols.maintenance.batched_sweep import BatchedSweep
from protocols.maintenance.c_strobe import CStrobe
from protocols.maintenance.eca import Eca
from protocols.maintenance.eca_key import EcaKey
from protocols.maintenance.eca_local import EcaLocal
from protocols.maintenance.g_strobe import GStrobe
from protocols.maintenance.keys import ShownKeys
from protocols.maintenance.lca import Lca
from protocols.maintenance.naive import naive
from protocols.maintenance.nested_sweep import NestedSweep
from protocols.maintenance.parallel_sweep import ParallelSweep
from protocols.maintenance.pipelined_sweep import PipelinedSweep
from protocols.maintenance.recompute import Recompute
from protocols.maintenance.strobe import Strobe
from protocols.maintenance.sweep import Sweep
from protocols.maintenance.t_strobe import TStrobe
from protocols.maintenance.tree_sweep import batched, believing, one_by_one
from protocols.operators.memory import Memories
from protocols.views.tree import AnyView, TreeView


class QueryBound(Enum):
    """The number of questions that a protocol may ask over an inner join of n atoms.

    A transaction that changes several atoms counts once for each of them.
    """

    EXACT = "n - 1 for every changed atom, those that an empty partial saved included"
    COMPOSITE = "at most n - 1 for every changed atom of all that is installed at once"
    #: All questions carry the last position of the batch.
    BATCHED = "at most n + I - 1 for a batch, I being the inner atoms of the join tree"


@dataclass(frozen=True)
class Entry:
    """One protocol: how to start it, a summary, its promises and its requirements."""

    name: str
    start: Starting[Any]
    summary: str
    #: How consistent it promises to be.
    level: Level
    #: Which transactions it can keep whole: those of one source, or global ones too.
    transactions: Literal["local", "global"] = "global"
    #: All relations of the view lie at one source, which evaluates joins.
    one_source: bool = False
    #: Every relation has a key, and the view shows it.
    needs_keys: bool = False
    #: It needs updates and answers of a source in one channel, in the order in which they happened
    #: there. Protocols without this need compare versions and take messages in any order.
    fifo: bool = False
    #: Starts it for a view that is more than one inner join; None if it cannot keep such views.
    start_tree: Callable[[TreeView, Mailbox[Any], Memories], Maintaining[Any]] | None = None
    #: Sweeps any stretch of positions of an inner join by itself: (view, mailbox) → (first, last) →
    #: its change, each row with its position. Then its batches may be cut and swept elsewhere. None
    #: if they cannot.
    stretch: Callable[[Any, Mailbox[Any]], Callable[[int, int], Maintenance[Any, Any]]] | None = (
        None
    )
    #: The bound on its questions for an inner join; None if none is claimed.
    questions: QueryBound | None = None
    #: It is wrong on purpose: a test that finds no error in it proves nothing.
    control: bool = False

    def begin_with(
        self,
        view: AnyView,
        mailbox: Mailbox[Any],
        contents: Callable[[], Any],
        memories: Memories,
    ) -> Maintaining[Any]:
        """Starts the protocol over a view that it can keep.

        `contents` returns the rows of the view, `memories` holds what its operators remember.
        """
        if isinstance(view, TreeView):
            assert self.start_tree is not None
            return self.start_tree(view, mailbox, memories)
        return self.start(view, mailbox, contents)

    def keeps(self, view: AnyView) -> bool:
        """Whether it can keep this view."""
        return self._objection(view) is None

    def refuse_view(self, view: AnyView) -> None:
        """Raises WrongUse if it cannot keep this view."""
        reason = self._objection(view)
        if reason is not None:
            able = [entry.name for entry in PROTOCOLS.values() if entry.keeps(view)]
            raise WrongUse(
                f"protocol {self.name} cannot keep view {view.name}: {reason}. Protocols that can"
                f" keep it: {', '.join(able)}"
            )

    def refuse_global(self, transaction: str) -> None:
        """Raises WrongUse if it cannot keep transactions whole that span several sources."""
        if self.transactions == "local":
            able = [e.name for e in PROTOCOLS.values() if e.transactions == "global"]
            raise WrongUse(
                f"protocol {self.name} applies transactions atomically only within one source, but"
                f" {transaction!r} is a global transaction. Protocols that apply global"
                f" transactions atomically: {', '.join(able)}"
            )

    def _objection(self, view: AnyView) -> str | None:
        if isinstance(view, TreeView):
            return None if self.start_tree is not None else "it keeps inner joins only"
        if self.one_source and len(view.sources) > 1:
            return f"it needs all relations at one source, not at {', '.join(view.sources)}"
        if self.needs_keys:
            try:
                ShownKeys(view)
            except WrongUse as error:
                return f"it needs the key of every relation in the view, but {error}"
        return None


def _by_name(entries: Iterable[Entry]) -> dict[str, Entry]:
    return {entry.name: entry for entry in entries}


def _from_nothing(start: Callable[[Any, Mailbox[Any]], Maintaining[Any]]) -> Starting[Any]:
    """Starts a protocol that never reads the rows of the view."""
    return lambda view, mailbox, _contents: start(view, mailbox)


PROTOCOLS = _by_name(
    (
        Entry(
            "sweep",
            _from_nothing(Sweep),
            "one update at a time, errors taken out locally",
            DELIVERY,
            start_tree=one_by_one,
            questions=QueryBound.EXACT,
        ),
        Entry(
            "parallel-sweep",
            _from_nothing(ParallelSweep),
            "SWEEP that asks to the left and to the right of the update at the same time",
            DELIVERY,
            questions=QueryBound.EXACT,
        ),
        Entry(
            "pipelined-sweep",
            _from_nothing(PipelinedSweep),
            "several sweeps under way at once",
            DELIVERY,
            questions=QueryBound.EXACT,
        ),
        Entry(
            "nested-sweep",
            _from_nothing(NestedSweep),
            "one composite change for updates that overlap in time",
            STRONG,
            questions=QueryBound.COMPOSITE,
        ),
        Entry(
            "batched-sweep",
            _from_nothing(BatchedSweep),
            "a batch in n + I - 1 questions (n relations, I inner ones), every state shown",
            DELIVERY,
            start_tree=batched,
            stretch=lambda view, mailbox: BatchedSweep(view, mailbox).change,
            questions=QueryBound.BATCHED,
        ),
        Entry(
            "strobe",
            Strobe,
            "deletions by key, insertions by queries; new states only when no query is open",
            STRONG,
            transactions="local",
            needs_keys=True,
            fifo=True,
        ),
        Entry(
            "t-strobe",
            TStrobe,
            "Strobe with one query for all that a transaction inserts",
            STRONG,
            transactions="local",
            needs_keys=True,
            fifo=True,
        ),
        Entry(
            "g-strobe",
            GStrobe,
            "T-Strobe that shows no new state while a part of a global transaction is missing",
            STRONG,
            needs_keys=True,
            fifo=True,
        ),
        Entry(
            "c-strobe",
            CStrobe,
            "one update at a time; further queries for rows that concurrent deletions took away",
            COMPLETE,
            transactions="local",
            needs_keys=True,
            fifo=True,
        ),
        Entry(
            "eca",
            _from_nothing(Eca),
            "one source: each query also takes out the errors of the queries before it",
            STRONG,
            transactions="local",
            one_source=True,
            fifo=True,
        ),
        Entry(
            "eca-key",
            EcaKey,
            "one source, all keys in the view: no compensation, keys identify surplus rows",
            STRONG,
            transactions="local",
            one_source=True,
            needs_keys=True,
            fifo=True,
        ),
        Entry(
            "eca-local",
            EcaLocal,
            "one source: ECA that handles updates locally if they need no query",
            STRONG,
            transactions="local",
            one_source=True,
            fifo=True,
        ),
        Entry(
            "lca",
            _from_nothing(Lca),
            "one source: each update is corrected separately, so every state is shown",
            COMPLETE,
            transactions="local",
            one_source=True,
            fifo=True,
        ),
        Entry(
            "recompute",
            Recompute,
            "the baseline: reads every relation, every time",
            STRONG,
        ),
        # It promises what SWEEP does, so that the control fails.
        Entry(
            "naive",
            _from_nothing(naive),
            "SWEEP that does not correct answers",
            DELIVERY,
            start_tree=believing,
            questions=QueryBound.EXACT,
            control=True,
        ),
    )
)


#: Complete, and cheaper per update under load.
DEFAULT = "batched-sweep"


def protocol(name: str) -> Entry:
    """The protocol of this name; raises WrongUse, with the known names, if there is none."""
    if name not in PROTOCOLS:
        raise WrongUse(f"there is no protocol {name!r}; choose one of: {', '.join(PROTOCOLS)}")
    return PROTOCOLS[name]
