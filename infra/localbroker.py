"""A single-node Kafka broker on this machine: real Kafka, on a given directory and port.

Rules:

- It listens on 127.0.0.1 only.
- It ends with its owner, also when the owner is killed (see `watchdog`).
- Acknowledged records survive `kill`, as in production: Kafka leaves the flushing to the operating
  system. They need not survive a power cut.
- Its ports stay the same across `restart`, so that clients find it again.
- Without a given directory it uses a temporary one, which is removed with it.
- Its plain listener is always there. With `Guarded`, it has three more: TLS with a certificate of
  the client's own (mTLS), SASL over TLS, and SASL without TLS.
"""

import contextlib
import fcntl
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from infra import watchdog
from infra.brokercheck import answers
from infra.classarchives import broker_options
from infra.errors import InfraError
from infra.jars import broker_jars
from infra.java import java
from infra.owned import StartedInWith
from infra.progress import Progress, on_stderr

LOOPBACK = "127.0.0.1"
START_SECONDS = 60.0
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_FIRST_PORT = 15_000
_PORT_DRAWS = 200

_HERE = Path(__file__).parent
_LOG4J = _HERE / "localbroker-log4j2.properties"
_TAIL_LINES = 25
_STOP_SECONDS = 30.0
_PORT_TAKEN = "Address already in use"
_PORT_ATTEMPTS = 3

SMALL_BROKER = {
    # One node: one replica of everything.
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "default.replication.factor": "1",
    "num.partitions": "1",
    # A consumer of a test need not wait three seconds for others that never come.
    "group.initial.rebalance.delay.ms": "0",
    # A topic that nobody created is a mistake in a configuration.
    "auto.create.topics.enable": "false",
    # The topics are the sources' history: no record expires.
    "log.retention.ms": "-1",
    "log.retention.bytes": "-1",
    # After a crash the controller refuses the broker until its old session has expired, which takes
    # nine seconds by default.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    # Two cores and 300 MB.
    "num.network.threads": "2",
    "num.io.threads": "2",
    "background.threads": "2",
    "log.cleaner.dedupe.buffer.size": "8388608",
    "log.cleaner.threads": "1",
    "log.cleaner.io.buffer.size": "65536",
    "log.index.size.max.bytes": "1048576",
    "socket.send.buffer.bytes": "131072",
    "socket.receive.buffer.bytes": "131072",
}
"""Settings for one small node; the container in `broker` uses them as well."""

#: Guarded listener → the protocol that it speaks.
_GUARDED = {"MTLS": "SSL", "SASL_TLS": "SASL_SSL", "SASL": "SASL_PLAINTEXT"}
_MECHANISMS = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "OAUTHBEARER")


@dataclass(frozen=True)
class Guarded:
    """Certificates and users for listeners that do not let everybody in."""

    #: PEM: the broker's private key (PKCS#8), followed by its certificate.
    keystore: Path
    #: PEM: the authority whose certificates clients may show.
    truststore: Path
    #: User → password, for SCRAM and for PLAIN.
    users: Mapping[str, str] = field(default_factory=dict, repr=False)

    def settings(self) -> dict[str, str]:
        """The settings of a broker with these listeners, beside those of `listeners`."""
        tls = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.keystore),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.truststore),
        }
        module = "org.apache.kafka.common.security"
        scram = f"{module}.scram.ScramLoginModule required;"
        users = " ".join(f"user_{user}={_quoted(word)}" for user, word in self.users.items())
        found = tls | {"listener.name.mtls.ssl.client.auth": "required"}
        for name in ("sasl_tls", "sasl"):
            listener = f"listener.name.{name}"
            found |= {
                f"{listener}.sasl.enabled.mechanisms": ",".join(_MECHANISMS),
                f"{listener}.scram-sha-512.sasl.jaas.config": scram,
                f"{listener}.scram-sha-256.sasl.jaas.config": scram,
                f"{listener}.plain.sasl.jaas.config": (
                    f"{module}.plain.PlainLoginModule required {users};"
                ),
                # Accepts tokens without a signature: good for tests only.
                f"{listener}.oauthbearer.sasl.jaas.config": (
                    f"{module}.oauthbearer.OAuthBearerLoginModule required;"
                ),
            }
        return found

    def format_arguments(self) -> list[str]:
        """The storage tool's arguments: SCRAM keeps its users in the cluster's metadata."""
        return [
            f"--add-scram={mechanism}=[name={user},password={word}]"
            for mechanism in ("SCRAM-SHA-512", "SCRAM-SHA-256")
            for user, word in self.users.items()
        ]


class LocalBroker(StartedInWith):
    """One broker process. `start`, `stop`, `kill` and `restart` may follow each other any number of
    times; `close` (or the end of `with`) is final.
    """

    def __init__(
        self,
        data: Path | None = None,
        port: int | None = None,
        progress: Progress = on_stderr,
        guarded: Guarded | None = None,
    ) -> None:
        # Without a given directory we remove ours at the end.
        self._throw_away = data is None
        self.data = data.absolute() if data else Path(tempfile.mkdtemp(prefix="viewsweep-broker-"))
        # If the port is taken, a given one is an error, and one of our choice is drawn again.
        self._port_is_given = port is not None
        self._port = port or free_port()
        self._controller_port = free_port()
        self._guarded = guarded
        self._guarded_ports = {name: free_port() for name in _GUARDED} if guarded else {}
        self._progress = progress
        # The watchdog, the broker's parent process; None when nothing runs.
        self._watchdog: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """The address for `bootstrap.servers`, valid once `start` has returned."""
        return f"{LOOPBACK}:{self._port}"

    def listener(self, name: str) -> str:
        """The address of a guarded listener: MTLS, SASL_TLS or SASL."""
        return f"{LOOPBACK}:{self._guarded_ports[name]}"

    @property
    def pid(self) -> int | None:
        """The process id of the watchdog, the broker's parent; None when nothing runs."""
        return None if self._watchdog is None else self._watchdog.pid

    @property
    def log(self) -> Path:
        """The broker's log, of all its starts."""
        return self.data / "broker.log"

    def start(self) -> None:
        """Starts the broker on the data in its directory; returns when it answers."""
        if self._watchdog is not None:
            raise InfraError(f"the broker at {self.bootstrap} is running already")
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            try:
                self._start_once()
            except _PortTakenError:
                if self._port_is_given or attempt == _PORT_ATTEMPTS:
                    raise
                self._port, self._controller_port = free_port(), free_port()
                self._guarded_ports = {name: free_port() for name in self._guarded_ports}
            else:
                return

    def stop(self) -> None:
        """Stops it cleanly; the data stay."""
        self._end(watchdog.STOP)

    def kill(self) -> None:
        """Kills it with SIGKILL, as a crash would; the data stay as the crash left them."""
        self._end(watchdog.KILL)

    def restart(self) -> None:
        """Starts again on the same data and the same ports, after `kill`, `stop` or neither."""
        self.stop()
        self._start_once()

    def close(self) -> None:
        """Stops it, and removes its directory unless the caller gave it."""
        if self._throw_away:
            self.kill()
            shutil.rmtree(self.data, ignore_errors=True)
        else:
            self.stop()

    def wait(self) -> None:
        """Returns when the broker has ended by itself, which it should not."""
        if self._watchdog is not None:
            self._watchdog.wait()

    def _start_once(self) -> None:
        self._write_properties()
        self._format()
        log_size = self.log.stat().st_size if self.log.exists() else 0
        self._launch()
        try:
            self._wait_until_it_answers(log_size)
        except BaseException:
            self.kill()
            raise

    def _write_properties(self) -> None:
        logs = self.data / "topics"
        try:
            logs.mkdir(parents=True, exist_ok=True)
            self._properties.write_text(
                "".join(_line(key, value) for key, value in self._settings(logs).items())
            )
        except OSError as error:
            raise InfraError(f"no broker can be started in {self.data}: {error}") from error

    @property
    def _properties(self) -> Path:
        return self.data / "server.properties"

    def _settings(self, logs: Path) -> dict[str, str]:
        broker = f"{LOOPBACK}:{self._port}"
        controller = f"{LOOPBACK}:{self._controller_port}"
        open_to = {"BROKER": broker} | {name: self.listener(name) for name in self._guarded_ports}
        speaks = {"BROKER": "PLAINTEXT", "CONTROLLER": "PLAINTEXT"} | {
            name: _GUARDED[name] for name in self._guarded_ports
        }
        guarded = self._guarded.settings() if self._guarded else {}
        return (
            SMALL_BROKER
            | guarded
            | {
                "process.roles": "broker,controller",
                "node.id": "1",
                "controller.quorum.voters": f"1@{controller}",
                "controller.listener.names": "CONTROLLER",
                "listeners": _joined("://", open_to | {"CONTROLLER": controller}),
                "advertised.listeners": _joined("://", open_to),
                "inter.broker.listener.name": "BROKER",
                "listener.security.protocol.map": _joined(":", speaks),
                "log.dirs": str(logs),
            }
        )

    def _format(self) -> None:
        """Gives the directory a cluster id unless it has one; this starts a JVM of its own."""
        if (self.data / "topics" / "meta.properties").exists():
            return
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        # One argument, because an id may begin with a dash and would be taken for an option.
        arguments = ["format", f"--cluster-id={cluster}", "--config", str(self._properties)]
        arguments += self._guarded.format_arguments() if self._guarded else []
        ran = subprocess.run(
            [*self._java(), "kafka.tools.StorageTool", *arguments, "--ignore-formatted"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if ran.returncode != 0:
            said = (ran.stdout + ran.stderr).strip()
            raise InfraError(f"Kafka cannot use {self.data} for its data:\n{said}")

    def _java(self) -> list[str]:
        class_path = os.pathsep.join(str(jar) for jar in broker_jars(self._progress))
        return [
            *(str(java()), "-Xmx300m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            *("-Xshare:auto", "-Djava.awt.headless=true", *broker_options()),
            f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}",
            *("-cp", class_path),
        ]

    def _launch(self) -> None:
        """Starts the watchdog in a session of its own: Ctrl-C reaches the owner, which stops it."""
        command = [
            *(sys.executable, "-I", "-S", str(_HERE / "watchdog.py")),
            *(["--remove", str(self.data)] if self._throw_away else []),
            *(*self._java(), "kafka.Kafka", str(self._properties)),
        ]
        with self._directory_lock() as lock, self.log.open("ab") as log:
            self._watchdog = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=(lock.fileno(),),
                start_new_session=True,
            )

    def _wait_until_it_answers(self, log_size: int) -> None:
        assert self._watchdog is not None
        deadline = time.monotonic() + START_SECONDS
        while not answers(self.bootstrap, seconds=0.5):
            if self._watchdog.poll() is not None:
                raise self._did_not_start("ended while it started", log_size)
            if time.monotonic() > deadline:
                raise self._did_not_start(
                    f"has not answered within {START_SECONDS:.0f} s", log_size
                )

    def _did_not_start(self, what: str, log_size: int) -> InfraError:
        with self.log.open(errors="replace") as log:
            log.seek(log_size)
            tail = log.read().splitlines()[-_TAIL_LINES:]
        said = "\n".join(["", *tail]) if tail else " nothing"
        kind = _PortTakenError if any(_PORT_TAKEN in line for line in tail) else InfraError
        return kind(
            f"the local broker at {self.bootstrap} {what}. Its log ({self.log}) says:{said}"
        )

    def _directory_lock(self) -> IO[bytes]:
        """The lock of the directory. The watchdog inherits it and holds it until the broker ends.

        So a start on the data of a killed owner waits until the old broker is gone.
        """
        lock = (self.data / "lock").open("wb")
        deadline = time.monotonic() + _STOP_SECONDS
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    lock.close()
                    raise InfraError(
                        f"another broker is already using {self.data}: stop it, or give this one"
                        " another directory"
                    ) from None
                time.sleep(0.1)
            else:
                return lock

    def _end(self, order: bytes) -> None:
        running, self._watchdog = self._watchdog, None
        if running is None:
            return
        assert running.stdin is not None
        with running, contextlib.suppress(BrokenPipeError), running.stdin as orders:
            orders.write(order)
            orders.flush()
            # Its standard input stays open until it has ended: closing it means a dead owner.
            running.wait()


def _line(key: str, value: str) -> str:
    """A line of a properties file, a format that escapes with backslashes."""
    return f"{key}={value}\n".replace("\\", "\\\\")


def _quoted(word: str) -> str:
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _joined(sign: str, pairs: Mapping[str, str]) -> str:
    return ",".join(f"{name}{sign}{value}" for name, value in pairs.items())


class _PortTakenError(InfraError):
    """Another process took the port between our choice and the broker's start."""


def free_port() -> int:
    """A port of the loopback interface on which nothing listens at this moment.

    The broker binds it a while later, and perhaps again after a restart. So it lies below the ports
    that the kernel gives to outgoing connections, of which Kafka's clients make many.
    """
    first_given_away = _first_ephemeral_port()
    dice = random.SystemRandom()
    for _ in range(_PORT_DRAWS):
        port = dice.randrange(_FIRST_PORT, first_given_away)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((LOOPBACK, port))
            return port
    raise InfraError(f"no free port between {_FIRST_PORT} and {first_given_away} on {LOOPBACK}")


def _first_ephemeral_port() -> int:
    """The first port for outgoing connections: as Linux says, elsewhere as set by IANA."""
    with contextlib.suppress(OSError, ValueError):
        return max(int(_EPHEMERAL.read_text().split()[0]), _FIRST_PORT + _PORT_DRAWS)
    return 49152
