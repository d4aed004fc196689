"""A MariaDB server on this machine, for demos and tests; its data are thrown away.

Its programs come out of a jar (infra/mariadb-ivy.xml), and on machines for which there is none from
the PATH.
"""

import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pymysql

from infra.errors import InfraError
from infra.jars import mariadb_jar
from infra.localbroker import LOOPBACK, free_port
from infra.owned import OwnedProcess, StartedInWith
from infra.progress import Progress, on_stderr

_START_SECONDS = 60.0
_STOP_SECONDS = 30.0
_USER = "root"
#: What Debezium needs, and what makes a small server quick.
_SETTINGS = {
    "bind-address": LOOPBACK,
    "server-id": "1",
    "log-bin": "binlog",
    "binlog-format": "ROW",
    "binlog-row-image": "FULL",
    "binlog-row-metadata": "FULL",
    "gtid-strict-mode": "ON",
    "character-set-server": "utf8mb4",
    "collation-server": "utf8mb4_general_ci",
    "innodb-buffer-pool-size": "32M",
    "innodb-log-file-size": "16M",
    # A commit survives the server's end, though not the machine's.
    "innodb-flush-log-at-trx-commit": "2",
    "performance-schema": "OFF",
    "max-connections": "60",
    # A certificate of its own, made at each start, takes up to twenty seconds.
    "ssl": "OFF",
}
#: The scripts that make an empty directory a database.
_SCRIPTS = (
    "mariadb_system_tables.sql",
    "mariadb_performance_tables.sql",
    "mariadb_system_tables_data.sql",
)
#: Where systems keep them.
_SHARES = "share/mariadb", "share/mysql"


class LocalMariaDB(StartedInWith):
    """One server. `start`, `stop`, `kill` and `restart` may follow each other; `close` is final."""

    def __init__(
        self, settings: Mapping[str, str] | None = None, progress: Progress = on_stderr
    ) -> None:
        self._server, self._share = _programs(progress)
        self._settings = {**_SETTINGS, **(settings or {})}
        self.data = Path(tempfile.mkdtemp(prefix="viewsweep-mariadb-"))
        self.port = free_port()
        self._process: OwnedProcess | None = None

    def address(self, database: str) -> str:
        """The address of one of its databases."""
        return f"mariadb://{_USER}@{LOOPBACK}:{self.port}/{database}"

    @contextmanager
    def connected(
        self, database: str | None = None
    ) -> Iterator["pymysql.Connection[pymysql.cursors.Cursor]"]:
        """A connection whose statements each are a transaction."""
        connection = pymysql.connect(
            host=LOOPBACK, port=self.port, user=_USER, database=database, autocommit=True
        )
        try:
            yield connection
        finally:
            connection.close()

    @property
    def log(self) -> Path:
        return self.data / "server.log"

    def start(self) -> None:
        """Starts it on its data; returns when it answers."""
        if not (self.data / "held").exists():
            self._create()
        settings = [f"--{name}={value}" for name, value in self._settings.items()]
        command = [*self._command(), f"--port={self.port}", *settings]
        self._process = OwnedProcess("mariadbd", command, self.log)
        deadline = time.monotonic() + _START_SECONDS
        while not self._answers():
            if self._process.ended() is not None or time.monotonic() > deadline:
                said = self._process.last_words()
                self.kill()
                raise InfraError(f"MariaDB in {self.data} did not start:\n{said}")
            time.sleep(0.05)

    def _command(self) -> list[str]:
        held = self.data / "held"
        return [
            *(str(self._server), "--no-defaults", f"--datadir={held}"),
            *(f"--lc-messages-dir={self._share}", f"--character-sets-dir={self._share}/charsets"),
            *(f"--socket={held}/socket", f"--pid-file={held}/pid", f"--tmpdir={held}"),
            *(("--user=root",) if os.geteuid() == 0 else ()),
        ]

    def _create(self) -> None:
        held = self.data / "held"
        held.mkdir()
        scripts = [(self._share / name).read_text() for name in _SCRIPTS]
        begin = "CREATE DATABASE mysql;\nUSE mysql;\nSET @auth_root_socket = NULL;\n"
        ran = subprocess.run(
            [*self._command(), "--bootstrap", "--innodb-log-file-size=16M"],
            input="\n".join([begin, *scripts]),
            capture_output=True,
            text=True,
            check=False,
        )
        if ran.returncode:
            said = ran.stderr.strip().splitlines()[-10:]
            raise InfraError(f"no database can be created in {held}:\n" + "\n".join(said))

    def _answers(self) -> bool:
        try:
            with self.connected():
                return True
        except pymysql.Error:
            return False

    def stop(self) -> None:
        """Stops it cleanly."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kills it, as a crash would: at its next start it recovers from its log."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        running, self._process = self._process, None
        if running is None:
            return
        try:
            os.kill(int((self.data / "held" / "pid").read_text()), number)
            running.wait(_STOP_SECONDS)
        except (OSError, ValueError, subprocess.TimeoutExpired):
            running.kill()

    def restart(self) -> None:
        """Starts again on the same data and port."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Kills it and removes its data."""
        self.kill()
        shutil.rmtree(self.data, ignore_errors=True)


def _programs(progress: Progress) -> tuple[Path, Path]:
    """The server, and the directory of its scripts and messages."""
    if sys.platform == "linux" and platform.machine() == "x86_64":
        return _unpacked(mariadb_jar(progress))
    found = shutil.which("mariadbd")
    if found is not None:
        prefix = Path(found).resolve().parent.parent
        for share in (prefix / name for name in _SHARES):
            if (share / _SCRIPTS[0]).exists():
                return Path(found), share
    raise InfraError(
        "MariaDB was not found: install your system's package, so that mariadbd is on the PATH"
    )


def _unpacked(jar: Path) -> tuple[Path, Path]:
    """The programs of a jar, beside it; complete or not at all."""
    home = jar.with_suffix("")
    if not home.exists():
        fresh = Path(tempfile.mkdtemp(prefix=f"{home.name}-", dir=home.parent))
        with zipfile.ZipFile(jar) as archive:
            for name in archive.namelist():
                if name.endswith("/bin/mariadbd") or ("/share/" in name and _is_needed(name)):
                    archive.extract(name, fresh)
        [server] = fresh.rglob("mariadbd")
        server.chmod(0o755)
        fresh.chmod(0o755)
        try:
            fresh.rename(home)
        except OSError:
            # Another process was quicker.
            shutil.rmtree(fresh, ignore_errors=True)
    [server] = home.rglob("mariadbd")
    return server, server.parent.parent / "share"


def _is_needed(name: str) -> bool:
    path = Path(name)
    return path.name in _SCRIPTS or path.parent.name in ("charsets", "english")
