"""The example views and their workloads."""

import re

from tests.harness.places import ROOT

VIEWS = ROOT / "examples" / "views"
NAMES = tuple(sorted(file.stem for file in VIEWS.glob("*.sql")))


def workload_of(name: str) -> str:
    """The workload named in the second line of an example."""
    found = re.search(r"--workload (\w+)", (VIEWS / f"{name}.sql").read_text())
    assert found is not None
    return found[1]
