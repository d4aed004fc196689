"""The program with dictionaries: it must be right, or the comparison means nothing."""

import orjson
import polars as pl
import pytest

from bench.burst import Burst, BurstSettings, folded, same_rows, unfolded
from bench.engines.topics import described
from bench.feed import TIME, decoded_output, records
from bench.peers.dictionaries import DictionaryJoin
from protocols.algebra.delta import COUNT
from protocols.algebra.framelog import VERSION


class _Topics:
    """Names only: nothing is published here."""

    def __init__(self, burst: Burst) -> None:
        self.topics = {base.relation.source: base.relation.source for base in burst.bases}
        self.out = "out"


@pytest.mark.parametrize("name", ["chain2", "chain4", "star4", "tree6"])
def test_it_arrives_at_the_truth_from_an_empty_start(name: str) -> None:
    burst = Burst(BurstSettings(name, base_rows=500, updates=600))
    join = DictionaryJoin(described(burst, _Topics(burst), "nowhere:9092"))
    written: list[bytes] = []
    for base in burst.bases:
        first = base.rows.with_columns(
            pl.lit(1, pl.Int64).alias(COUNT), pl.int_range(pl.len()).alias(VERSION)
        )
        for changes in (first, base.changes):
            for value in records(base, changes)["value"]:
                payload = orjson.loads(value)["payload"]
                for image, step, diff in (("before", join.remove, -1), ("after", join.add, 1)):
                    if payload[image] is not None:
                        changed = step(base.relation.name, payload[image])
                        written += [join.record(rows, diff, 0) for rows in changed]
    assert burst.truth.height > 10
    found = folded(decoded_output(burst, written).drop(TIME))
    assert same_rows(unfolded(found), burst.truth)


def test_the_view_is_described_without_the_names_of_sources() -> None:
    burst = Burst(BurstSettings("tree4", base_rows=100, updates=100))
    job = described(burst, _Topics(burst), "nowhere:9092")
    assert "shipping." not in job["sql"]
    assert "FROM parcels\n" in job["sql"]
    assert job["links"] == [
        {"of": "parcels", "column": "order_id", "to": "orders"},
        {"of": "parcels", "column": "contract_id", "to": "contracts"},
        {"of": "orders", "column": "agent_id", "to": "agents"},
    ]
