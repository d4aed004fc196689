"""A checkpoint is used if Spark can use it; otherwise its fault is named."""

import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from sources.partitions import Partition
from streaming.spark.checkpoint import NotUsable, fed_offsets

SHOP, CRM = Partition("shop"), Partition("crm")
TOPICS = {SHOP: (3, 40), CRM: (0, 9)}
Damage = Callable[[Path], object]


def write(file: Path, *lines: str, before: bytes = b"") -> None:
    """Writes a file like Spark and Hadoop, with a checksum file, here of pieces of 16 bytes."""
    content = before + "\n".join(lines).encode()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    pieces = [content[at : at + 16] for at in range(0, len(content), 16)]
    sums = b"".join(zlib.crc32(piece).to_bytes(4) for piece in pieces)
    file.with_name(f".{file.name}.crc").write_bytes(b"crc\0" + (16).to_bytes(4) + sums)


def offsets(shop: int, crm: int) -> str:
    return f'{{"shop":{{"0":{shop}}},"crm":{{"0":{crm}}}}}'


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A checkpoint with two finished batches and a third one begun."""
    place = tmp_path / "checkpoint"
    write(place / "metadata", '{"id":"6b0c"}')
    write(place / "sources/0/0", "v1", offsets(3, 0), before=b"\0")
    for batch, reached in enumerate([(10, 2), (20, 4), (30, 9)]):
        write(place / f"offsets/{batch}", "v1", '{"batchWatermarkMs":0}', offsets(*reached))
    for batch in (0, 1):
        write(place / f"commits/{batch}", "v1", '{"nextBatchWatermarkMs":0}')
    return place


def test_the_newest_batch_says_how_far_spark_has_fed(checkpoint: Path) -> None:
    assert fed_offsets(checkpoint, TOPICS) == {SHOP: 30, CRM: 9}


def test_each_partition_of_a_topic_counts(checkpoint: Path) -> None:
    for file in ("sources/0/0", "offsets/0", "offsets/1", "offsets/2"):
        write(checkpoint / file, "v1", "{}", '{"shop":{"0":7,"1":4}}')
    second = Partition("shop", 1)
    ends = {SHOP: (3, 40), second: (0, 9)}
    assert fed_offsets(checkpoint, ends) == {SHOP: 7, second: 4}


def test_files_of_others_do_not_matter(checkpoint: Path) -> None:
    (checkpoint / "offsets/.7.3b.tmp").write_bytes(b"")
    (checkpoint / "state").mkdir()
    assert fed_offsets(checkpoint, TOPICS) == {SHOP: 30, CRM: 9}


def test_without_a_checkpoint_or_a_batch_nothing_was_fed(tmp_path: Path) -> None:
    assert fed_offsets(tmp_path / "checkpoint", TOPICS) is None
    write(tmp_path / "checkpoint/metadata", '{"id":"6b0c"}')
    assert fed_offsets(tmp_path / "checkpoint", TOPICS) is None


def test_what_has_no_checksum_is_taken_as_it_is(checkpoint: Path) -> None:
    for file in checkpoint.rglob(".*.crc"):
        file.unlink()
    assert fed_offsets(checkpoint, TOPICS) == {SHOP: 30, CRM: 9}


FILES = ["metadata", "sources/0/0", "offsets/2", "offsets/1", "commits/1"]
DAMAGES: dict[str, Damage] = {
    "empty": lambda file: file.write_bytes(b""),
    "cut": lambda file: file.write_bytes(file.read_bytes()[:-3]),
    "garbage": lambda file: file.write_bytes(b"\xff\x00garbage"),
    "no JSON": lambda file: file.write_bytes(b"v1\n[1]"),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("checksums", [True, False])
def test_a_damaged_file_is_named(checkpoint: Path, name: str, damage: str, checksums: bool) -> None:
    if not checksums:
        for file in checkpoint.rglob(".*.crc"):
            file.unlink()
    DAMAGES[damage](checkpoint / name)
    with pytest.raises(NotUsable, match=name):
        fed_offsets(checkpoint, TOPICS)


@pytest.mark.parametrize("name", FILES)
def test_a_file_with_another_content_is_known_by_its_checksum(checkpoint: Path, name: str) -> None:
    file = checkpoint / name
    file.write_bytes(file.read_bytes().replace(b"0", b"7"))
    with pytest.raises(NotUsable, match=name):
        fed_offsets(checkpoint, TOPICS)


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_checksum_is_named_because_hadoop_would_refuse_the_file(
    checkpoint: Path, name: str
) -> None:
    file = checkpoint / name
    file.with_name(f".{file.name}.crc").write_bytes(b"")
    with pytest.raises(NotUsable, match=name):
        fed_offsets(checkpoint, TOPICS)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ('{"other":{"0":5}}', "lists topic 'other', but the job reads topic 'crm' and topic"),
        ('{"shop":{"0":5}}', "lists topic 'shop', but"),
        ("{}", "lists no topic"),
        (offsets(41, 0), "is at offset 41 of topic 'shop', which has 3 to 40"),
        (offsets(2, 0), "is at offset 2 of topic 'shop', which has 3 to 40"),
        ('{"shop":{"1":5},"crm":{"0":0}}', "lists topic 'crm' and topic 'shop', partition 1"),
        ('{"shop":7,"crm":{"0":0}}', "no offsets of topics"),
    ],
)
def test_offsets_that_are_not_of_these_topics_are_named(
    checkpoint: Path, content: str, complaint: str
) -> None:
    write(checkpoint / "offsets/2", "v1", "{}", content)
    with pytest.raises(NotUsable, match="offsets/2") as refused:
        fed_offsets(checkpoint, TOPICS)
    assert complaint in str(refused.value)


def test_batches_that_are_missing_are_named(checkpoint: Path) -> None:
    (checkpoint / "offsets/1").unlink()
    with pytest.raises(NotUsable, match="offsets lacks batches"):
        fed_offsets(checkpoint, TOPICS)


def test_commits_of_batches_that_were_never_begun_are_named(checkpoint: Path) -> None:
    write(checkpoint / "commits/3", "v1", "{}")
    with pytest.raises(NotUsable, match="offsets lacks batches"):
        fed_offsets(checkpoint, TOPICS)


def test_a_file_in_its_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").write_text("")
    with pytest.raises(NotUsable, match="is not a directory"):
        fed_offsets(tmp_path / "checkpoint", TOPICS)


def test_a_file_where_a_directory_has_to_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint/offsets").write_text("")
    with pytest.raises(NotUsable, match="checkpoint/offsets: Not a directory"):
        fed_offsets(tmp_path / "checkpoint", TOPICS)
