"""How many of TPC-H's views are kept, and what an update of each relation costs:

python -m bench.tpchviews
python -m bench.tpchviews --dialect duckdb
"""

import argparse

from bench.tpchviews.schema import CATALOG
from bench.tpchviews.views import VIEWS
from protocols.errors import ViewRefused
from protocols.explaining.costs import costs_of
from protocols.views.dialects import Dialect, dialect_named
from protocols.views.sql import parse_view


def kept(sql: str, dialect: Dialect | None = "postgres") -> tuple[bool, str]:
    """Whether a view is supported, and why not, or the largest number of questions of an update."""
    try:
        costs = costs_of(parse_view("view", sql, CATALOG, dialect))
    except ViewRefused as refused:
        return False, str(refused)
    most = max(costs.relations, key=lambda each: max(k.numbers[0] for k in each.kinds.values()))
    first, remembered = max(kind.numbers for kind in most.kinds.values())
    return True, f"{first} → {remembered} questions for an update of {most.relation.name}"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="The share of TPC-H's views that are kept.")
    parser.add_argument("--dialect", choices=["duckdb", "postgres"], default="postgres")
    dialect = dialect_named(parser.parse_args(arguments).dialect)
    results = {number: kept(sql, dialect) for number, (_, sql) in VIEWS.items()}
    for number, (is_kept, words) in results.items():
        print(f"Q{number:<3} {'kept' if is_kept else 'refused'}  {VIEWS[number][0]}: {words}")
    print(f"{sum(is_kept for is_kept, _ in results.values())} of {len(results)} kept")


if __name__ == "__main__":
    main()
