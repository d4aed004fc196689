"""Decides which questions run and which wait, and ends questions early.

More questions at once than cores would only compete for the interpreter with each other and with
commits, so the others wait, first come, first served. The server checks all of them ten times a
second: a place in the queue or at the database becomes free when its client is gone (or its timeout
has passed), and a question that takes too long is interrupted. DuckDB cannot be interrupted while
it plans; bounds.py keeps that short.
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
from sources.wire.bounds import MB, Bounds

#: Rows that DuckDB returns at a time.
_BATCH = 25_000
_FEW = 1000
#: An error while rows are read comes through Arrow, which keeps only its text.
_ERRORS: dict[str, type[duckdb.Error]] = {
    "Conversion Error": duckdb.ConversionException,
    "INTERRUPT Error": duckdb.InterruptException,
    "Invalid Input Error": duckdb.InvalidInputException,
    "Out of Memory Error": duckdb.OutOfMemoryException,
    "Out of Range Error": duckdb.OutOfRangeException,
}


class Turn:
    """One question at the database: its bounds, and a way to end it from outside."""

    def __init__(
        self, bounds: Bounds, gone: Callable[[], bool] = lambda: False, size: int = 0
    ) -> None:
        self._bounds = bounds
        #: The bytes of the question.
        self.size = size
        #: Whether its client has stopped waiting.
        self.gone = gone
        #: The time when it got its place.
        self.began = 0.0
        #: Released when a waiting question gets a place or is ended.
        self.called: threading.Lock | None = None
        #: Guards the two fields below.
        self._lock = threading.Lock()
        self._cursor: duckdb.DuckDBPyConnection | None = None
        self._ended: ViewsweepError | None = None

    def end(self, reason: ViewsweepError) -> None:
        """Interrupts the question; may be called again for work that has started since."""
        with self._lock:
            self._ended = self._ended or reason
            if self._cursor is not None:
                self._cursor.interrupt()

    def check(self) -> None:
        """Raises the reason if the question was ended."""
        if self._ended is not None:
            raise self._ended

    def table(
        self,
        cursor: duckdb.DuckDBPyConnection,
        sql: str,
        parameters: list[Any],
        most_rows: int | None = None,
    ) -> pa.Table:
        """The rows of the SELECT, unless it takes too much time or memory.

        If it is known to yield few rows, they are not read in pieces, which saves 0.07 ms.
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
                f"the question needs more memory than all questions together may use"
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
    """The places at one database, and the queue for them."""

    def __init__(self, at_once: int, bounds: Bounds) -> None:
        self._at_once = at_once
        self._bounds = bounds
        #: The bound on the bytes of all running and waiting questions.
        self._most_held = 2 * (bounds.question + bounds.commit)
        #: Guards the two below.
        self._lock = threading.Lock()
        self._running: set[Turn] = set()
        self._waiting: deque[Turn] = deque()

    @contextmanager
    def turn(self, gone: Callable[[], bool], size: int) -> Iterator[Turn]:
        """Waits for a place for a question of this size, and holds it."""
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
                    f"busy: {len(self._running)} questions are being answered and"
                    f" {len(self._waiting)} are waiting, {held // MB} MB in all; ask again"
                    " later, or raise --waiting there"
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
        """Ends abandoned and slow questions; called several times a second."""
        with self._lock:
            self._dismiss()
            self._interrupt()

    def _dismiss(self) -> None:
        """Ends waiting questions whose clients are gone."""
        for turn in [each for each in self._waiting if each.gone()]:
            self._waiting.remove(turn)
            turn.end(Unreachable("the client stopped waiting for the answer"))
            if turn.called is not None:
                turn.called.release()

    def _interrupt(self) -> None:
        late = time.monotonic() - self._bounds.seconds
        for turn in self._running:
            if turn.gone():
                turn.end(Unreachable("the client stopped waiting for the answer"))
            elif turn.began < late:
                turn.end(
                    WrongUse(
                        f"the question took more than {self._bounds.seconds:g} s; ask for less at a"
                        " time, or raise --seconds"
                    )
                )
