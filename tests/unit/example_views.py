"""The example views, and the workloads that they are over."""

import re
from pathlib import Path

VIEWS = Path(__file__).parents[2] / "examples" / "views"
NAMES = tuple(sorted(file.stem for file in VIEWS.glob("*.sql")))


def workload_of(name: str) -> str:
    """The workload that the example's second line names."""
    found = re.search(r"--workload (\w+)", (VIEWS / f"{name}.sql").read_text())
    assert found is not None
    return found[1]
