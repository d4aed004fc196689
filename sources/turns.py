"""Whose question is worked on, who waits, and what ends a question before its time.

More questions at once than cores would only take the interpreter from each other, and from the
commits, so the others wait, first come, first served. The server looks at all of them ten times a
second: a place in the queue or at the database is free again when its client has gone (or has
waited as long as it wanted), and a question that takes too long is interrupted. DuckDB cannot be
interrupted while it plans; bounds.py keeps that short.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import duckdb
import pyarrow as pa

from protocols.errors import Unreachable, ViewsweepError, WrongUse
from sources.bounds import MB, Bounds

#: Rows that DuckDB hands over at a time.
_BATCH = 25_000
_FEW = 1000
#: An error amid the rows comes through Arrow, which keeps its text only.
_ERRORS: dict[str, type[duckdb.Error]] = {
    "Conversion Error": duckdb.ConversionException,
    "INTERRUPT Error": duckdb.InterruptException,
    "Invalid Input Error": duckdb.InvalidInputException,
    "Out of Memory Error": duckdb.OutOfMemoryException,
    "Out of Range Error": duckdb.OutOfRangeException,
}


class Turn:
    """One question at the database: what it may take, and how it is ended from outside."""

    def __init__(
        self, bounds: Bounds, gone: Callable[[], bool] = lambda: False, size: int = 0
    ) -> None:
        self._bounds = bounds
        #: The bytes of the question.
        self.size = size
        #: Whether nobody waits for the answer any more.
        self.gone = gone
        #: When it got its place.
        self.began = 0.0
        #: Released when one that had to wait has a place, or has been ended meanwhile.
        self.called: threading.Lock | None = None
        #: Guards these two.
        self._lock = threading.Lock()
        self._cursor: duckdb.DuckDBPyConnection | None = None
        self._ended: ViewsweepError | None = None

    def end(self, reason: ViewsweepError) -> None:
        """Interrupts it; may be repeated, for what has started since the last time."""
        with self._lock:
            self._ended = self._ended or reason
            if self._cursor is not None:
                self._cursor.interrupt()

    def check(self) -> None:
        """Raises why it was ended, if it was."""
        if self._ended is not None:
            raise self._ended

    def table(
        self,
        cursor: duckdb.DuckDBPyConnection,
        sql: str,
        parameters: list[Any],
        most_rows: int | None = None,
    ) -> pa.Table:
        """What the SELECT yields, unless it takes too long or too much.

        If it is known to yield at most a few rows, these are not read in pieces: 0.07 ms less.
        """
        try:
            with self._at(cursor):
                found = cursor.sql(sql, params=parameters)
                if most_rows is not None and most_rows <= _FEW:
                    return found.to_arrow_table()
                return self._collected(found.to_arrow_reader(_BATCH))
        except duckdb.InterruptException:
            self.check()
            raise
        except duckdb.OutOfMemoryException:
            raise WrongUse(
                f"the question needs more memory than there is for all questions together"
                f" ({self._bounds.memory // MB} MB); ask for less at a time, or raise --memory"
            ) from None

    @contextmanager
    def _at(self, cursor: duckdb.DuckDBPyConnection) -> Iterator[None]:
        with self._lock:
            self._cursor = cursor
        try:
            self.check()
            yield
        except (OSError, pa.ArrowException) as error:
            kind = _ERRORS.get(str(error).partition(":")[0], duckdb.Error)
            raise kind(str(error)) from None
        finally:
            with self._lock:
                self._cursor = None

    def _collected(self, reader: pa.RecordBatchReader) -> pa.Table:
        batches, size = [], 0
        for batch in reader:
            size += batch.nbytes
            if size > self._bounds.answer:
                raise WrongUse(
                    f"the answer has more than {self._bounds.answer // MB} MB; ask for it in pages,"
                    " for fewer keys or columns, or raise --largest-answer"
                )
            batches.append(batch)
        return pa.Table.from_batches(batches, reader.schema)


class Turns:
    """The places at one database, and the queue before them."""

    def __init__(self, at_once: int, bounds: Bounds) -> None:
        self._at_once = at_once
        self._bounds = bounds
        #: The bytes of all questions that are here.
        self._most_held = 2 * (bounds.question + bounds.commit)
        #: Guards the two below.
        self._lock = threading.Lock()
        self._running: set[Turn] = set()
        self._waiting: deque[Turn] = deque()

    @contextmanager
    def turn(self, gone: Callable[[], bool], size: int) -> Iterator[Turn]:
        """A place for a question of so many bytes, as soon as there is one."""
        turn = Turn(self._bounds, gone, size)
        self._enter(turn)
        try:
            turn.check()
            yield turn
        finally:
            self._leave(turn)

    def _enter(self, turn: Turn) -> None:
        with self._lock:
            if len(self._running) < self._at_once:
                self._start(turn)
                return
            held = sum(each.size for each in (*self._running, *self._waiting))
            if len(self._waiting) >= self._bounds.waiting or held + turn.size > self._most_held:
                raise Unreachable(
                    f"busy: {len(self._running)} are being answered and {len(self._waiting)} wait,"
                    f" with {held // MB} MB of questions; ask again later, or raise --waiting there"
                )
            turn.called = threading.Lock()
            turn.called.acquire()
            self._waiting.append(turn)
        turn.called.acquire()

    def _start(self, turn: Turn) -> None:
        turn.began = time.monotonic()
        self._running.add(turn)
        if turn.called is not None:
            turn.called.release()

    def _leave(self, turn: Turn) -> None:
        with self._lock:
            self._running.discard(turn)
            while self._waiting and len(self._running) < self._at_once:
                self._start(self._waiting.popleft())

    def look(self) -> None:
        """Ends what has to be ended; to be called several times a second."""
        with self._lock:
            self._dismiss()
            self._interrupt()

    def _dismiss(self) -> None:
        """Lets those go who wait for nobody."""
        for turn in [each for each in self._waiting if each.gone()]:
            self._waiting.remove(turn)
            turn.end(Unreachable("nobody waits for the answer any more"))
            if turn.called is not None:
                turn.called.release()

    def _interrupt(self) -> None:
        late = time.monotonic() - self._bounds.seconds
        for turn in self._running:
            if turn.gone():
                turn.end(Unreachable("nobody waits for the answer any more"))
            elif turn.began < late:
                turn.end(
                    WrongUse(
                        f"the question took more than {self._bounds.seconds:g} s; ask for less at a"
                        " time, or raise --seconds"
                    )
                )
