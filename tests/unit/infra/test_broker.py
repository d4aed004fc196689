"""Is Docker used only if it answers, and with the right request?

No engine runs here: a socket that answers `/_ping` replaces it, and the request for the container
is checked where testcontainers would send it. This file does not show that the image starts.
"""

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from infra import broker
from infra.localbroker import LOOPBACK, free_port
from infra.progress import silent


@contextlib.contextmanager
def engine(path: Path, answer: bytes) -> Iterator[str]:
    """A server that answers every request on a socket in the same way."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1024)
                connection.sendall(answer)

        serving = threading.Thread(target=serve)
        serving.start()
        yield f"unix://{path}"
        serving.join()


@pytest.mark.parametrize(
    ("answer", "usable"),
    [(b"HTTP/1.0 200 OK\r\n\r\nOK", True), (b"HTTP/1.0 500 No\r\n\r\n", False)],
)
def test_docker_counts_when_its_socket_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: bytes, usable: bool
) -> None:
    with engine(tmp_path / "docker.sock", answer) as address:
        monkeypatch.setenv("DOCKER_HOST", address)
        assert broker._docker_answers() is usable


@pytest.mark.parametrize("address", ["unix:///nowhere/docker.sock", "tcp://192.0.2.1:2375"])
def test_docker_that_is_absent_or_on_another_machine_does_not_count(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("DOCKER_HOST", address)
    assert not broker._docker_answers()


def test_a_container_publishes_its_port_on_loopback_only(monkeypatch: pytest.MonkeyPatch) -> None:
    containers = pytest.importorskip("testcontainers.core.container")
    asked: list[Any] = []
    monkeypatch.setattr(containers, "DockerClient", lambda **_: None)
    monkeypatch.setattr(containers.DockerContainer, "start", lambda self: asked.append(self))
    monkeypatch.setattr(containers.DockerContainer, "stop", lambda _self: None)
    monkeypatch.setattr(broker, "_docker_answers", lambda: True)
    monkeypatch.setattr(broker, "answers", lambda *_: True)
    monkeypatch.delenv(broker.BROKER_VARIABLE, raising=False)
    with broker.which_broker(progress=silent) as chosen:
        host, port = asked[0].ports["9092/tcp"]
    assert host == LOOPBACK
    assert chosen.bootstrap == f"{LOOPBACK}:{port}"
    assert asked[0].env["KAFKA_ADVERTISED_LISTENERS"] == f"BROKER://{chosen.bootstrap}"
    assert broker.IMAGE in chosen.description


def test_a_free_port_is_none_that_the_kernel_gives_to_outgoing_connections() -> None:
    """It is used later: a connection that took it meanwhile once kept a source from starting."""
    text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text()
    first, last = map(int, text.split())
    assert not [port for port in (free_port() for _ in range(50)) if first <= port <= last]
