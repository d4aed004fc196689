"""Query servers that lie, each in one way, to a job that keeps a view over them.

Everything is real but Spark (see tests/harness/world.py): broker, databases, publishers, Delta.
Between the job and a query server is a `Liar`, a Flight server that asks the real one and hands on
something else. The job survives a lie if it ends with a message that names it and has installed
nothing. At the end an honest job goes on, and the view has to be right at every position.
"""

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import polars as pl
import pyarrow as pa
from pyarrow import flight

from bench.attacks import AttackOutcome, AttackSettings
from infra.localbroker import LocalBroker
from protocols.algebra.delta import COUNT
from protocols.errors import ViewsweepError
from sources.wire.inclusions import INCLUSION
from sources.wire.messages import VERSION
from tests.cases.stories import MIXED, ONE_SOURCE, Story
from tests.harness.world import World, start

#: Small enough for attacks to reach.
_MEGABYTES, _PATIENCE = 4, 2.0
_MANY = 10_000_000

#: Maps the honest answer to the one sent in its place: an Arrow table or a stream.
Telling = Callable[[pa.Table], Any]


@dataclass(frozen=True)
class Lie:
    """One way to lie about one relation."""

    name: str
    relation: str
    tell: Telling
    #: A part of the message that the job has to end with.
    said: str
    #: Whether it is a lie about the pages of a first state.
    pages: bool = False
    #: Whether the job has to lose patience.
    waits: bool = False


class Liar(flight.FlightServerBase):  # type: ignore[misc]
    """A query server between a job and a real one."""

    def __init__(self, address: str) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self._honest = flight.FlightClient(address)
        self.address = f"grpc://127.0.0.1:{self.port}"
        #: The lie to tell; None hands answers on as they are.
        self.lie: Lie | None = None
        #: The number of lies told.
        self.lies = 0

    def do_action(self, _context: Any, action: Any) -> list[bytes]:
        results = self._honest.do_action((action.type, action.body.to_pybytes()))
        return [result.body.to_pybytes() for result in results]

    def do_get(self, _context: Any, ticket: Any) -> Any:
        rows = self._honest.do_get(flight.Ticket(ticket.ticket)).read_all()
        header = orjson.loads(ticket.ticket.partition(b"\n")[0])
        lie, about = self.lie, header.get("relation", "joint")
        # A first state begins with questions for no rows, which only confirm the versions.
        if lie is not None and about == lie.relation and (rows.num_rows or not lie.pages):
            self.lies += 1
            rows = lie.tell(rows)
        return flight.RecordBatchStream(rows) if isinstance(rows, pa.Table) else rows

    def close(self) -> None:
        self.shutdown()
        self._honest.close()


# --------------------------------------------------------------------------------------------- lies


def _frames(change: Callable[[pl.DataFrame], pl.DataFrame]) -> Telling:
    """Tells other rows, with the version of the honest ones."""

    def tell(rows: pa.Table) -> pa.Table:
        changed = change(pl.DataFrame(pl.from_arrow(rows))).to_arrow()
        return changed.replace_schema_metadata(rows.schema.metadata)

    return tell


def _more(**values: Any) -> Telling:
    """Adds a row: the first one with other values, or one of NULLs if there is none."""

    def change(rows: pl.DataFrame) -> pl.DataFrame:
        row = rows.row(0, named=True) if rows.height else dict.fromkeys(rows.columns)
        more = pl.DataFrame([{**row, **values}], schema=rows.schema)
        return pl.concat([rows, more])

    return _frames(change)


def _counted(count: int | None) -> Telling:
    return _frames(lambda rows: rows.with_columns(pl.lit(count, pl.Int64).alias(COUNT)))


def _null(name: str) -> Telling:
    return _frames(lambda rows: rows.with_columns(pl.lit(None, rows.schema[name]).alias(name)))


def _many(rows: pa.Table, number: int = _MANY) -> pa.Table:
    """Repeats the first row so many times."""
    return rows.take(pa.array(np.zeros(number, np.int64)))


def _batches(rows: pa.Table, empty: bool, pause: float = 0.0) -> Any:
    """An endless stream of the honest rows, or of empty batches."""

    def stream() -> Iterator[pa.RecordBatch]:
        [batch, *_] = rows.combine_chunks().to_batches() or [_no_rows(rows.schema)]
        while True:
            time.sleep(pause)
            yield batch.slice(0, 0) if empty else batch

    return flight.GeneratorStream(rows.schema, stream())


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema)


def _cut(rows: pa.Table) -> Any:
    def stream() -> Iterator[pa.RecordBatch]:
        yield from rows.slice(0, 1).to_batches()
        raise flight.FlightInternalError("disk on fire")

    return flight.GeneratorStream(rows.schema, stream())


def _packed(rows: pa.Table) -> Any:
    """A few bytes that unpack to many."""
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    return flight.RecordBatchStream(_many(rows).combine_chunks(), options=options)


def _version(text: bytes | None) -> Telling:
    def tell(rows: pa.Table) -> pa.Table:
        return rows.replace_schema_metadata(None if text is None else {VERSION: text})

    return tell


def _contains(text: bytes) -> Telling:
    """Tells another inclusion beside the honest version, which replaces VERSION in the text."""

    def tell(rows: pa.Table) -> pa.Table:
        metadata = rows.schema.metadata
        said = text.replace(b"VERSION", metadata[VERSION])
        return rows.replace_schema_metadata({**metadata, INCLUSION: said})

    return tell


def _with_garbage(rows: pa.Table) -> pa.Table:
    """Metadata that are not text beside the version, and a lie that is found later."""
    fields = [field.with_metadata({b"\xfe": b"\xff"}) for field in rows.schema]
    rows = _counted(-1)(rows)
    fields.append(rows.schema.field(COUNT))
    return rows.cast(pa.schema(fields, {**rows.schema.metadata, b"\xff": b"\xfe\0"}))


def _retyped(name: str, type_: pa.DataType) -> Telling:
    def tell(rows: pa.Table) -> pa.Table:
        place = rows.schema.get_field_index(name)
        return rows.set_column(place, name, rows.column(name).cast(type_))

    return tell


def _renamed(change: Callable[[list[str]], list[str]]) -> Telling:
    def tell(rows: pa.Table) -> pa.Table:
        # Renaming loses the version, and that would be another lie.
        renamed = rows.rename_columns(change(rows.column_names))
        return renamed.replace_schema_metadata(rows.schema.metadata)

    return tell


def _run_ends(rows: pa.Table) -> pa.Table:
    place = rows.schema.get_field_index("y")
    column = rows.column("y").combine_chunks()
    ends = pa.array(range(1, len(column) + 1), pa.int32())
    return rows.set_column(place, "y", pa.RunEndEncodedArray.from_arrays(ends, column))


def _no_text(rows: pa.Table) -> pa.Table:
    """Texts that are not UTF-8."""
    place, number = rows.schema.get_field_index("z"), rows.num_rows
    bytes_ = pa.array([b"\xff\xfe"] * number, pa.binary())
    text = pa.StringArray.from_buffers(number, bytes_.buffers()[1], bytes_.buffers()[2])
    return rows.set_column(place, rows.schema.field("z"), text)


def _backwards(rows: pa.Table) -> pa.Table:
    return rows.take(pa.array(range(rows.num_rows - 1, -1, -1), pa.int64()))


def _always_the_first() -> Telling:
    told: list[pa.Table] = []

    def tell(rows: pa.Table) -> pa.Table:
        told.append(rows)
        return told[0]

    return tell


_SHORT = (
    Lie("a row that no key asks for", "s", _more(x=99), "matches no requested key: x = 99"),
    Lie("a row that fails the condition", "s", _more(y=7), "fails the condition"),
    Lie("a row of a key twice", "u", _more(), "or more; at most"),
    Lie("_count -1 in a bag", "s", _counted(-1), "has the count -1"),
    Lie("_count 2^62 with a key", "u", _counted(2**62), "has the count 4611686018427387904"),
    Lie("NULL in a key", "u", _null("y"), "NULL"),
    Lie("int32 in place of int64", "s", _retyped("x", pa.int32()), "column x as int32"),
    Lie("version nan", "s", _version(b"nan"), "has the version b'nan'"),
    Lie("a page backwards", "r", _backwards, "not in key order", pages=True),
)
_MORE = (
    Lie("_count 0 in a bag", "s", _counted(0), "has the count 0"),
    Lie("_count NULL in a bag", "s", _counted(None), "a row without a count"),
    Lie("_count 2^62 in a bag", "s", _counted(2**62), "larger than 4 MB"),
    Lie("_count 2 with a key", "u", _counted(2), "has the count 2"),
    Lie("a NULL that no key asks for", "s", _more(x=None), "matches no requested key: x = NULL"),
    Lie(
        "10^7 rows where one can be",
        "u",
        lambda r: _batches(_many(r, 10_000), False),
        "are possible",
    ),
    Lie("10^7 rows of a bag, in pieces", "s", lambda r: _batches(_many(r, 10_000), False), "4 MB"),
    Lie(
        "10^7 rows of a bag in one piece",
        "s",
        lambda r: _many(r).combine_chunks(),
        "4 MB",
        waits=True,
    ),
    Lie("few bytes that unpack to 10^7 rows", "s", _packed, "4 MB"),
    Lie("no end of empty pieces", "s", lambda r: _batches(r, True), "Tried for", waits=True),
    Lie(
        "a row each 0.1 s",
        "s",
        lambda r: _batches(r.slice(0, 1), False, 0.1),
        "Tried for",
        waits=True,
    ),
    Lie("an end in the middle", "s", _cut, "disk on fire", waits=True),
    Lie("a column too few", "s", lambda rows: rows.drop_columns(["y"]), "columns x instead of"),
    Lie("a column too many", "s", lambda r: r.append_column("z", r.column("y")), "x, y, z instead"),
    Lie(
        "a column twice",
        "s",
        lambda r: r.append_column("y", r.column("y")),
        "two columns with the same name",
    ),
    Lie("columns by other names", "s", _renamed(lambda names: [names[1], "X"]), "instead"),
    Lie("no columns at all", "s", lambda rows: rows.select([]), "has the columns  instead"),
    Lie("text for numbers", "s", _retyped("y", pa.string()), "column y as string"),
    Lie(
        "a dictionary",
        "u",
        lambda r: r.set_column(
            r.schema.get_field_index("z"), "z", r.column("z").dictionary_encode()
        ),
        "column z as dictionary",
    ),
    Lie("run ends", "s", _run_ends, "column y as run_end_encoded"),
    Lie("text that is not UTF-8", "u", _no_text, "has values that its types"),
    Lie("no version", "s", _version(None), "has the version b''"),
    Lie("metadata that are no text", "s", _with_garbage, "has the count -1"),
    Lie("an inclusion that is no JSON", "s", _contains(b"{"), "transactions that is not JSON"),
    Lie(
        "an inclusion of another version",
        "s",
        _contains(b'{"window": [0, 0]}'),
        "is of version 0",
    ),
    Lie(
        "exceptions on the wrong side",
        "s",
        _contains(b'{"upto": VERSION, "besides": [0], "without": []}'),
        "exceptions on the wrong side",
    ),
    Lie(
        "a window over a relation without key",
        "s",
        _contains(b'{"window": [0, VERSION]}'),
        "was read row by row, and the relation has no key",
    ),
    Lie(
        "an update that is always lacking",
        "s",
        _contains(b'{"upto": VERSION, "besides": [], "without": [1]}'),
        "without an update that it has published",
        waits=True,
    ),
    Lie("version -1", "s", _version(b"-1"), "has the version b'-1'"),
    Lie("version 2^63", "s", _version(str(2**63).encode()), "has the version b'92233"),
    Lie("version of 5,000 digits", "s", _version(b"9" * 5000), "has the version b'999"),
    Lie(
        "a column whose name is no text",
        "s",
        lambda r: pa.table(
            [r.column("x"), r.column("y")],
            pa.schema([(b"\xff", pa.int64()), ("y", pa.int64())], r.schema.metadata),
        ),
        "name is not valid text",
    ),
    Lie("bytes that are no text as version", "s", _version(b"\xff\xfe\0"), "has the version b"),
    Lie(
        "a version that never comes",
        "s",
        _version(b"1000000"),
        "version 1000000 of source b",
        waits=True,
    ),
    Lie("a version before the view's", "s", _version(b"0"), "answered at version 0"),
    Lie("NULL in a page's key", "r", _null("id"), "NULL in key column id", pages=True),
    Lie(
        "a row of a page twice",
        "r",
        _frames(lambda r: r[:-1].vstack(r[-2:-1])),
        "with the same key",
        pages=True,
    ),
    Lie("a page of too many rows", "r", lambda r: _many(r, 9), "are possible", pages=True),
    Lie(
        "the first page again and again", "r", _always_the_first(), "is the page after", pages=True
    ),
)
#: Lies about the sums of joins that protocols of the ECA family ask for.
_JOINT = (
    Lie("a joint row with _count 0", "joint", _counted(0), "has a row with the count 0"),
    Lie("a joint row without _count", "joint", lambda r: r.drop_columns([COUNT]), "instead of"),
    Lie("a joint row that no update gave", "joint", _more(r_id=99), "no row given in the question"),
    Lie("a joint row that is not in the view", "joint", _more(t="q"), "fails the condition"),
)
LIES = (*_SHORT, *_MORE, *_JOINT)


# ------------------------------------------------------------------------------------------ attacks


def outcomes(settings: AttackSettings) -> Iterator[AttackOutcome]:
    """The outcome of each lie."""
    yield from attacked(settings, _SHORT if settings.short else LIES)


def attacked(settings: AttackSettings, lies: Sequence[Lie]) -> Iterator[AttackOutcome]:
    """The outcomes of these lies, and the view after an honest job."""
    joint = [lie for lie in lies if lie in _JOINT]
    others = [lie for lie in lies if lie not in _JOINT]
    with LocalBroker() as broker:
        if others:
            world = _world(settings, broker, "batched-sweep", _STORY)
            with _Attacked(world, "batched-sweep", _ROWS, _NEWS) as attacked_:
                yield from attacked_.outcomes(others)
        if joint:
            world = _world(settings, broker, "eca", ONE_SOURCE)
            with _Attacked(world, "eca", _ONE_ROWS, _ONE_NEWS) as attacked_:
                yield from attacked_.outcomes(joint)


def _world(settings: AttackSettings, broker: LocalBroker, name: str, story: Story) -> World:
    directory = settings.directory / name
    directory.mkdir()
    return World(directory, broker.bootstrap, name, story)


#: The rows of the sources before the first state, and the changes that they commit after it.
_ROWS: dict[str, list[Any]] = {
    "a": [("r", (n, n % 3 + 1, "p"), 1) for n in range(2, 14)],
    "b": [("s", (x, y), 2) for x in (1, 2, 3) for y in (1, 2)],
    "c": [("u", (y, "k"), 1) for y in (2, 3)],
}
_NEWS: dict[str, list[Any]] = {
    "a": [("r", (20, 1, "p"), 1)],
    "b": [("s", (2, 3), 1)],
    "c": [("u", (4, "m"), 1)],
}
_STORY = replace(MIXED, sql=f"{MIXED.sql} WHERE s.y < 7")
#: The same for a source that holds all three relations, which have keys.
_ONE_ROWS: dict[str, list[Any]] = {
    "a": [*_ROWS["a"], *(("s", (n, n % 3 + 1, n % 2 + 1), 1) for n in range(1, 7)), *_ROWS["c"]]
}
_ONE_NEWS: dict[str, list[Any]] = {"a": [*_NEWS["a"], *_NEWS["c"]]}


class _Attacked:
    """A world whose job asks liars."""

    def __init__(
        self, world: World, protocol: str, rows: dict[str, list[Any]], news: dict[str, list[Any]]
    ) -> None:
        self._world = world
        self._protocol = protocol
        self._rows, self._news = rows, news
        self._stack = ExitStack()
        self._liars: list[Liar] = []

    def __enter__(self) -> "_Attacked":
        self._stack.enter_context(self._world)
        for source in self._world.sources.values():
            liar = Liar(source.address)
            self._stack.callback(liar.close)
            self._liars.append(liar)
            source.address = liar.address
        self._world.publish()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def outcomes(self, lies: Sequence[Lie]) -> Iterator[AttackOutcome]:
        """Tells the lies about the first state first, since there is only one."""
        self._commit(self._rows)
        for lie in lies:
            if lie.pages:
                yield self._outcome(lie)
        self._ended(None)
        self._commit(self._news)
        for lie in lies:
            if not lie.pages:
                yield self._outcome(lie)
        yield self._afterwards()

    def _commit(self, rows: dict[str, list[Any]]) -> None:
        for name, changes in rows.items():
            self._world.sources[name].commit(*changes)
        self._world.wait_until_published()

    def _outcome(self, lie: Lie) -> AttackOutcome:
        before = self._installed()
        ended = self._ended(lie)
        if self._installed() != before:
            self._make_anew(lie)
            return AttackOutcome(lie.name, "was installed", good=False)
        if not any(liar.lies for liar in self._liars):
            return AttackOutcome(lie.name, "was not told", good=False)
        return AttackOutcome(lie.name, _briefly(ended), good=lie.said in ended)

    def _ended(self, lie: Lie | None) -> str:
        """Starts a job, lets it take all records, and returns the message that it ends with."""
        for liar in self._liars:
            liar.lie, liar.lies = lie, 0
        patience = _PATIENCE if lie is not None and lie.waits else 60.0
        limits: dict[str, Any] = {
            "answer_megabytes": _MEGABYTES,
            "patience_seconds": patience,
            "page_rows": 4,
        }
        try:
            with self._world.job(protocol=self._protocol, **limits) as job:
                start(job)
                job.take(self._world.records_after(job))
        except ViewsweepError as error:
            return str(error)
        except Exception as error:
            return f"a traceback: {error!r}"
        return "nothing was said"

    def _tables(self) -> Path:
        return self._world.directory / "tables" / "v"

    def _installed(self) -> int:
        """The number of commits of the table `changes`."""
        return len(list(self._tables().glob("changes/_delta_log/*.json")))

    def _make_anew(self, lie: Lie) -> None:
        """Removes the view. For a lie about pages that is all, else it is created with news."""
        shutil.rmtree(self._tables(), ignore_errors=True)
        if lie.pages:
            return
        self._ended(None)
        for source in self._world.sources.values():
            source.commit(*((name, row, -count) for name, row, count in self._news[source.name]))
        self._commit(self._news)

    def _afterwards(self) -> AttackOutcome:
        """Lets an honest job bring the view to the end, and compares every state with DuckDB."""
        attack = f"an honest job after them ({self._protocol})"
        if (said := self._ended(None)) != "nothing was said":
            return AttackOutcome(attack, said, good=False)
        with self._world.job(protocol=self._protocol) as job:
            start(job)
            try:
                positions = self._world.assert_right(job.tables)
            except AssertionError as wrong:
                return AttackOutcome(attack, f"the view is wrong: {wrong}", good=False)
        return AttackOutcome(attack, f"the view is right at {positions + 1} positions", good=True)


def _briefly(message: str) -> str:
    """The message without the address, which differs, and the way out, which does not."""
    _, at, rest = message.partition(" at grpc://")
    said = rest.partition(": ")[2] if at else message
    return said.partition(". Nothing of it")[0][:120]
