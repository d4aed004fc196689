"""`viewsweep sources …`: creates, runs, changes and shows the simulated sources."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import typer

from cli.doctor import connector, doctor
from cli.inspect import inspect
from cli.serve import DatabaseArgument, TokenOption, serve
from cli.sourceoptions import columns_in, declared, loaded, pairs, told
from cli.workload import drive, fill
from infra.options import taking
from protocols.errors import WrongUse
from protocols.views.catalog import Catalog, Relation
from sources.simulated.database import SourceDatabase
from sources.simulated.queryserver import commit_until_refused, status_of
from sources.simulated.workloads import WORKLOADS, workload
from sources.transaction import Transaction
from sources.wire.client import CommitStopped, SourceClient
from sources.wire.transactions import transaction_from_json

app = typer.Typer(
    no_args_is_help=True,
    help="Create, run, change and show sources: the databases that views are computed from.",
)

DatabaseOption = Annotated[
    Path | None, typer.Option("--database", help="The file of a source that is not running.")
]
AddressOption = Annotated[
    str | None, typer.Option("--address", help="The address of a running source, grpc://host:port.")
]
TlsRootsOption = Annotated[
    Path | None, typer.Option("--tls-roots", help="Certificate (PEM) to trust, for grpc+tls://.")
]


IndexOption = Annotated[
    list[str] | None,
    typer.Option("--index", help="name=column,column; an index for look-ups of a few keys."),
]


@dataclass(frozen=True)
class New:
    """A source to create, from a workload or from files."""

    database: DatabaseArgument
    source: Annotated[str, typer.Option("--source", help="The name of the source in views.")]
    workload_name: Annotated[
        str | None,
        typer.Option("--workload", help=f"Fill it for this workload: {', '.join(WORKLOADS)}."),
    ] = None
    scale: Annotated[
        int,
        typer.Option(
            min=1, help="Size of the workload; each relation has a few times as many rows."
        ),
    ] = 1000
    seed: Annotated[int, typer.Option(help="Seed of the workload; same seed, same rows.")] = 0
    relation: Annotated[
        list[str] | None,
        typer.Option(help="name=FILE.parquet or name=FILE.csv; once per relation."),
    ] = None
    key: Annotated[
        list[str] | None,
        typer.Option(
            help="name=column,column; repeat it for further keys. Without a key the relation may"
            " hold equal rows."
        ),
    ] = None
    foreign_key: Annotated[
        list[str] | None,
        typer.Option(help="name.column,column=relation or …=relation(column,column)."),
    ] = None
    mandatory_foreign_key: Annotated[
        list[str] | None,
        typer.Option(help="As --foreign-key, for columns that are never NULL."),
    ] = None
    index: IndexOption = None
    type_: Annotated[
        list[str] | None,
        typer.Option("--type", help="name.column=TYPE; by default types are inferred."),
    ] = None

    def content(self) -> tuple[Catalog, dict[str, pl.DataFrame], dict[str, Any]]:
        """The catalog, the rows by relation, and the workload that they come from."""
        if self.workload_name is not None:
            chosen = workload(self.workload_name).source(self.source, self.scale, self.seed)
            origin = {"workload": self.workload_name, "scale": self.scale, "seed": self.seed}
            return chosen.catalog, dict(chosen.initial_rows()), origin
        files = pairs(self.relation or [], "--relation")
        types = pairs(self.type_ or [], "--type")
        said = declared(self.key or [], self.foreign_key or [], self.mandatory_foreign_key or [])
        return *loaded(self.source, files, said, types), {}


@app.command()
@taking(New)
def init(new: New) -> None:
    """Create a source, filled from a workload or from files. Its content is version 0.

    For example: viewsweep sources init orders.db --source orders --workload retail, or
    … init shop.db --source shop --relation item=items.csv --key item=id
    --type 'item.price=DECIMAL(10,2)'. The first line of a CSV file names the columns.
    The source refuses changes that break a key, or a foreign key to another of its relations.
    """
    if (new.workload_name is None) == (not new.relation):
        raise WrongUse("give either --workload or at least one --relation")
    indexes = columns_in(pairs(new.index or [], "--index"))
    catalog, rows, origin = new.content()
    with SourceDatabase.create(new.database, new.source, catalog, rows, origin, indexes) as made:
        sizes = ", ".join(f"{each.name} ({rows[each.name].height} rows)" for each in made.catalog)
        typer.echo(f"source {new.source} made at {new.database}: {sizes}")
        _show_relations(status_of(made))


@app.command()
def index(
    database: DatabaseArgument,
    on: Annotated[list[str], typer.Option("--on", help="name=column,column; repeat for more.")],
) -> None:
    """Create indexes in a source that is not running, for look-ups of a few keys.

    For example: viewsweep sources index sales.db --on orders=customer_id,product_id
    """
    with SourceDatabase.open(database) as source:
        source.make_indexes(columns_in(pairs(on, "--on")))
        _show_relations(status_of(source))


app.command()(serve)
app.command()(inspect)
app.command()(doctor)
app.command()(connector)
app.command()(fill)
app.command()(drive)


@app.command()
def apply(
    file: Annotated[Path, typer.Argument(help="JSON Lines, or a JSON array.", show_default=False)],
    database: DatabaseOption = None,
    address: AddressOption = None,
    token: TokenOption = None,
    tls_roots: TlsRootsOption = None,
) -> None:
    """Commit the transactions of a file, in order, up to the first one that is refused.

    A transaction is {"changes": [{"relation": "item", "row": [1, "pen", 10.25], "count": 1}]}.
    The values are in the order in which 'sources status' shows the columns. Write numbers as they
    are (a DECIMAL also as "10.25", a DOUBLE also as "NaN" or "Infinity"), a DATE as "2024-01-31", a
    TIMESTAMP as "2024-01-31 10:00:00.5", and true, false, null.

    Count 1 adds a row, -1 deletes it. To modify a row, delete the old one and add the new one in
    one transaction. Count 2 adds two equal rows, which only a relation without a key can have.

    If a transaction is a part of a global one, over several sources, it also has
    "global": {"id": "t1", "participants": ["shop", "bank"]}; views show the global transaction when
    all participants have committed their parts.
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
            f" {_before_it(stopped.committed)}; the source is at version {stopped.version}"
        ) from None
    typer.echo(f"{len(forms)} transactions committed, the source is at version {version}")


@app.command()
def status(
    database: DatabaseOption = None,
    address: AddressOption = None,
    token: TokenOption = None,
    tls_roots: TlsRootsOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """Show a source's relations, its version and the last version that is published."""
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
        indexes = "".join(f", index on {column}" for column in found["indexes"].get(name, ()))
        typer.echo(f"  {name} ({columns}), {told(form)}{indexes}")


# ------------------------------------------------------------------------------------- options


def _running(database: Path | None, address: str | None) -> bool:
    """Whether the options name a running source, not a file."""
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
        # Numbers as written: 0.1 read as a float would not be an exact DECIMAL.
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
    """All transactions of the file, read before the first is committed."""
    if not forms:
        raise WrongUse(f"{file} holds no transactions")
    return [transaction_from_json(form, where, relations) for where, form in forms]
