"""A PostgreSQL server on this machine, for demos and tests; its data are thrown away.

Its programs are those of the package pgserver, if it is installed, else those on the PATH or of
Debian's packages. PostgreSQL refuses to run as root; then it runs as the user `nobody`.
"""

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from infra.errors import InfraError
from infra.localbroker import LOOPBACK
from infra.localserver import LocalServer

_USER = "postgres"
#: What logical decoding needs, and what makes a small server quick.
_SETTINGS = {
    "wal_level": "logical",
    "max_wal_senders": "16",
    "max_replication_slots": "16",
    "max_prepared_transactions": "16",
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",
    "shared_buffers": "32MB",
    "max_connections": "60",
    "wal_writer_delay": "10ms",
    "logging_collector": "off",
}


class LocalPostgres(LocalServer):
    """One server; a kill is PostgreSQL's immediate shutdown."""

    name, program = "PostgreSQL", "postgres"
    pid_file = "postmaster.pid"
    to_stop, to_kill = signal.SIGINT, signal.SIGQUIT

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self.programs = _programs()
        super().__init__({**_SETTINGS, **(settings or {})})

    def dsn(self, database: str = _USER) -> str:
        """The address of one of its databases."""
        return f"postgresql://{_USER}@{LOOPBACK}:{self.port}/{database}"

    def _command(self) -> list[str]:
        arguments = [f"-c{name}={value}" for name, value in self._settings.items()]
        server = self._program("postgres")
        return as_user([server, "-D", str(self.held), "-p", str(self.port), *arguments])

    def _create(self) -> None:
        self.log.touch()
        if os.geteuid() == 0:
            _give_to_nobody(self.data)
        command = [self._program("initdb"), "-D", str(self.held), "-U", _USER]
        options = ["--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C"]
        ran = subprocess.run(
            as_user([*command, *options]), capture_output=True, text=True, check=False
        )
        if ran.returncode:
            raise InfraError(f"no database can be created in {self.data}:\n{ran.stderr.strip()}")

    def _answers(self) -> bool:
        """Whether it accepts connections, as its own file says."""
        try:
            lines = (self.held / self.pid_file).read_text().splitlines()
        except OSError:
            return False
        return len(lines) > 7 and lines[7].strip() == "ready"

    def _program(self, name: str) -> str:
        return str(self.programs / name)


def _programs() -> Path:
    """The directory of PostgreSQL's programs."""
    spec = importlib.util.find_spec("pgserver")
    packages = [] if spec is None else spec.submodule_search_locations or []
    places = [Path(package, "pginstall", "bin") for package in packages]
    if on_path := shutil.which("initdb"):
        places.append(Path(on_path).resolve().parent)
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_release, reverse=True)
    for place in places:
        if all((place / name).exists() for name in ("postgres", "initdb")):
            return place
    raise InfraError(
        "PostgreSQL was not found: pip install 'viewsweep[localpostgres]', or install your"
        " system's package, so that initdb is on the PATH"
    )


def _release(place: Path) -> int:
    return int(place.parent.name) if place.parent.name.isdigit() else 0


_BECOME = """
import os, sys
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
os.execv(sys.argv[1], sys.argv[1:])
"""


def as_user(command: Sequence[str]) -> list[str]:
    """The command as a user that PostgreSQL accepts."""
    if os.geteuid() != 0:
        return list(command)
    return [sys.executable, "-I", "-S", "-c", _BECOME, *command]


def _give_to_nobody(directory: Path) -> None:
    for each in (directory, *directory.iterdir()):
        os.chown(each, 65534, 65534)
