"""The global transactions of a topic, read without its rows."""

from collections.abc import Sequence

import orjson
import pytest

from protocols.exchange.holdback import GlobalPart
from protocols.views.catalog import catalog_from_json
from sources.envelope import Place, encode_transaction, place_of
from sources.envelope.parts import PartsOfTopic
from sources.partitions import Partition, offsets_in
from sources.transaction import RowChange, Transaction

CATALOG = catalog_from_json(
    {"a": {"relations": {"r": {"columns": {"id": "BIGINT", "x": "VARCHAR"}, "key": ["id"]}}}}
)
P = Partition("topic")
G, H = (GlobalPart(name, frozenset("ab")) for name in "gh")


def records(version: int, part: GlobalPart | None = None, rows: int = 2) -> list[bytes]:
    changes = tuple(RowChange("r", (10 * version + row, '"global"'), 1) for row in range(rows))
    return encode_transaction("a", version, 0, Transaction(changes, part), CATALOG)


def taken(*records: Sequence[bytes], at_once: int = 100) -> PartsOfTopic:
    parts = PartsOfTopic("a", {P: (0, 100)}, 9)
    numbered = list(enumerate(record for each in records for record in each))
    for first in range(0, len(numbered), at_once):
        parts.take(P, numbered[first : first + at_once])
    return parts


def begins(found: PartsOfTopic) -> dict[int, int | None]:
    """Part → the offset where it begins."""
    tokens = {version: found.token_before(version) for version in found.parts}
    return {version: (offsets_in(token, [P]) or {}).get(P) for version, token in tokens.items()}


@pytest.mark.parametrize("at_once", [1, 3, 100])
def test_a_part_lies_where_its_first_record_lies(at_once: int) -> None:
    found = taken(records(1), records(2, G), records(3), records(4, H), at_once=at_once)
    assert found.parts == {2: G, 4: H}
    assert begins(found) == {2: 2, 4: 6}
    assert (found.read, found.is_cut) == (4, False)


def test_what_was_forgotten_does_not_come_back_with_a_repetition() -> None:
    found = taken(records(1), records(2, G))
    found.forget(2)
    again = [*records(1), *records(2, G), *records(3, H)]
    found.take(P, list(enumerate(again, 4)))
    assert found.parts == {3: H}
    assert begins(found) == {3: 8}


def test_of_a_repeated_part_the_first_place_counts() -> None:
    found = taken(records(1), records(2, G), records(1), records(2, G))
    assert begins(found) == {2: 2}
    assert found.read == 2


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_a_topic_that_has_lost_its_first_records_says_so(lost: int) -> None:
    found = taken((records(1, G) + records(2, H))[lost:])
    assert found.is_cut
    # A part that has lost its first record cannot be used.
    assert found.parts == ({2: H} if lost < 3 else {})


def test_a_snapshot_before_the_first_version_is_no_loss() -> None:
    form = orjson.loads(records(1)[0])
    form |= {"op": "r", "source": form["source"] | {"version": 0}}
    assert not taken([orjson.dumps(form)], records(1)).is_cut


def test_what_is_no_record_of_the_source_is_passed_over() -> None:
    [other] = records(3, H, rows=1)
    strange = [b"", b"[]", b'"global"', b'{"global": 1}', other.replace(b'"db":"a"', b'"db":"b"')]
    found = taken(strange, records(1, G), strange)
    assert (found.parts, begins(found)) == ({1: G}, {1: 5})
    assert (found.read, found.is_cut) == (1, False)


def test_a_name_that_is_written_with_escapes_is_the_same_name() -> None:
    [record] = records(1, G, rows=1)
    assert taken([record.replace(b'"global":', b'"\\u0067lobal":')]).parts == {1: G}


def test_the_rows_need_not_be_those_of_the_relation_now() -> None:
    form = orjson.loads(records(7, G)[1])
    form |= {"before": {"long": "gone"}, "op": "d", "after": None}
    assert place_of(orjson.dumps(form), "a") == (Place(7, 2, 2), G)
