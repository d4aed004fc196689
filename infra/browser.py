"""A Chromium for the tests of the page: the one of this machine, or Debian's package.

    python -m infra.browser

prints where it is, and installs it first if there is none and this may be done.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from infra.errors import InfraError

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_WAY_OUT = "install Chromium or Chrome, or name one in the environment variable VIEWSWEEP_BROWSER"


def installed() -> Path | None:
    """The browser of this machine."""
    named = os.environ.get("VIEWSWEEP_BROWSER")
    found = shutil.which(named) if named else next(filter(None, map(shutil.which, _NAMES)), None)
    return None if found is None else Path(found)


def browser() -> Path:
    """The browser; InfraError says how to get one if there is none."""
    found = installed()
    if found is None:
        raise InfraError(f"there is no browser to test the page in: {_WAY_OUT}")
    return found


def install() -> Path:
    """The browser, installed by apt-get if it has to be and this process may."""
    if installed() is None:
        apt = shutil.which("apt-get")
        if apt is None or os.geteuid() != 0:
            raise InfraError(
                f"there is no browser to test the page in, and only root can install one with"
                f" apt-get: {_WAY_OUT}"
            )
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        package = [apt, "install", "--yes", "--no-install-recommends", "chromium"]
        for command in ([apt, "update"], package):
            done = subprocess.run(command, env=environment, capture_output=True, text=True)
            if done.returncode and command == package:
                said = done.stderr.strip().splitlines()[-1:] or ["no reason"]
                raise InfraError(f"apt-get could not install chromium: {said[0]}; {_WAY_OUT}")
    return browser()


if __name__ == "__main__":
    try:
        print(install())
    except InfraError as error:
        sys.exit(f"viewsweep: {error}")
