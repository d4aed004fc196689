"""The Kafka broker of a demo, a test or a benchmark: the first of these that is available.

1. the one that was given, by argument or in `VIEWSWEEP_BROKER`; it has to answer;
2. a container, when testcontainers is installed and Docker answers;
3. a local broker (`infra.localbroker`), which needs Java and pyspark's Ivy only.

`python -m infra.broker` runs the third in the foreground, for use by hand.
"""

import contextlib
import importlib.util
import logging
import os
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from infra.brokercheck import answers
from infra.errors import InfraError, without_traceback
from infra.localbroker import (
    LOOPBACK,
    SMALL_BROKER,
    START_SECONDS,
    LocalBroker,
    free_port,
)
from infra.progress import Progress, on_stderr

BROKER_VARIABLE = "VIEWSWEEP_BROKER"
IMAGE = "apache/kafka:4.3.0"

_GIVEN_SECONDS = 5.0
_DOCKER_SECONDS = 2.0


@dataclass(frozen=True)
class Broker:
    """A broker that answers."""

    bootstrap: str
    description: str
    """A sentence that says which broker this is and why it was chosen, to be shown to the user."""


@contextmanager
def which_broker(given: str | None = None, progress: Progress = on_stderr) -> Iterator[Broker]:
    """The broker to use inside the context; a broker that was started for it ends with it."""
    if given:
        yield _given(given, "the command line")
    elif from_environment := os.environ.get(BROKER_VARIABLE):
        yield _given(from_environment, BROKER_VARIABLE)
    else:
        with contextlib.ExitStack() as running:
            yield _container(running, progress) or _local(running, progress)


def _given(bootstrap: str, by: str) -> Broker:
    if not answers(bootstrap, _GIVEN_SECONDS):
        raise InfraError(
            f"no Kafka broker answers at {bootstrap} (the address given by {by}) after"
            f" {_GIVEN_SECONDS:.0f} s. Start the broker or correct the address. If you give no"
            " address, viewsweep starts a broker of its own."
        )
    return Broker(bootstrap, f"Kafka broker at {bootstrap}, given by {by}.")


def _local(running: contextlib.ExitStack, progress: Progress) -> Broker:
    broker = running.enter_context(LocalBroker(progress=progress))
    return Broker(
        broker.bootstrap,
        f"Local Kafka broker at {broker.bootstrap}, started for this run:"
        f" {BROKER_VARIABLE} names none and no container could be used.",
    )


# In a container


def _container(running: contextlib.ExitStack, progress: Progress) -> Broker | None:
    """A broker in a container, or None if Docker cannot run one here."""
    if importlib.util.find_spec("testcontainers") is None or not _docker_answers():
        return None
    with _quiet():
        progress(f"starting {IMAGE} in a container")
        try:
            bootstrap = _started_container(running)
        except Exception as error:  # Docker's, the registry's, the network's: all mean the same
            progress(f"the container did not start ({error}): using a local broker instead")
            return None
    return Broker(
        bootstrap,
        f"Kafka broker at {bootstrap} in a container ({IMAGE}): Docker answers and"
        f" {BROKER_VARIABLE} names no other.",
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Silences the library's log: an error there becomes one line of ours instead of many."""
    logger = logging.getLogger("testcontainers")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _docker_answers() -> bool:
    """Asks the engine's socket directly: importing Docker's client alone takes longer.

    Sockets only, since the container is reached on this machine's loopback interface.
    """
    given = os.environ.get("DOCKER_HOST")
    if given:
        return given.startswith("unix://") and _pings(given.removeprefix("unix://"))
    own = (Path(os.environ.get("XDG_RUNTIME_DIR", "/run")), Path.home() / ".docker" / "run")
    places = [Path("/var/run/docker.sock"), *(place / "docker.sock" for place in own)]
    return any(_pings(str(place)) for place in places)


def _pings(path: str) -> bool:
    try:
        with socket.socket(socket.AF_UNIX) as engine:
            engine.settimeout(_DOCKER_SECONDS)
            engine.connect(path)
            engine.sendall(b"GET /_ping HTTP/1.0\r\nHost: docker\r\n\r\n")
            return b" 200 " in engine.recv(64)
    except OSError:
        return False


def _started_container(running: contextlib.ExitStack) -> str:
    from testcontainers.core.container import DockerContainer

    # Kafka tells its clients its own address, so the port has to be known before it starts.
    port = free_port()
    bootstrap = f"{LOOPBACK}:{port}"
    container: Any = DockerContainer(IMAGE)
    # Not with_bind_ports, which can only bind to every address of the machine.
    container.ports["9092/tcp"] = (LOOPBACK, port)
    for key, value in (SMALL_BROKER | _container_settings(bootstrap)).items():
        container.with_env("KAFKA_" + key.upper().replace(".", "_"), value)
    running.callback(container.stop)
    container.start()
    if not answers(bootstrap, START_SECONDS):
        raise InfraError(f"{IMAGE} does not answer at {bootstrap} after {START_SECONDS:.0f} s")
    return bootstrap


def _container_settings(bootstrap: str) -> dict[str, str]:
    return {
        "node.id": "1",
        "process.roles": "broker,controller",
        "controller.quorum.voters": "1@localhost:9093",
        "controller.listener.names": "CONTROLLER",
        "listeners": "BROKER://:9092,CONTROLLER://:9093",
        "advertised.listeners": f"BROKER://{bootstrap}",
        "inter.broker.listener.name": "BROKER",
        "listener.security.protocol.map": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
    }


# By hand


def main(
    data: Annotated[
        Path | None,
        typer.Option(help="Keep the data in this directory, and start on data already there."),
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="Listen on this port of 127.0.0.1.", show_default="any free")
    ] = None,
) -> None:
    """Run a single-node Kafka broker on this machine until Ctrl-C, and print its address.

    Without --data its data are deleted at the end.

    Give viewsweep the address in the environment variable VIEWSWEEP_BROKER.
    """
    with without_traceback(), LocalBroker(data, port) as broker:
        try:
            typer.echo(broker.bootstrap)
            typer.echo(f"Kafka's data and log: {broker.data}. Ctrl-C stops the broker.", err=True)
            broker.wait()
        except KeyboardInterrupt:
            typer.echo("stopping", err=True)
        else:
            raise InfraError(f"the broker exited unexpectedly; its log is {broker.log}")


if __name__ == "__main__":
    typer.run(main)
