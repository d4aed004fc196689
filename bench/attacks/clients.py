"""Bad clients of a query server: a process that serves a source, attacked from outside.

After each attack an honest question has to get the right answer, and the process must not have used
more memory than `_MOST_MEMORY`.
"""

import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import orjson
import polars as pl
import pyarrow as pa
from pyarrow import flight

from bench.attacks import AttackOutcome, AttackSettings
from protocols.algebra.delta import COUNT
from protocols.algebra.expressions import And, Column, Comparison, Condition, IsNull, Literal
from protocols.algebra.expressions_wire import to_json
from protocols.algebra.frame import Frame
from protocols.algebra.types import column_type
from protocols.errors import Unreachable, ViewsweepError
from protocols.exchange.questions import Joint, Query
from protocols.views.catalog import catalog_from_json
from protocols.views.view import Atom, Link, OutputColumn, View
from sources.simulated.database import SourceDatabase
from sources.wire.bounds import MB
from sources.wire.client import SourceClient
from sources.wire.messages import COMMIT, encode_query

#: MB that the server may use during any attack: DuckDB's 512, 250 for the interpreter, and six
#: copies that gRPC makes of complete input: at most the 128 MB of a question and a commit, and the
#: input between two looks at the connections, some 150 MB.
_MOST_MEMORY = 2500
#: Options of the served process.
PROTECTED = (
    "--memory",
    "512",
    "--seconds",
    "3",
    "--largest-answer",
    "64",
    "--largest-commit",
    "64",
)
#: … under which it serves every request, for the control.
UNPROTECTED = (
    *("--memory", "6000", "--seconds", "1000", "--largest-answer", "6000"),
    *("--largest-question", "3000", "--largest-commit", "3000"),
)
_ROWS = 100_000
_BIGINT = column_type("BIGINT")
_CATALOG = catalog_from_json(
    {
        "a": {
            "relations": {
                "r": {
                    "columns": {"id": "BIGINT", "same": "BIGINT", "x": "VARCHAR"},
                    "key": ["id"],
                }
            }
        }
    }
)
[_R] = _CATALOG.relations


@dataclass(frozen=True)
class _Server:
    address: str
    pid: int

    def memory(self) -> int:
        """Its peak memory since `forget`, in MB."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        [line] = [line for line in status.splitlines() if line.startswith("VmHWM")]
        return int(line.split()[1]) // 1024

    def forget(self) -> None:
        """Resets its peak memory."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")


@dataclass(frozen=True)
class _Attack:
    name: str
    cases: int
    #: Returns the result in words; raises nothing.
    run: Callable[[_Server], str]


def outcomes(
    settings: AttackSettings, options: Sequence[str] = PROTECTED, only: str = ""
) -> Iterator[AttackOutcome]:
    """Tries each attack on one server, which has to survive all of them."""
    with _served(settings.directory, options) as server:
        for attack in _attacks(settings):
            if only in attack.name:
                yield _outcome(server, attack)


def _outcome(server: _Server, attack: _Attack) -> AttackOutcome:
    try:
        server.forget()
        result = attack.run(server)
        right = _honest(server)
        memory = server.memory()
    except OSError as error:
        return AttackOutcome(attack.name, f"the server is gone: {error}", False, attack.cases)
    good = right and memory <= _MOST_MEMORY
    honest = "answered" if right else "NOT answered"
    told = f"{result}; {memory} MB of at most {_MOST_MEMORY}; an honest question is {honest}"
    return AttackOutcome(attack.name, told, good, attack.cases)


@contextmanager
def _served(directory: Path, options: Sequence[str]) -> Iterator[_Server]:
    """A source served as users do it, but without a broker, which answers do not need."""
    columns = {"id": range(_ROWS), "same": [1] * _ROWS, "x": ["x" * 100] * _ROWS}
    rows = pl.DataFrame(columns, schema={name: t.dtype for name, t in _R.columns})
    database, address = directory / "a.db", directory / "address"
    SourceDatabase.create(database, "a", _CATALOG, {"r": rows}).close()
    command = [sys.executable, "-m", "cli.main", "sources", "serve", str(database)]
    with (directory / "served.log").open("w") as log:
        process = subprocess.Popen(
            [*command, "--broker", "127.0.0.1:9", "--address-file", str(address), *options],
            stdout=log,
            stderr=log,
            cwd=Path(__file__).parents[2],
        )
    try:
        while not address.exists() and process.poll() is None:
            time.sleep(0.05)
        yield _Server(address.read_text().strip(), process.pid)
    finally:
        process.kill()
        process.wait()


def _honest(server: _Server) -> bool:
    """Whether a question gets its answer; asks again if the server is busy."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            with SourceClient(server.address, source="a") as client:
                answer = client.ask(Query(_R, ("id",), None, (_keys([7, -1]),)), timeout=10)
                return answer.rows.data.rows() == [(7, 1)]
        except Unreachable:
            time.sleep(0.2)
        except ViewsweepError:
            return False
    return False


# ----------------------------------------------------------------------------------- the attacks


def _attacks(settings: AttackSettings) -> Iterator[_Attack]:
    few = settings.short
    yield _Attack("50,000 conditions", 1, lambda s: _asked(s, Query(_R, ("id",), _and(50_000))))
    yield _Attack("6,000 conditions", 1, lambda s: _asked(s, Query(_R, ("id",), _and(6000))))
    yield _Attack("400 NOTs in each other", 1, lambda s: _sent(s, _nots(400)))
    yield _Attack("300 key sets", 1, lambda s: _asked(s, _sets(300)))
    yield _Attack("64 key sets", 1, lambda s: _asked(s, _sets(64)))
    yield _Attack("joint questions without links", 2, lambda s: _together(s, _joint(), 2))
    yield _Attack("joint questions of 10^15 rows", 6, lambda s: _together(s, _joint("same"), 6))
    megabytes = 2000
    yield _Attack(f"keys that unpack to {megabytes} MB", 1, lambda s: _sent(s, _packed(megabytes)))
    large = 200 if few else 1000
    yield _Attack(f"a question of {large} MB", 1, lambda s: _sent(s, bytes(large << 20)))
    yield _Attack("commits of 2^60 and 10^9 rows, of 100 and 200 MB", 4, _commits)
    garbage = 200 if few else 1700
    yield _Attack("garbage tickets", garbage, lambda s: _garbage(s, garbage, settings.seed))
    unread = 10 if few else 100
    yield _Attack("answers that nobody reads", unread, lambda s: _unread(s, unread))
    many = 200 if few else 3000
    yield _Attack("connections that vanish", many, lambda s: _vanishing(s, many))
    idle = 100 if few else 2000
    yield _Attack("idle connections, half of them amid a frame", idle, lambda s: _idle(s, idle))


def _keys(ids: Sequence[int]) -> Frame:
    columns = {"id": list(ids), COUNT: [1] * len(ids)}
    return Frame(pl.DataFrame(columns, schema={"id": pl.Int64(), COUNT: pl.Int64()}))


def _and(number: int) -> Condition:
    parts = (Comparison(Column("id"), "<>", Literal(n, _BIGINT)) for n in range(number))
    return And(tuple(parts))


def _nots(number: int) -> bytes:
    """The ticket of a condition that our own client could not encode."""
    good = encode_query(Query(_R, ("id",), IsNull(Column("id"))))
    condition = orjson.dumps(to_json(IsNull(Column("id"))))
    return good.replace(condition, b'["not",' * number + condition + b"]" * number)


def _sets(number: int) -> Query[Frame]:
    return Query(_R, ("id",), None, tuple(_keys([n]) for n in range(number)))


def _joint(link: str | None = None) -> Joint[Frame]:
    atoms = tuple(Atom(n, f"a{n}", _R, ("id", "same"), None) for n in range(3))
    links = tuple(Link((n, link), (n + 1, link)) for n in range(2)) if link else ()
    outputs = tuple(OutputColumn(f"o{n}", f"a{n}.id", _BIGINT) for n in range(3))
    return Joint(View("", "", atoms, links, (), outputs), ({},))


def _packed(megabytes: int) -> bytes:
    """A ticket with zeros, compressed to very few bytes."""
    rows = 8192
    zeros = pa.record_batch({"x": ["0" * (megabytes * MB // 10 // rows)] * rows})
    sink = pa.BufferOutputStream()
    packed = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, zeros.schema, options=packed) as writer:
        for _ in range(10):
            writer.write_batch(zeros)
    stream = bytes(sink.getvalue())
    header = orjson.loads(encode_query(Query(_R, ("id",), None, ())).partition(b"\n")[0])
    return orjson.dumps(header | {"keys": [len(stream)]}) + b"\n" + stream


def _asked(server: _Server, question: Query[Frame] | Joint[Frame], timeout: float = 20) -> str:
    try:
        with SourceClient(server.address, source="a") as client:
            return f"{client.ask(question, timeout=timeout).rows.data.height} rows"
    except (ViewsweepError, RecursionError) as error:
        return _short(error)


def _together(server: _Server, question: Joint[Frame], clients: int) -> str:
    """Asks with many clients at once, which all give up after a second."""
    with ThreadPoolExecutor(clients) as pool:
        ends = {*pool.map(lambda _: _asked(server, question, 1), range(clients))}
    return " and ".join(sorted(ends))


def _sent(server: _Server, ticket: bytes) -> str:
    try:
        with flight.connect(server.address) as raw:
            options = flight.FlightCallOptions(timeout=30)
            return f"{raw.do_get(flight.Ticket(ticket), options).read_all().num_rows} rows"
    except (flight.FlightError, pa.ArrowException, OSError) as error:
        return _short(error)


def _commits(server: _Server) -> str:
    def change(count: int, number: int) -> dict[str, object]:
        return {"relation": "r", "row": [-number, 1, "x"], "count": count}

    bombs = [
        orjson.dumps([{"changes": [change(2**60, 1)]}]),
        orjson.dumps([{"changes": [change(10**6, n)]} for n in range(1000)]),
        b"[" + b"1," * (50 << 20) + b"1]",
        b"[" + b"1," * (100 << 20) + b"1]",
    ]
    return "; ".join(dict.fromkeys(_commit(server, body) for body in bombs))


def _commit(server: _Server, body: bytes) -> str:
    try:
        with flight.connect(server.address) as raw:
            [result] = raw.do_action((COMMIT, body), flight.FlightCallOptions(timeout=30))
            return str(result.body.to_pybytes(), "utf-8")
    except (flight.FlightError, pa.ArrowException, OSError, ValueError) as error:
        return _short(error)


def _garbage(server: _Server, number: int, seed: int) -> str:
    """Sends a good ticket with bytes changed, removed and inserted."""
    dice = random.Random(seed)
    good = encode_query(replace(_sets(2), condition=_and(3)))
    refused = 0
    with flight.connect(server.address) as raw:
        for _ in range(number):
            ticket = bytearray(good)
            for _ in range(dice.randint(1, 4)):
                at = dice.randrange(len(ticket))
                ticket[at : at + dice.randint(0, 8)] = dice.randbytes(dice.randint(0, 8))
            try:
                options = flight.FlightCallOptions(timeout=10)
                raw.do_get(flight.Ticket(bytes(ticket)), options).read_all()
            except (flight.FlightError, pa.ArrowException):
                refused += 1
    return f"{refused} refused, {number - refused} still had a meaning"


def _unread(server: _Server, number: int) -> str:
    """Asks for answers of 10 MB each and reads no more of them than gRPC does by itself."""
    ticket = flight.Ticket(encode_query(Query(_R, ("id", "x"))))
    clients = [flight.connect(server.address) for _ in range(number)]
    options = flight.FlightCallOptions(timeout=60)
    readers = []
    for client in clients:
        try:
            readers.append(client.do_get(ticket, options))
        except flight.FlightError:
            continue
    right = _honest(server)
    for reader in readers:
        reader.cancel()
    for client in clients:
        client.close()
    return f"{len(readers)} are held, another is {'' if right else 'NOT '}answered beside them"


def _vanishing(server: _Server, number: int) -> str:
    """Opens connections and closes them after half a handshake."""
    for _ in range(number):
        with _connected(server) as connection:
            connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    return "nothing of them is left"


def _idle(server: _Server, number: int) -> str:
    connections = []
    for n in range(min(number, _open_files())):
        connections.append(_connected(server))
        if n % 2:
            # The header of a frame of 16 kB that never comes.
            connections[-1].sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\x40\0\0")
    right = _honest(server)
    for connection in connections:
        connection.close()
    told = "" if right else "NOT "
    return f"{len(connections)} are held, another is {told}answered beside them"


def _open_files() -> int:
    return os.sysconf("SC_OPEN_MAX") - 200


def _connected(server: _Server) -> socket.socket:
    host, _, port = server.address.removeprefix("grpc://").rpartition(":")
    return socket.create_connection((host, int(port)), timeout=10)


def _short(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 140 else text[:140] + " …"
