"""The input of other engines, and the reading of their output."""

import json
from collections import Counter

import polars as pl

from bench.burst import Burst, BurstSettings, folded
from bench.engines.topics import _cuts
from bench.feed import TIME, decoded_output, records
from protocols.algebra.delta import COUNT
from protocols.algebra.framelog import VERSION

_BURST = Burst(BurstSettings("chain2", base_rows=200, updates=300))


def test_records_are_the_transactions_in_debeziums_payload_form() -> None:
    for base in _BURST.bases:
        rows: dict[int, dict[str, object]] = {r["number"]: r for r in base.rows.rows(named=True)}
        made = records(base, base.changes)
        assert made.height == base.changes[VERSION].n_unique()
        for key, value in made.rows():
            payload = json.loads(value)["payload"]
            before, after = payload["before"], payload["after"]
            assert json.loads(key) == {"payload": {"number": (after or before)["number"]}}
            assert (
                payload["op"]
                == {(0, 1): "c", (1, 1): "u", (1, 0): "d"}[before is not None, after is not None]
            )
            assert payload["source"] == {"db": base.relation.source, "table": base.relation.name}
            if before is not None:
                assert rows.pop(before["number"]) == before
            if after is not None:
                rows[after["number"]] = after
        final = {r["number"]: r for r in base.final.rows(named=True)}
        assert rows == final


def _rows() -> list[dict[str, int]]:
    return _BURST.truth.head(3).rows(named=True)


def test_flat_output_counts_its_diff_and_keeps_its_time() -> None:
    one, two, three = _rows()
    forms = [{**one, "diff": 1, "time": 2}, {**two, "diff": -1, "time": 2}, three]
    found = decoded_output(_BURST, [json.dumps(form).encode() for form in forms])
    assert found.drop(COUNT, TIME).rows(named=True) == [one, two, three]
    assert found[COUNT].to_list() == [1, -1, 1]
    assert found[TIME].to_list() == [2, 2, None]


def test_images_are_taken_out_and_put_in() -> None:
    one, two, _ = _rows()
    forms = [
        {"before": None, "after": one, "op": "c"},
        {"before": None, "after": two, "op": "c"},
        {"before": one, "after": None, "op": "d"},
    ]
    found = decoded_output(_BURST, [json.dumps(form).encode() for form in forms])
    assert folded(found.drop(TIME)).drop(COUNT).rows(named=True) == [two]
    assert Counter(found[COUNT].to_list()) == {1: 2, -1: 1}


def test_output_keeps_the_order_of_the_topic() -> None:
    """Deletions read before earlier insertions would invent states."""
    one, two, three = _rows()
    forms = [
        {"before": None, "after": one, "op": "c"},
        {"before": one, "after": None, "op": "d"},
        {"before": None, "after": two, "op": "c"},
        {"before": two, "after": three, "op": "u"},
    ]
    found = decoded_output(_BURST, [json.dumps(form).encode() for form in forms])
    assert found.drop(COUNT, TIME).rows(named=True) == [one, one, two, two, three]
    assert found[COUNT].to_list() == [1, -1, 1, -1, 1]


def test_changes_are_cut_behind_a_time_and_else_anywhere() -> None:
    timed = pl.DataFrame({TIME: [1, 1, 1, 1, 2, 2, 3, 3, 3, 3]})
    assert set(_cuts(timed, 4)) <= {4, 6, 10}
    assert len(_cuts(timed, 4)) == 4
    anywhere = timed.with_columns(pl.lit(None, pl.Int64).alias(TIME))
    assert _cuts(anywhere, 4) == [2, 4, 6, 8]
