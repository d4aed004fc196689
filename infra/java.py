"""The Java that runs Ivy, the broker and Spark: the one in JAVA_HOME, else the first on the PATH.

Spark looks in the same order, so the Java that passes here is the one that Spark uses.
"""

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

from infra.errors import InfraError

OLDEST = 17
_WAY_OUT = f"install a Java {OLDEST} or newer (a JRE is enough) and set JAVA_HOME or PATH to it"


def java() -> Path:
    """The java executable, checked to be new enough for Spark 4 and Kafka 4."""
    found = _in_java_home() or _on_path()
    release = _release(found)
    if release < OLDEST:
        raise InfraError(f"{found} is Java {release}, and Java {OLDEST} is needed: {_WAY_OUT}")
    return found


def _in_java_home() -> Path | None:
    home = os.environ.get("JAVA_HOME")
    if not home:
        return None
    executable = Path(home, "bin", "java")
    if not os.access(executable, os.X_OK):
        raise InfraError(f"JAVA_HOME is {home}, but there is no {executable}: {_WAY_OUT}")
    return executable


def _on_path() -> Path:
    found = shutil.which("java")
    if found is None:
        raise InfraError(
            f"no Java: JAVA_HOME is not set and there is no java on the PATH. {_WAY_OUT}"
        )
    return Path(found)


@cache
def _release(executable: Path) -> int:
    """The feature release: 17 of `version "17.0.15"`, 8 of `version "1.8.0_402"`."""
    try:
        ran = subprocess.run(
            [executable, "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InfraError(f"{executable} cannot be run ({error}): {_WAY_OUT}") from error
    said = re.search(r'version "(?:1\.)?(\d+)', ran.stderr + ran.stdout)
    if said is None:
        raise InfraError(f"{executable} -version does not say which Java it is: {_WAY_OUT}")
    return int(said.group(1))
