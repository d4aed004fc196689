"""`viewsweep sources serve`: a source that runs until it is stopped."""

import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from infra.options import taking
from protocols.errors import WrongUse
from sources.kafka import Kafka
from sources.simulated.connections import allow_many_connections
from sources.simulated.database import SourceDatabase
from sources.simulated.drive import Drive, WorkloadDriver
from sources.simulated.queryserver import Endpoint, QueryServer
from sources.simulated.workloads import workload
from sources.transaction import Transaction
from sources.wire.bounds import MB, Bounds
from streaming.settings.configuration import read_kafka

DatabaseArgument = Annotated[
    Path, typer.Argument(help="The DuckDB file of the source.", show_default=False)
]
TokenOption = Annotated[
    str | None,
    typer.Option(envvar="VIEWSWEEP_TOKEN", help="The token that clients have to send."),
]


@dataclass(frozen=True)
class Served:
    """A source, and its addresses, load and bounds."""

    database: DatabaseArgument
    broker: Annotated[
        str | None, typer.Option(help="Kafka broker to publish to, HOST:PORT, without security.")
    ] = None
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="Instead of --broker: a configuration, for [kafka]."),
    ] = None
    topic: Annotated[
        str | None, typer.Option(help="Topic to publish to; the source's name if not given.")
    ] = None
    partitions: Annotated[
        int, typer.Option(min=1, help="Partitions of the topic; rows are spread over them by key.")
    ] = 1
    host: Annotated[str, typer.Option(help="Address of the query server.")] = "127.0.0.1"
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of the query server; 0 for a free one.")
    ] = 0
    workload_name: Annotated[
        str | None, typer.Option("--workload", help="Commit the transactions of this workload.")
    ] = None
    rate: Annotated[float, typer.Option(min=0.001, help="Transactions per second.")] = 10.0
    seed: Annotated[
        int | None, typer.Option(help="Seed of the workload; by default the one given to init.")
    ] = None
    transactions: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="End the workload after this many transactions, including those before a restart.",
        ),
    ] = None
    after: Annotated[
        Path | None, typer.Option(help="Wait for this file to exist before starting the workload.")
    ] = None
    token: TokenOption = None
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate (PEM) of this host.")] = None
    tls_key: Annotated[Path | None, typer.Option(help="Its private key (PEM).")] = None
    address_file: Annotated[
        Path | None, typer.Option(help="Write the address here once the query server answers.")
    ] = None
    memory: Annotated[
        int, typer.Option(min=64, help="MB that the database may use, for all questions together.")
    ] = Bounds.memory // MB
    seconds: Annotated[float, typer.Option(min=0.1, help="Seconds that one question may take.")] = (
        Bounds.seconds
    )
    largest_question: Annotated[
        int, typer.Option(min=1, help="Largest question, uncompressed, in MB.")
    ] = Bounds.question // MB
    largest_answer: Annotated[int, typer.Option(min=1, help="Largest answer, in MB.")] = (
        Bounds.answer // MB
    )
    largest_commit: Annotated[int, typer.Option(min=1, help="Largest commit, in MB.")] = (
        Bounds.commit // MB
    )
    waiting: Annotated[
        int, typer.Option(min=0, help="Questions that may be queued; further ones are refused.")
    ] = Bounds.waiting

    @property
    def kafka(self) -> Kafka:
        """The cluster to publish to."""
        if self.config is not None and self.broker is None:
            return read_kafka(self.config)
        if self.broker is None or self.config is not None:
            raise WrongUse("give either --broker or --config, whose [kafka] names the broker")
        return Kafka(self.broker)

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(self.host, self.port, self.token, self.tls_cert, self.tls_key)

    @property
    def bounds(self) -> Bounds:
        return Bounds(
            memory=self.memory * MB,
            seconds=self.seconds,
            question=self.largest_question * MB,
            answer=self.largest_answer * MB,
            waiting=self.waiting,
            commit=self.largest_commit * MB,
        )

    def driver(self, source: SourceDatabase) -> WorkloadDriver | None:
        """The driver that commits the workload, if there is one."""
        if self.workload_name is None:
            return None
        transactions = _workload_of(source, self.workload_name, self.seed)
        return WorkloadDriver(source, Drive(transactions, self.rate, self.transactions, self.after))


@taking(Served)
def serve(served: Served) -> None:
    """Run a source: answer questions, publish commits, and commit a workload if one is given.

    It keeps running after the workload's last transaction, until Ctrl-C. When started again after a
    crash or a kill, it resumes from its last commit. Without its broker it keeps committing and
    publishes later.
    """
    # Imported here: only a source that publishes needs Kafka's client.
    from sources.simulated.process import SourceProcess, write_atomically
    from sources.simulated.publisher import Publisher

    kafka = served.kafka
    stop = told_to_stop()
    if served.address_file is not None:
        # The address of an earlier run would send clients to a dead port.
        served.address_file.unlink(missing_ok=True)
    allow_many_connections()
    with SourceDatabase.open(served.database) as source:
        driver = served.driver(source)
        topic = served.topic or source.source
        server = QueryServer(source, served.endpoint, topic, served.bounds)
        publisher = Publisher(source, kafka, topic, typer.echo, served.partitions)
        if served.address_file is not None:
            write_atomically(served.address_file, server.address)
        typer.echo(
            f"source {source.source} ready at {server.address}, version {source.version},"
            f" publishing to topic {topic} at {kafka.bootstrap}"
        )
        SourceProcess(source, server, publisher, driver, typer.echo).run(stop)


def _workload_of(source: SourceDatabase, name: str, seed: int | None) -> Iterator[Transaction]:
    """The transactions of the workload that the database was made for; WrongUse for another."""
    made_for = source.origin.get("workload")
    if made_for != name or seed not in (None, source.origin.get("seed")):
        made = f"workload {made_for}, seed {source.origin.get('seed')}" if made_for else "files"
        raise WrongUse(
            f"source {source.source} was created from {made}, so it cannot run workload {name}"
            + (f" with seed {seed}" if seed is not None else "")
            + "; create a new source with 'sources init --workload'"
        )
    scale, seed = source.origin["scale"], source.origin["seed"]
    return workload(name).source(source.source, scale, seed).transactions()


def told_to_stop() -> threading.Event:
    """Set by SIGINT and SIGTERM."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    return stop
