"""The state of each view and each open question in a life of the warehouse (life.py)."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from protocols.exchange.driver import SentQuestion
from protocols.exchange.mailbox import Group, Mailbox
from protocols.exchange.maintained import Maintained, WantedAnswer
from protocols.exchange.questions import Question
from protocols.operators.memory import Memories
from protocols.simulation.elsewhere import Part, Parted
from protocols.simulation.journal import Journal
from protocols.simulation.setting import Setting


@dataclass(eq=False)
class Opened:
    """A question that was sent, or its answer."""

    asked: SentQuestion[Any]
    #: The version of its source when it was asked: only stale reads are older.
    asked_at: int

    @property
    def question(self) -> Question[Any]:
        return self.asked.question

    @property
    def source(self) -> str:
        return self.asked.question.source


@dataclass(eq=False)
class LivingView:
    """A view of this life, and its record."""

    setting: Setting
    journal: Journal
    maintained: Maintained[Any]
    memories: Memories = field(default_factory=Memories)
    #: The groups delivered before the crash, which have to be delivered again first, in this order.
    again: deque[Group] = field(default_factory=deque)
    #: The numbers of its questions in the trace.
    ids: dict[WantedAnswer[Any], int] = field(default_factory=dict)
    #: Deliveries up to this position are in the record.
    recorded: int = 0
    #: Whether the first state is being made.
    loading: bool = True
    #: Its stretches that are swept elsewhere.
    parted: list[Parted] = field(default_factory=list)

    @property
    def mailbox(self) -> Mailbox[Any]:
        return self.maintained.mailbox

    @property
    def parts(self) -> list[Part]:
        """Its slices that are swept elsewhere."""
        return [part for parted in self.parted for part in parted.parts]

    def asks(self, asker: object) -> bool:
        """Whether the asker is this view, or a slice of it."""
        return asker is self.maintained or any(asker is part.maintained for part in self.parts)
