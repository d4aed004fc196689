"""The context that all parts of a job share."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from streaming.figures.measuring import Measures
from streaming.job.recording import Recording
from streaming.settings.configuration import Configuration

Report = Callable[[str], None]


@dataclass(frozen=True)
class Context:
    """A job's configuration, its reports and figures, and the event that ends it."""

    configuration: Configuration
    report: Report
    measures: Measures = field(default_factory=Measures)
    #: Set to end the job; every wait gives up then.
    stopping: threading.Event = field(default_factory=threading.Event)
    #: Keeps the answers of the last positions; None if nobody can look at them.
    recording: Recording | None = None
