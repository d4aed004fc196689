"""`viewsweep sources …`: make, run, change and look at the simulated sources."""

import json
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import typer

from protocols.errors import WrongUse
from protocols.views.catalog import Catalog, Relation
from sources.bounds import MB, Bounds
from sources.client import CommitStopped, SourceClient
from sources.connections import allow_many_connections
from sources.database import SourceDatabase
from sources.loading import load_relation
from sources.process import Drive, Driver, SourceProcess, write_atomically
from sources.publisher import Publisher
from sources.queryserver import Endpoint, QueryServer, commit_until_refused, status_of
from sources.topics import checked_bootstrap
from sources.transaction import Transaction
from sources.wire import transaction_from_json
from sources.workloads import WORKLOADS, workload

app = typer.Typer(
    no_args_is_help=True,
    help="The databases that views are made over: make one, run it, change it, look at it.",
)

DatabaseArgument = Annotated[
    Path, typer.Argument(help="The DuckDB file of the source.", show_default=False)
]
DatabaseOption = Annotated[
    Path | None, typer.Option("--database", help="The file of a source that is not running.")
]
AddressOption = Annotated[
    str | None, typer.Option("--address", help="The address of a running source, grpc://host:port.")
]
TokenOption = Annotated[
    str | None,
    typer.Option(envvar="VIEWSWEEP_TOKEN", help="What clients have to send to be let in."),
]
TlsRootsOption = Annotated[
    Path | None, typer.Option("--tls-roots", help="Certificate (PEM) to trust, for grpc+tls://.")
]


IndexOption = Annotated[
    list[str] | None,
    typer.Option("--index", help="name=column,column; an index on each, for look-ups of few keys."),
]


@app.command()
def init(
    database: DatabaseArgument,
    source: Annotated[str, typer.Option("--source", help="The name of the source in views.")],
    workload_name: Annotated[
        str | None,
        typer.Option(
            "--workload", help=f"Fill it as this workload needs it: {', '.join(WORKLOADS)}."
        ),
    ] = None,
    scale: Annotated[
        int, typer.Option(min=1, help="Size of the workload; its relations have a few times more.")
    ] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of the workload; same seed, same rows.")] = 0,
    relation: Annotated[
        list[str] | None,
        typer.Option(help="name=FILE.parquet or name=FILE.csv; once per relation."),
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(help="name=column,column; without it the relation may hold equal rows."),
    ] = None,
    index: IndexOption = None,
    type_: Annotated[
        list[str] | None,
        typer.Option("--type", help="name.column=TYPE; else a file's types are guessed."),
    ] = None,
) -> None:
    """Make a new source, filled from a workload or from files. Its content is version 0.

    For example: viewsweep sources init orders.db --source orders --workload retail, or
    … init shop.db --source shop --relation item=items.csv --key item=id
    --type 'item.price=DECIMAL(10,2)'. The first line of a CSV file names the columns.
    """
    if (workload_name is None) == (not relation):
        raise WrongUse("give either --workload or at least one --relation")
    indexes = _columns(_pairs(index or [], "--index"))
    if workload_name is not None:
        chosen = workload(workload_name).source(source, scale, seed)
        origin = {"workload": workload_name, "scale": scale, "seed": seed}
        rows = chosen.initial_rows()
        made = SourceDatabase.create(database, source, chosen.catalog, rows, origin, indexes)
    else:
        files, keys = _pairs(relation or [], "--relation"), _pairs(key or [], "--key")
        loaded = _load(source, files, keys, _pairs(type_ or [], "--type"))
        catalog = Catalog(tuple(each for each, _ in loaded))
        rows = {each.name: frame for each, frame in loaded}
        made = SourceDatabase.create(database, source, catalog, rows, indexes=indexes)
    with made:
        sizes = ", ".join(f"{each.name} ({rows[each.name].height} rows)" for each in made.catalog)
        typer.echo(f"source {source} made at {database}: {sizes}")
        _show_relations(status_of(made))


@app.command()
def index(
    database: DatabaseArgument,
    on: Annotated[list[str], typer.Option("--on", help="name=column,column; an index on each.")],
) -> None:
    """Make indexes at a source that is not running, for look-ups of a few keys.

    For example: viewsweep sources index sales.db --on orders=customer_id,product_id
    """
    with SourceDatabase.open(database) as source:
        source.make_indexes(_columns(_pairs(on, "--on")))
        _show_relations(status_of(source))


@app.command()
def serve(
    database: DatabaseArgument,
    broker: Annotated[str, typer.Option(help="Kafka broker to publish to, HOST:PORT.")],
    topic: Annotated[
        str | None, typer.Option(help="Topic to publish to; the source's name if not given.")
    ] = None,
    host: Annotated[str, typer.Option(help="Where questions are answered.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 0,
    workload_name: Annotated[
        str | None, typer.Option("--workload", help="Keep committing what this workload does.")
    ] = None,
    rate: Annotated[float, typer.Option(min=0.001, help="Transactions per second.")] = 10.0,
    seed: Annotated[
        int | None, typer.Option(help="Seed of the workload; the one given to init by default.")
    ] = None,
    transactions: Annotated[
        int | None,
        typer.Option(min=0, help="End the workload after so many, restarts included."),
    ] = None,
    after: Annotated[
        Path | None, typer.Option(help="Let the workload begin when this file is there.")
    ] = None,
    token: TokenOption = None,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate (PEM) of this host.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its private key (PEM).")] = None,
    address_file: Annotated[
        Path | None, typer.Option(help="Write the address here once questions are answered.")
    ] = None,
    memory: Annotated[
        int, typer.Option(min=64, help="MB that the database may take, for all questions together.")
    ] = Bounds.memory // MB,
    seconds: Annotated[
        float, typer.Option(min=0.1, help="How long one question may take.")
    ] = Bounds.seconds,
    largest_question: Annotated[
        int, typer.Option(min=1, help="MB of one question, unpacked.")
    ] = Bounds.question // MB,
    largest_answer: Annotated[int, typer.Option(min=1, help="MB of one answer.")] = Bounds.answer
    // MB,
    largest_commit: Annotated[int, typer.Option(min=1, help="MB of one commit.")] = Bounds.commit
    // MB,
    waiting: Annotated[
        int, typer.Option(min=0, help="How many questions wait until the next is told to.")
    ] = Bounds.waiting,
) -> None:
    """Run a source: answer questions, publish what is committed, and let a workload commit.

    It goes on after the workload's last transaction, until Ctrl-C. Killed or crashed, it goes on
    where it was when started again. Without its broker it keeps committing and publishes later.
    """
    checked_bootstrap(broker)
    stop = _told_to_stop()
    if address_file is not None:
        # One of an earlier run would send clients to a port where nobody is.
        address_file.unlink(missing_ok=True)
    endpoint = Endpoint(host, port, token, tls_cert, tls_key)
    sizes = (memory * MB, seconds, largest_question * MB, largest_answer * MB)
    bounds = Bounds(*sizes, waiting, largest_commit * MB)
    allow_many_connections()
    with SourceDatabase.open(database) as source:
        driver = None
        if workload_name is not None:
            drive = Drive(_workload_of(source, workload_name, seed), rate, transactions, after)
            driver = Driver(source, drive)
        topic = topic or source.source
        server = QueryServer(source, endpoint, topic, bounds)
        publisher = Publisher(source, broker, topic, typer.echo)
        if address_file is not None:
            write_atomically(address_file, server.address)
        typer.echo(
            f"source {source.source} ready at {server.address}, version {source.version},"
            f" publishing to topic {topic} at {broker}"
        )
        SourceProcess(source, server, publisher, driver, typer.echo).run(stop)


@app.command()
def apply(
    file: Annotated[Path, typer.Argument(help="JSON Lines, or a JSON array.", show_default=False)],
    database: DatabaseOption = None,
    address: AddressOption = None,
    token: TokenOption = None,
    tls_roots: TlsRootsOption = None,
) -> None:
    """Commit the transactions of a file, in order, up to the first one that is refused.

    Each is {"changes": [{"relation": "item", "row": [1, "pen", 10.25], "count": 1}]}, with the
    values in the order in which 'sources status' shows the columns: numbers (a DECIMAL also as
    "10.25", a DOUBLE also as "NaN" or "Infinity"), "2024-01-31" for a DATE, "2024-01-31
    10:00:00.5" for a TIMESTAMP, true, false, null. Count -1 deletes a row, and deleting the old
    row and adding the new one in one transaction modifies it; 2 adds a row twice, which only a
    relation without a key can hold. A part of a
    transaction over several sources adds "global": {"id": "t1", "participants": ["shop", "bank"]};
    warehouses show it when all participants have committed their parts.
    """
    forms = _read_transactions(file)
    try:
        if _running(database, address):
            with _client(address, token, tls_roots) as client:
                held = client.relations()
                version = client.commit(_decoded(forms, file, held))
        else:
            with SourceDatabase.open(_the(database)) as source:
                held = {relation.name: relation for relation in source.catalog}
                outcome = commit_until_refused(source, _decoded(forms, file, held))
                if outcome.refusal is not None:
                    raise CommitStopped(outcome.committed, outcome.version, outcome.refusal)
                version = outcome.version
    except CommitStopped as stopped:
        raise WrongUse(
            f"{file}: transaction {stopped.committed} was refused: {stopped.reason}."
            f" {_before_it(stopped.committed)}, the source is at version {stopped.version}"
        ) from None
    typer.echo(f"{len(forms)} transactions committed, the source is at version {version}")


@app.command()
def status(
    database: DatabaseOption = None,
    address: AddressOption = None,
    token: TokenOption = None,
    tls_roots: TlsRootsOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Show what a source holds, its version and how much of it is published."""
    if _running(database, address):
        with _client(address, token, tls_roots) as client:
            found = client.status()
    else:
        with SourceDatabase.open(_the(database)) as source:
            found = status_of(source)
    if as_json:
        typer.echo(json.dumps(found))
        return
    published = f"published {found['published']}" + (
        f" to topic {found['topic']}" if found["topic"] else ""
    )
    typer.echo(f"source {found['source']}: version {found['version']}, {published}")
    if "identity" in found:
        typer.echo(f"  identity {found['identity']}, history {found['history']}")
    _show_relations(found)


def _show_relations(found: Mapping[str, Any]) -> None:
    for name, form in found["relations"].items():
        columns = ", ".join(f"{column} {type_}" for column, type_ in form["columns"].items())
        key = f", key {', '.join(form['key'])}" if "key" in form else ", no key"
        indexes = "".join(f", index on {column}" for column in found["indexes"].get(name, ()))
        typer.echo(f"  {name} ({columns}){key}{indexes}")


# ------------------------------------------------------------------------------------- options


def _pairs(options: Sequence[str], option: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for each in options:
        name, equals, value = each.partition("=")
        if not (name and equals and value):
            raise WrongUse(f"{option} {each}: needs the form name=value")
        if name in pairs:
            raise WrongUse(f"{option} {each}: {name} is given twice")
        pairs[name] = value
    return pairs


def _load(
    source: str, files: dict[str, str], keys: dict[str, str], types: dict[str, str]
) -> list[tuple[Relation, Any]]:
    by_relation: dict[str, dict[str, str]] = {}
    for place, type_ in types.items():
        name, _, column = place.partition(".")
        by_relation.setdefault(name, {})[column] = type_
    for option, named in (("--key", keys), ("--type", by_relation)):
        for without_file in sorted(set(named) - set(files)):
            raise WrongUse(f"{option} {without_file}…: there is no --relation {without_file}=…")
    columns = _columns(keys)
    return [
        load_relation(source, name, Path(file), columns.get(name, []), by_relation.get(name))
        for name, file in files.items()
    ]


def _columns(lists: dict[str, str]) -> dict[str, list[str]]:
    """name → the columns of "column,column"."""
    return {name: [column for column in text.split(",") if column] for name, text in lists.items()}


def _workload_of(source: SourceDatabase, name: str, seed: int | None) -> Iterator[Transaction]:
    """The transactions of the workload that the database was made for; another would not fit."""
    made_for = source.origin.get("workload")
    if made_for != name or seed not in (None, source.origin.get("seed")):
        made = f"workload {made_for}, seed {source.origin.get('seed')}" if made_for else "files"
        raise WrongUse(
            f"source {source.source} was made from {made}: workload {name}"
            + (f" with seed {seed}" if seed is not None else "")
            + " does not fit; make a new one with 'sources init --workload'"
        )
    scale, seed = source.origin["scale"], source.origin["seed"]
    return workload(name).source(source.source, scale, seed).transactions()


def _running(database: Path | None, address: str | None) -> bool:
    """Whether a running source is meant, not a file."""
    if (database is None) == (address is None):
        raise WrongUse("give either --database or --address")
    return address is not None


def _the(database: Path | None) -> Path:
    return database or Path()


def _client(address: str | None, token: str | None, tls_roots: Path | None) -> SourceClient:
    try:
        roots = tls_roots.read_bytes() if tls_roots else None
    except OSError as error:
        raise WrongUse(f"--tls-roots: cannot read {tls_roots}: {error.strerror}") from None
    return SourceClient(address or "", token, roots)


def _before_it(committed: int) -> str:
    if not committed:
        return "Nothing is committed"
    return (
        f"The {committed} before it are committed"
        if committed > 1
        else "The one before it is committed"
    )


def _told_to_stop() -> threading.Event:
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    return stop


# ---------------------------------------------------------------------------------- transactions


def _read_transactions(file: Path) -> list[tuple[str, Any]]:
    """(place, JSON) of each transaction in the file."""
    try:
        content = file.read_bytes().strip()
    except OSError as error:
        raise WrongUse(f"cannot read {file}: {error.strerror}") from None
    if content.startswith(b"["):
        forms = _json(content, f"{file}")
        return [(f"{file}, transaction {index}", form) for index, form in enumerate(forms)]
    return [
        (f"{file}, line {number}", _json(line, f"{file}, line {number}"))
        for number, line in enumerate(content.split(b"\n"), 1)
        if line.strip()
    ]


def _json(text: bytes, where: str) -> Any:
    try:
        # As they are written: 0.1 as a float is no DECIMAL any more.
        return json.loads(text, parse_float=Decimal, parse_constant=_no_number)
    except RecursionError:
        raise WrongUse(f"{where}: nested too deeply") from None
    except ValueError as error:
        raise WrongUse(f"{where}: not JSON: {error}") from None


def _no_number(text: str) -> Any:
    raise ValueError(f'{text} has to be a text: "{text}"')


def _decoded(
    forms: list[tuple[str, Any]], file: Path, relations: dict[str, Relation]
) -> list[Transaction]:
    """All of them are read before the first is committed."""
    if not forms:
        raise WrongUse(f"{file} holds no transactions")
    return [transaction_from_json(form, where, relations) for where, form in forms]
