"""Hostile records: changed in one place or several, and read in columns and by record.

Both readers have to agree: on the same rows, or on the same record and message of a refusal.
Accepted rows also have to pass through the rest: Python's values, JSON, a Delta table. A process of
its own reads, because a library may crash; then this kind is bad, and the next process goes on with
the others.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from itertools import islice, product
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import orjson
import polars as pl
from deltalake import DeltaTable, write_deltalake
from polars.testing import assert_frame_equal

from bench.attacks import AttackOutcome, AttackSettings
from protocols.exchange.holdback import GlobalPart
from protocols.views.catalog import Relation, catalog_from_json
from sources.envelope import BadRecord, Records, encode_transaction, images
from sources.envelope.byrecord import read_by_record
from sources.envelope.columns import read_in_columns
from sources.envelope.form import RequestedRelations
from sources.transaction import RowChange, Transaction

#: Cases of a kind.
_MANY, _FEW = 1300, 30
_COLUMNS = {
    "id": "BIGINT",
    "weight": "DOUBLE",
    "price": "DECIMAL(9,2)",
    "wide": "DECIMAL(38,10)",
    "name": "VARCHAR",
    "good": "BOOLEAN",
    "day": "DATE",
    "moment": "TIMESTAMP",
}
_CATALOG = catalog_from_json(
    {
        "s": {
            "relations": {
                "r": {"columns": _COLUMNS, "key": ["id"]},
                "other": {"columns": {"x": "VARCHAR"}},
            }
        }
    }
)
_RELATION: Relation = _CATALOG.relations[0]
_BATCH = RequestedRelations([_RELATION])
#: From 500 records on `decode` reads in columns.
_SMALL, _LARGE = 3, 500
#: The place in a record for text that orjson would not write.
_HERE = "@here@"
_MOST_WORDS = 600


@dataclass
class _Found:
    """The results of the cases of one kind."""

    kind: str
    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def outcomes(
    settings: AttackSettings, kinds: Sequence[str] = (), unguarded: bool = False
) -> Iterator[AttackOutcome]:
    """Kind by kind; `unguarded`, the control, casts values without a check of their form."""
    settings.directory.mkdir(parents=True, exist_ok=True)
    left = list(kinds or _KINDS)
    cases = _FEW if settings.short else _MANY
    while left:
        asked = {"seed": settings.seed, "cases": cases, "kinds": left, "unguarded": unguarded}
        with (
            open(settings.directory / "stderr", "w+") as stderr,
            subprocess.Popen(
                [sys.executable, "-m", "bench.attacks.records", json.dumps(asked)],
                cwd=settings.directory,
                env=_environment(),
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            ) as reading,
        ):
            for line in reading.stdout or ():
                yield _outcome(**json.loads(line))
                left.pop(0)
            code = reading.wait()
        if left:
            record = settings.directory / "case"
            kept = record.rename(settings.directory / f"{left[0]}.crashed".replace(" ", "-"))
            words = (settings.directory / "stderr").read_text().strip().partition("\n")[0]
            yield AttackOutcome(left.pop(0), f"exit {code} at {kept.name}: {words}", False)


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}


def _outcome(kind: str, counts: dict[str, int], wrong: list[str]) -> AttackOutcome:
    told = ", ".join(f"{count:,} {what}" for what, count in sorted(counts.items()))
    if wrong:
        told = f"{len(wrong)} wrong, the first: {wrong[0]}; {told}"
    return AttackOutcome(kind, told, not wrong, sum(counts.values()) + len(wrong))


# -- reading ------------------------------------------------------------------------------------


def _read_all(seed: int, cases: int, kinds: Sequence[str], unguarded: bool) -> None:
    if unguarded:
        images._need_text_form = lambda *_: None
    for kind in kinds:
        print(json.dumps(vars(_read_kind(kind, seed, cases))), flush=True)


def _read_kind(kind: str, seed: int, cases: int) -> _Found:
    rng, found, taken = Random(f"{seed} {kind}"), _Found(kind), [_good_rows()]
    for text in islice(_KINDS[kind](rng), cases):
        Path("case").write_bytes(text)
        try:
            result, rows = compared(text, rng.randrange(_LARGE))
            found.counts[result] += 1
            taken += [] if rows is None else [rows]
        except Exception as wrong:
            found.wrong.append(f"{type(wrong).__name__} {str(wrong)[:200]!r} of {text[:400]!r}")
    try:
        _need_stored(pl.concat(taken), Path(kind.replace(" ", "-")))
    except Exception as wrong:
        found.wrong.append(f"stored: {type(wrong).__name__} {str(wrong)[:200]!r}")
    return found


def compared(text: bytes, place: int = 1) -> tuple[str, pl.DataFrame | None]:
    """The result of both readers, among few records and many; AssertionError if they differ."""
    few, many = [*_GOOD[: _SMALL - 1]], [*_GOOD[: _LARGE - 1]]
    few.insert(1, text)
    many.insert(place, text)
    small, large = _read(few, 1), _read(many, place)
    if isinstance(small, str) or isinstance(large, str):
        assert small == large, f"{small} among few, {large} among many"
        return "refused by both", None
    rows = _need_same(small.records, 1, large.records, place)
    _need_expressible(rows, small.records.heads)
    return "read alike" if large.in_columns else "handed over", rows


class _Read(NamedTuple):
    records: Records
    in_columns: bool


def _read(values: list[bytes], place: int) -> _Read | str:
    """The records as `decode` would read them, or the reason why it refuses the one at `place`."""
    series = pl.Series(values, dtype=pl.Binary)
    in_columns = read_in_columns(series, _BATCH) if len(values) >= _LARGE else None
    if in_columns is not None:
        return _Read(in_columns, True)
    try:
        return _Read(read_by_record(series, _BATCH), False)
    except BadRecord as bad:
        refused = bad
    assert refused.record == place, f"record {refused.record} is refused instead of {place}"
    assert refused.reason.isprintable(), f"unprintable: {refused.reason!r}"
    assert len(refused.reason) < _MOST_WORDS, f"{len(refused.reason)} characters of message"
    return refused.reason


def _need_same(few: Records, one: int, many: Records, other: int) -> pl.DataFrame:
    """One record's rows; asserts that rows, head and parts are the same in both."""
    assert few.parts == many.parts
    heads = [
        records.heads.filter(record=record).drop("record")
        for records, record in ((few, one), (many, other))
    ]
    assert_frame_equal(*heads)
    rows = [
        records.rows["r"].filter(_record=record).drop("_record")
        for records, record in ((few, one), (many, other))
    ]
    assert_frame_equal(*rows, check_exact=True)
    # The comparison above treats -0.0 as 0.0.
    assert repr(rows[0].rows()) == repr(rows[1].rows())
    assert many.heads.height == _LARGE, "a record is missing"
    assert many.rows["r"].height == _LARGE - 1 + rows[0].height, "rows of others"
    return rows[0]


def _need_expressible(rows: pl.DataFrame, heads: pl.DataFrame) -> None:
    """Asserts that each value survives its JSON form, and that each commit has a time."""
    for row in rows.select(_RELATION.column_names).iter_rows():
        forms = [t.encode(value) for (_, t), value in zip(_RELATION.columns, row, strict=True)]
        again = orjson.loads(orjson.dumps(forms))
        back = [t.decode(value) for (_, t), value in zip(_RELATION.columns, again, strict=True)]
        assert repr(back) == repr(list(row)), f"{back} of {row}"
    heads.get_column("ts_ms").cast(pl.Datetime("ms")).cast(pl.Datetime("us")).to_list()


def _need_stored(rows: pl.DataFrame, table: Path) -> None:
    write_deltalake(str(table), rows)
    stored = pl.from_arrow(DeltaTable(str(table)).to_pyarrow_table())
    assert isinstance(stored, pl.DataFrame)
    names = rows.columns
    assert_frame_equal(stored.select(names).cast(rows.schema), rows, check_row_order=False)


def _good_rows() -> pl.DataFrame:
    return read_by_record(pl.Series(_GOOD[:3], dtype=pl.Binary), _BATCH).rows["r"].drop("_record")


# -- records to change --------------------------------------------------------------------------


def _row(id_: int) -> tuple[Any, ...]:
    moment = datetime(2024, 2, 29, 12, 30, 0, 125)
    return (id_, 0.5, Decimal("1.50"), Decimal("2.25"), "ä", True, date(2024, 2, 29), moment)


def _encoded(*changes: RowChange, part: GlobalPart | None = None) -> list[dict[str, Any]]:
    texts = encode_transaction("s", 7, 1700, Transaction(changes, part), _CATALOG)
    return [orjson.loads(text) for text in texts]


_GOOD = [
    encode_transaction(
        "s", version, 1700, Transaction((RowChange("r", _row(version), 1),)), _CATALOG
    )[0]
    for version in range(10, 10 + _LARGE)
]
_INSERTED, _DELETED = RowChange("r", _row(1), 1), RowChange("r", _row(1), -1)
_BASES = [
    *_encoded(_INSERTED) * 3,
    *_encoded(_DELETED),
    *_encoded(RowChange("r", (1, None, *_row(1)[2:]), -1), _INSERTED),
    *_encoded(_INSERTED, part=GlobalPart("g", frozenset("st"))),
    *_encoded(RowChange("other", ("y",), 1)),
]


def _base(rng: Random) -> dict[str, Any]:
    content: dict[str, Any] = orjson.loads(orjson.dumps(rng.choice(_BASES)))
    if rng.random() < 0.3:
        content["source"]["lsn"] = 5
    if rng.random() < 0.2:
        content["source"].pop("schema", None)
    return content


def _text(rng: Random, content: dict[str, Any], raw: str) -> bytes:
    """The record with this text in place of `_HERE`, in our layout or with spaces."""
    text = orjson.dumps(content)
    if rng.random() < 0.3:
        text = text.replace(b'"source":', b'"source": ')
    return text.replace(orjson.dumps(_HERE), raw.encode("utf-8", "surrogatepass"))


def _objects(content: Any) -> Iterator[dict[str, Any]]:
    if isinstance(content, dict):
        yield content
        for inner in content.values():
            yield from _objects(inner)


def _any_object(rng: Random, content: dict[str, Any]) -> dict[str, Any]:
    return rng.choice(list(_objects(content)))


# -- kinds of changes ---------------------------------------------------------------------------

_Draw = Callable[[Random], str]


def _digits(rng: Random, alphabet: str, most: int) -> str:
    return "".join(rng.choice(alphabet) for _ in range(rng.randint(0, most)))


def _decimal(rng: Random) -> str:
    whole, rest = (_digits(rng, "0019", rng.choice([1, 7, 28, 29, 38, 80])) for _ in "ab")
    tail = rng.choice(["", "", "", "e", "E-", "e+"])
    tail = tail and tail + _digits(rng, "0129", 9)
    return (
        f'"{rng.choice(["", "-", "+", " "])}{whole}{rng.choice([".", ".", "", "_"])}{rest}{tail}"'
    )


def _moment(rng: Random) -> str:
    day = (rng.choice([0, 1, 1582, 2023, 2024, 9999]), rng.choice([0, 2, 12, 13]))
    text = f"{day[0]:04}-{day[1]:02}-{rng.choice([0, 1, 28, 29, 30, 31, 32]):02}"
    if rng.random() < 0.8:
        clock = ":".join(f"{rng.choice([0, 23, 24, 59, 60]):02}" for _ in range(rng.randint(1, 3)))
        text += rng.choice(" TtT_+") + clock + rng.choice(["", "." + _digits(rng, "019", 9)])
    cut = rng.randrange(len(text) + 1)
    odd = rng.choice(["", "", "", "", "Z", "+01:00", "-01", "0", "-", ":"])
    return f'"{text[:cut]}{odd}{text[cut:]}"' if rng.random() < 0.5 else f'"{text}{odd}"'


def _number(rng: Random) -> str:
    whole = rng.choice([str(rng.randint(-5, 5)), str(2 ** rng.randint(30, 70)), "0" * 3, "1" * 310])
    return rng.choice(["", "", "-"]) + whole + rng.choice(["", "", ".0", ".5", "e1", "E400", "e-9"])


def _string(rng: Random) -> str:
    pieces = ["a", "\\u0000", "\\ud800", "\\udc00", "\\ud83d\\ude00", "\\n", "\n", "\t", "\x7f"]
    pieces += ["\ufeff", "NaN", ":Inf", '\\"', "\\x", "1" * 250, "{[" * 600, "\u2028", '\\",\\"op']
    return '"' + "".join(rng.choice(pieces) for _ in range(rng.randint(1, 4))) + '"'


def _anything(rng: Random) -> str:
    some = ["null", "true", "0", "-0", "1.5", '""', '"x"', "[]", "{}", '{"id":1}', "[null]", "NaN"]
    return rng.choice([*some, _number(rng), _string(rng), _decimal(rng), _moment(rng)])


def _deep(rng: Random) -> str:
    depth = rng.choice([5, 200, 300, 990, 1010, 1030, 100_000])
    start, end, inner = rng.choice([("[", "]", ""), ('{"a":', "}", "1"), ("[1,", "]", "2")])
    return rng.choice([start * depth + inner + end * depth, start * depth, '"' + "x" * depth + '"'])


_DECIMALS = ["1e-77", "1e-999999999", "1e999999999", "NaN", "", ".", ".5", "5.", "1_0", "1.005"]
_DECIMALS += ["1.500", "007", "-0", "1e2", "0E-10", "1" * 37, "9" * 38, "\u0661", "0." + "0" * 80]
_DAYS = ["0000-01-01", "0001-01-01", "9999-12-31", "10000-01-01", "-001-01-01", "20240102", ""]
_DAYS += ["2024-W01-1", "2023-02-29", "2024-1-2", "2024-01-02 ", "2024-01-02T00:00:00"]
_MOMENTS = ["0000-01-01 00:00:00", "2024-01-02", "2024-01-02 10:00:00Z", "2024-01-02 10"]
_MOMENTS += ["2024-01-02T10:00:00.1234567", "2024-01-02 24:00:00", "2024-01-31+01:00", ""]
_NUMBERS = ["-0", "-0.0", "1e3", "1e400", "NaN", "-Infinity", '"NaN"', '"Infinity"', '"1"', "01"]
_NUMBERS += ["9223372036854775807", "9223372036854775808", "-9223372036854775809", "1" * 400]
_HEADS = ["0", "-1", "1", "2", "9223372036854775807", "9223372036854775808", "1e18", "1.0", '"1"']
_HEADS += ["1000000000000000000", "253402300799999", "253402300800000", "null", "true", "01", "-0"]


def _in_column(names: Sequence[str], named: Sequence[str], draw: _Draw) -> "_Kind":
    """Changes a column of an image: first to the named texts, then to drawn ones."""

    def changed(rng: Random) -> Iterator[bytes]:
        for raw, name in product(named, names):
            content = orjson.loads(orjson.dumps(_BASES[0]))
            content["after"][name] = _HERE
            yield _text(rng, content, raw)
        while True:
            content = _base(rng)
            image = content["after"] or content["before"]
            image[rng.choice(names)] = _HERE
            yield _text(rng, content, draw(rng))

    return changed


def _always(change: Callable[[Random], bytes]) -> "_Kind":
    def changed(rng: Random) -> Iterator[bytes]:
        while True:
            yield change(rng)

    return changed


def _quoted(texts: Sequence[str]) -> list[str]:
    return [json.dumps(text) for text in texts]


def _in_head(rng: Random) -> bytes:
    content = _base(rng)
    names = {"source": ("version", "ts_ms"), "transaction": ("total_order", "event_count")}
    inside = rng.choice(list(names))
    content[inside][rng.choice(names[inside])] = _HERE
    return _text(rng, content, rng.choice(_HEADS) if rng.random() < 0.8 else _number(rng))


def _of_another_type(rng: Random) -> bytes:
    content = _base(rng)
    inside = _any_object(rng, content)
    if inside:
        inside[rng.choice(list(inside))] = _HERE
    return _text(rng, content, _anything(rng))


def _missing(rng: Random) -> bytes:
    content = _base(rng)
    for _ in range(rng.randint(1, 2)):
        inside = _any_object(rng, content)
        if inside:
            inside.pop(rng.choice(list(inside)))
    return _text(rng, content, "")


def _unknown(rng: Random) -> bytes:
    content = _base(rng)
    _any_object(rng, content)[rng.choice(["more", "", "ID", "id ", "op\0"])] = _HERE
    return _text(rng, content, _deep(rng) if rng.random() < 0.4 else _anything(rng))


def _twice(rng: Random) -> bytes:
    """Repeats a field, after or before the first one."""
    content = _base(rng)
    inside = _any_object(rng, content)
    name = rng.choice([*inside, "op", "id"])
    inside["@twice@"] = _HERE
    text = _text(rng, content, _anything(rng) if rng.random() < 0.6 else json.dumps(name))
    return text.replace(b'"@twice@"', orjson.dumps(name))


def _op_or_image(rng: Random) -> bytes:
    content = _base(rng)
    content["op"] = rng.choice("cudrCx")
    for image in ("before", "after"):
        if rng.random() < 0.4:
            content[image] = rng.choice([None, {}, [], content["after"], content["before"], "x"])
    if rng.random() < 0.3:
        content["source"]["version"] = 0
    return _text(rng, content, "")


def _global(rng: Random) -> bytes:
    content = _base(rng)
    forms = [None, "g", {}, {"id": "g"}, {"id": 1, "participants": ["s"]}, {"participants": ["s"]}]
    members: list[Any] = [[], ["s"], ["t"], ["s", None], ["s", "s"], "s", {"s": 1}, [["s"]], None]
    forms += [{"id": "g", "participants": each} for each in members]
    place = content if rng.random() < 0.2 else content["transaction"]
    place["global"] = rng.choice(forms)
    return _text(rng, content, "")


def _deep_or_long(rng: Random) -> bytes:
    content = _base(rng)
    inside = _any_object(rng, content)
    inside[rng.choice([*inside, "more"])] = _HERE
    return _text(rng, content, _deep(rng))


def _torn(rng: Random) -> bytes:
    """Cuts, replaces or moves bytes of the text."""
    text = _text(rng, _base(rng), "")
    pieces = [b"", b'"', b"\\", b"{", b"}", b",", b":", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\n"]
    for _ in range(rng.randint(1, 3)):
        start = rng.randrange(len(text) + 1)
        stop = min(len(text), start + rng.choice([0, 1, 1, 5, 40]))
        source = rng.randrange(len(text) + 1)
        piece = rng.choice([*pieces, text[source : source + 30]])
        text = text[:start] + piece + text[stop:]
    return text


def _wrapped(rng: Random) -> bytes:
    """Puts text that does not belong there after, before and between whole records."""
    text = _text(rng, _base(rng), "")
    odd = [b"", b"{}", b"null", b"[]", b"\xef\xbb\xbf", b" ", b"\n", b"\0", b"[", b"]", text]
    return rng.choice(odd) + rng.choice([text, b""]) + rng.choice(odd)


_Kind = Callable[[Random], Iterator[bytes]]
_KINDS: dict[str, _Kind] = {
    "decimals": _in_column(("price", "wide"), _quoted(_DECIMALS), _decimal),
    "dates": _in_column(("day",), _quoted(_DAYS), _moment),
    "timestamps": _in_column(("moment",), _quoted([*_MOMENTS, *_DAYS]), _moment),
    "numbers": _in_column(("id", "weight"), _NUMBERS, _number),
    "strings": _in_column(("name",), (), _string),
    "numbers of the head": _always(_in_head),
    "other types, at any depth": _always(_of_another_type),
    "missing fields": _always(_missing),
    "unknown fields": _always(_unknown),
    "fields twice": _always(_twice),
    "ops and images that differ": _always(_op_or_image),
    "global transactions": _always(_global),
    "deep and long": _always(_deep_or_long),
    "torn text": _always(_torn),
    "text around": _always(_wrapped),
}


if __name__ == "__main__":
    _read_all(**json.loads(sys.argv[1]))
