"""The upkeep of a view's tables: reading and committing stay as cheap as on the first day.

A Delta commit costs time in proportion to the number of files, and so does opening the table or
reading it; every commit adds a file or more. So a thread beside the job does four things:

    fold       changes and progress older than the history that is to be kept become one state
    compact    small files become larger ones, in tiers, so that a row is rewritten a few times only
    checkpoint the log is checkpointed, and the entries before the checkpoint are dropped
    vacuum     files that nobody reads any more are removed

Each step is a Delta commit or touches only files that no commit names, so a crash in the middle
leaves at most files that a later vacuum finds. No step changes the view at a position that is kept,
or the `txn` numbers. If a commit of the job gets in the way of a step, it is tried again next time.

`current` follows in the same thread: its MERGE must not meet a compaction, and no batch waits for
it. The larger the view, the more a MERGE costs, so both kinds of work pause in proportion to their
last cost. A MERGE keeps all cores busy, and a burst that meets one takes a quarter longer, so it
begins when the job has been quiet for a while.
"""

import datetime
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from deltalake import DeltaTable

from protocols.errors import ViewsweepError
from protocols.telling import Told
from warehouse import delta
from warehouse.definition import TABLES
from warehouse.tables import ViewTables

#: Files below half of a tier's size are compacted into files of that size once there are so many.
_TIERS = (4 << 20, 32 << 20, 256 << 20)
_MANY = 32
#: After each piece of work comes a pause so many times as long: it has a fifth of one core.
_PAUSE = 4
#: But no pause is longer than this: a step may have been slow only once, because the machine stood
#: still. A step that takes more than a quarter of this every time gets more than that fifth.
_LONGEST_PAUSE = 60.0
#: Work begins after so many quiet looks in a row (the job looks four times a second, and after each
#: commit), or after so many looks altogether.
_QUIET_LOOKS, _LOOKS = 4, 6


@dataclass(frozen=True)
class UpkeepSettings:
    """How often the upkeep runs, and how much it keeps."""

    #: `current` follows at most this often.
    current_every_seconds: float = 1.0
    #: The upkeep of the tables runs at most this often.
    upkeep_every_seconds: float = 10.0
    #: For how long a reader may go on reading the files that it found when it opened a table.
    readers_minutes: float = delta.KEEP_MINUTES
    #: How much history can be read position by position; None for all.
    history_hours: float | None = None


@dataclass
class Work:
    """One kind of work in the background, and the time it takes."""

    do: Callable[[], None]
    every: float
    #: Seconds that it took last time, and altogether.
    cost: float = 0.0
    total: float = 0.0
    #: When it may be done again.
    due: float = field(default_factory=time.monotonic)
    #: Whether it is to be done now.
    wanted: bool = False
    #: The looks since it was due, and the quiet ones in a row up to now.
    _looks: int = 0
    _quiet: int = 0

    def look(self, quiet: bool) -> None:
        """Wants it once it is due and the job has been quiet for a while, or has looked often."""
        if time.monotonic() < self.due:
            return
        self._looks += 1
        self._quiet = self._quiet + 1 if quiet else 0
        self.wanted = self._quiet >= _QUIET_LOOKS or self._looks >= _LOOKS

    def __call__(self) -> None:
        began = time.monotonic()
        try:
            self.do()
        finally:
            ended = time.monotonic()
            self.cost = ended - began
            self.total += self.cost
            self.due = ended + max(self.every, min(_PAUSE * self.cost, _LONGEST_PAUSE))
            self.wanted, self._looks, self._quiet = False, 0, 0


class Upkeep:
    """Runs the upkeep of one view's tables for the job that writes them."""

    def __init__(
        self, tables: ViewTables, settings: UpkeepSettings, report: Callable[[str], None]
    ) -> None:
        self._tables = tables
        self._settings = settings
        self._report = report
        tables.keep_for_readers(settings.readers_minutes)
        self.following = Work(tables.follow, settings.current_every_seconds)
        self.tidying = Work(self._tidy, settings.upkeep_every_seconds)
        #: Set by the thread: the job's handles do not know its last commits yet.
        self._tidied = threading.Event()
        self._failure: BaseException | None = None
        #: Set when some work is wanted, or at the end.
        self._wanted = threading.Event()
        self._closing = False
        #: Whether `current` is to follow once more at the end.
        self._finishing = False
        name = f"upkeep of {tables.view.name}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def look(self, quiet: bool) -> None:
        """Called by the job after its commits and now and then; cheap. `quiet`: no batch is there.

        Raises the error that stopped the thread, such as one of bringing `current` up to date.
        """
        if self._failure is not None:
            raise self._failure
        if self._tidied.is_set():
            self._tidied.clear()
            self._tables.catch_up()
        for work in (self.following, self.tidying):
            work.look(quiet)
        if self.following.wanted or self.tidying.wanted:
            self._wanted.set()

    def finish(self) -> None:
        """Ends after `current` has followed once more; raises the error that stopped the thread."""
        self._finishing = True
        self.close()
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Ends after the current step; nothing is lost by skipping the rest."""
        self._closing = True
        self._wanted.set()
        self._thread.join()

    def __enter__(self) -> "Upkeep":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        self.close()

    def _run(self) -> None:
        try:
            while True:
                self._wanted.wait()
                self._wanted.clear()
                if self._closing:
                    if self._finishing:
                        self.following()
                    return
                for work in (self.following, self.tidying):
                    if work.wanted and work.due <= time.monotonic():
                        work()
        except BaseException as failure:
            self._failure = failure

    def _tidy(self) -> None:
        try:
            tidy(self._tables, self._settings.history_hours)
        except ViewsweepError as error:
            name = self._tables.view.name
            self._report(Told(f"view {name}: upkeep is put off: {error}", view=name))
        finally:
            self._tidied.set()


def tidy(tables: ViewTables, history_hours: float | None = None) -> None:
    """Runs every step of the upkeep that is due."""
    if history_hours is not None:
        fold_older(tables, history_hours)
    for name in TABLES:
        table = tables.to_tidy(name)
        if table is not None:
            with delta.plain_upkeep(tables.directory / name):
                tend(table, tables.directory / name)


def fold_older(tables: ViewTables, hours: float) -> None:
    """Folds changes that were installed more than so many hours ago."""
    now = datetime.datetime.now(datetime.UTC).replace(tzinfo=None)
    tables.fold(tables.installed_before(now - datetime.timedelta(hours=hours)))


def tend(table: DeltaTable, directory: Path) -> None:
    """Compacts, vacuums and checkpoints one table; does nothing if little has happened."""
    compacted = compact(table)
    if compacted or table.version() - delta.last_checkpoint(directory) >= _MANY:
        # Also removes files that no commit names, left by a process that died. Files younger than
        # the table's retention stay: the youngest may belong to a commit under way.
        table.vacuum(dry_run=False, full=True, post_commithook_properties=delta.NO_HOOKS)
        table.create_checkpoint()
        table.cleanup_metadata()


def compact(table: DeltaTable) -> bool:
    """Compacts small files up to the largest target size for which there are many smaller ones.

    False if there is no such size.
    """
    sizes = [size for _, size in delta.files_of(table)]
    for target in reversed(_TIERS):
        if sum(size < target // 2 for size in sizes) >= _MANY:
            table.optimize.compact(
                target_size=target,
                max_concurrent_tasks=1,
                post_commithook_properties=delta.NO_HOOKS,
            )
            return True
    return False
