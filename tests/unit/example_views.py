"""The example views with the catalogs that they are over."""

import re
from pathlib import Path

from protocols.views.reading import parse_view
from protocols.views.tree import AnyView
from sources.workloads import workload

VIEWS = Path(__file__).parents[2] / "examples" / "views"
NAMES = tuple(sorted(file.stem for file in VIEWS.glob("*.sql")))


def workload_of(name: str) -> str:
    """The workload that the example's second line names."""
    found = re.search(r"--workload (\w+)", (VIEWS / f"{name}.sql").read_text())
    assert found is not None
    return found[1]


def example(name: str) -> AnyView:
    """An example view, parsed."""
    sql = (VIEWS / f"{name}.sql").read_text()
    return parse_view(name, sql, workload(workload_of(name)).catalog)
