"""The records that travel from a source to the warehouse; no other file knows how they look.

One record is one changed row, in Debezium's flat JSON form:

    {"before": {…}|null, "after": {…}|null, "op": "c"|"u"|"d"|"r", "ts_ms": …,
     "source": {"db": source, "table": relation, "version": n, "ts_ms": …, "schema": digest},
     "transaction": {"id": "source:n", "total_order": 1…m, "event_count": m,
                     "global": {"id": …, "participants": [source, …]}}}

`global` is there when the transaction is a part of one that spans several sources, and then in all
of its records. Version n is written as m records in a row, so a reader knows by itself when a
transaction is whole.
`schema` is a digest of the relation's columns and types: a table altered under a running view is
found at the first record of the new form. A foreign producer may leave it out.

Reading exists twice. `_read_by_record` takes one record after the other: it defines what a good
record is and says what is wrong with a bad one, and for a handful of records it is also the
quickest. `_read_in_columns` lets Arrow parse a whole batch at once. It only ever accepts what the
other would, and reads the same from it; when in doubt it declines, and the batch is read by record.
"""

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import orjson
import polars as pl
import pyarrow as pa
import pyarrow.json as pj

from protocols.algebra.delta import COUNT
from protocols.algebra.types import ColumnType
from protocols.errors import SourceViolation
from protocols.maintenance.holdback import GlobalPart
from protocols.views.catalog import Catalog, Relation
from sources.transaction import RowChange, Transaction

VERSION = "_version"
RECORD = "_record"

#: From here on the fixed cost of columns, some 4 ms per relation, is worth paying.
_WORTH_COLUMNS = 1500
_HEADS: dict[str, pl.DataType] = {
    "record": pl.Int64(),
    "version": pl.Int64(),
    "order": pl.Int64(),
    "count": pl.Int64(),
    "ts_ms": pl.Int64(),
    "table": pl.String(),
    "op": pl.String(),
}
#: Which of (before, after) a record of each op carries; it never carries the other.
_IMAGES = {"c": (False, True), "u": (True, True), "d": (True, False), "r": (False, True)}
_SNAPSHOT = "r"
_LARGEST = 2**63 - 1


class BadRecord(SourceViolation):
    """A record that cannot be taken; `record` is its index in what was to be decoded."""

    def __init__(self, record: int, source: str, reason: str) -> None:
        super().__init__(f"source {source}, record {record} of the batch: {reason}")
        self.record = record
        self.source = source
        self.reason = reason


@dataclass(frozen=True)
class Records:
    """Decoded records, in columns."""

    #: One row per record that is no tombstone, in order: record (its index in the batch), version,
    #: order and count (place in and size of its transaction), ts_ms (commit), table, op.
    heads: pl.DataFrame
    #: Per relation asked for, the signed rows: its columns, `_count`, `_version`, `_record`.
    rows: dict[str, pl.DataFrame]
    #: Which of the versions are parts of global transactions.
    parts: dict[int, GlobalPart] = field(default_factory=dict)


@lru_cache(maxsize=4096)
def schema_digest(relation: Relation) -> str:
    """Eight hex digits that change with any column's name, type or place."""
    form = orjson.dumps([[name, type_.name] for name, type_ in relation.columns])
    return hashlib.sha256(form).hexdigest()[:8]


# ------------------------------------------------------------------------------------- writing


def encode_transaction(
    source: str, version: int, ts_ms: int, transaction: Transaction, catalog: Catalog
) -> list[bytes]:
    """The records of what a source committed as `version`, in the order in which they are sent."""
    forms = _forms_of(catalog)
    images = [
        (forms[source, relation], before, after)
        for relation, before, after in _images(source, transaction, forms)
    ]
    whole: dict[str, Any] = {"event_count": len(images)}
    if transaction.part is not None:
        participants = sorted(transaction.part.participants)
        whole["global"] = {"id": transaction.part.id, "participants": participants}
    identity = f"{source}:{version}"
    return [
        orjson.dumps(
            {
                "before": form.image(before),
                "after": form.image(after),
                "op": "d" if after is None else "c" if before is None else "u",
                "ts_ms": ts_ms,
                "source": {
                    "db": source,
                    "table": form.relation.name,
                    "version": version,
                    "ts_ms": ts_ms,
                    "schema": form.digest,
                },
                "transaction": {"id": identity, "total_order": order, **whole},
            }
        )
        for order, (form, before, after) in enumerate(images, 1)
    ]


def record_key(record: bytes, catalog: Catalog) -> bytes | None:
    """The message key of one of our own records: its row's key as JSON, None in a bag."""
    content = orjson.loads(record)
    relation = catalog.find(content["source"]["db"], content["source"]["table"])
    if relation is None or not relation.key:
        return None
    row = content["after"] or content["before"]
    return orjson.dumps({column: row[column] for column in relation.key})


class _Form:
    """How the rows of one relation look in a record."""

    def __init__(self, relation: Relation) -> None:
        self.relation = relation
        self.digest = schema_digest(relation)
        names = relation.column_names
        self._names = names
        # All other values orjson writes by itself just as `ColumnType.encode` would.
        self._doubles = [(n, type_) for n, type_ in relation.columns if type_.family == "DOUBLE"]
        self._texts = [
            (n, type_) for n, type_ in relation.columns if type_.family in ("DECIMAL", "TIMESTAMP")
        ]
        self._key = tuple(names.index(column) for column in relation.key)

    def image(self, row: tuple[Any, ...] | None) -> dict[str, Any] | None:
        if row is None:
            return None
        image = dict(zip(self._names, row, strict=True))
        for name, type_ in self._texts:
            image[name] = type_.encode(image[name])
        for name, type_ in self._doubles:
            if image[name] is not None and not math.isfinite(image[name]):
                image[name] = type_.encode(image[name])
        return image

    def key(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple([row[place] for place in self._key])


_Forms = dict[tuple[str, str], _Form]


def _forms_of(catalog: Catalog) -> _Forms:
    """Looked up by identity: to hash a catalog takes as long as to encode a record."""
    known = _known_forms.get(id(catalog))
    if known is None:
        forms = {(relation.source, relation.name): _Form(relation) for relation in catalog}
        if len(_known_forms) >= 64:
            _known_forms.clear()
        # The catalog is kept too, or its id might come to mean another one.
        known = _known_forms[id(catalog)] = (catalog, forms)
    return known[1]


_known_forms: dict[int, tuple[Catalog, _Forms]] = {}


_Image = tuple[str, tuple[Any, ...] | None, tuple[Any, ...] | None]


def _images(source: str, transaction: Transaction, forms: _Forms) -> Iterator[_Image]:
    """(relation, before, after) per record: the old and new row of one key make one record."""
    if len(transaction.changes) == 1:
        yield from _units(transaction.changes[0])
        return
    changes = transaction.net().changes
    by_key: dict[tuple[str, tuple[Any, ...]], list[RowChange]] = {}
    for place, change in enumerate(changes):
        form = forms[source, change.relation]
        # In a bag nothing pairs up: there the place keeps the changes apart.
        key = form.key(change.row) if form.relation.key else (place,)
        by_key.setdefault((change.relation, key), []).append(change)
    for (relation, _), group in by_key.items():
        if len(group) == 2 and {group[0].count, group[1].count} == {-1, 1}:
            old, new = sorted(group, key=lambda change: change.count)
            yield relation, old.row, new.row
        else:
            for change in group:
                yield from _units(change)


def _units(change: RowChange) -> Iterator[_Image]:
    """One record per unit of the count."""
    for _ in range(abs(change.count)):
        before, after = (None, change.row) if change.count > 0 else (change.row, None)
        yield change.relation, before, after


# ------------------------------------------------------------------------------------- reading


def decode(values: pl.Series, relations: Sequence[Relation]) -> Records:
    """What a batch of record values (Binary) of one source says about these relations.

    Tombstones (null values) are skipped. Of relations that are not listed only the heads are read:
    they are needed to see that a transaction is whole. Snapshot records have a head but no rows,
    for version 0 is read from the source itself. Anything wrong raises `BadRecord`.
    """
    batch = _Batch(relations)
    records = _read_in_columns(values, batch) if len(values) >= _WORTH_COLUMNS else None
    return _read_by_record(values, batch) if records is None else records


class _Batch:
    """The relations that a batch is read for; all belong to one source."""

    def __init__(self, relations: Sequence[Relation]) -> None:
        sources = {relation.source for relation in relations}
        if len(sources) != 1:
            raise ValueError(f"records of exactly one source can be decoded, not of {sources}")
        self.source = sources.pop()
        self.relations = {relation.name: relation for relation in relations}

    @cached_property
    def row_schemas(self) -> dict[str, dict[str, pl.DataType]]:
        return {name: _row_schema(relation) for name, relation in self.relations.items()}


def _row_schema(relation: Relation) -> dict[str, pl.DataType]:
    columns = {name: type_.dtype for name, type_ in relation.columns}
    return {**columns, COUNT: pl.Int64(), VERSION: pl.Int64(), RECORD: pl.Int64()}


# ---------------------------------------------------------------------------- one by one


class _RecordError(Exception):
    """What is wrong with the record at hand."""


_Head = tuple[int, int, int, int, str, str]


def _read_by_record(values: pl.Series, batch: _Batch) -> Records:
    heads: list[tuple[Any, ...]] = []
    parts: dict[int, GlobalPart | None] = {}
    rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in batch.relations}
    for record, value in enumerate(values):
        if value is None:
            continue
        try:
            content = _json_object(value)
            head = _head(content, batch)
            heads.append((record, *head))
            version, table, op = head[0], head[4], head[5]
            part = _part(content["transaction"], batch)
            if parts.setdefault(version, part) != part:
                raise _RecordError(other_global(version))
            relation = batch.relations.get(table)
            if relation is not None and op != _SNAPSHOT:
                for row, count in _signed_rows(content, op, relation):
                    rows[table].append((*row, count, version, record))
        except _RecordError as fault:
            raise BadRecord(record, batch.source, str(fault)) from None
    return Records(
        _frame(heads, _HEADS),
        {name: _frame(found, batch.row_schemas[name]) for name, found in rows.items()},
        {version: part for version, part in parts.items() if part is not None},
    )


def _frame(rows: list[tuple[Any, ...]], schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    if not rows:
        return pl.DataFrame(schema=schema)
    columns = zip(schema.items(), zip(*rows, strict=True), strict=True)
    return pl.DataFrame([pl.Series(name, cells, dtype=dtype) for (name, dtype), cells in columns])


def _json_object(value: bytes) -> dict[str, Any]:
    try:
        content = orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise _RecordError(f"not JSON ({error}); {_WRONG_TOPIC}") from None
    if not isinstance(content, dict):
        raise _RecordError(f"JSON, but no object; {_WRONG_TOPIC}")
    return content


_WRONG_TOPIC = "look whether the configuration names the right topic and who else writes to it"
_PRODUCER = "whoever writes this topic has to follow the envelope in sources/envelope.py"


def other_global(version: int) -> str:
    """What is wrong when the records of a transaction disagree about the global one."""
    return (
        f"another global transaction than in a record of version {version} before it; {_PRODUCER}"
    )


def _head(content: dict[str, Any], batch: _Batch) -> _Head:
    """Version, order, count, ts_ms, table, op, all of them checked."""
    op = _field(content, "op", str)
    origin = _field(content, "source", dict)
    transaction = _field(content, "transaction", dict)
    if op not in _IMAGES:
        raise _RecordError(f'unknown op "{op}", there are {", ".join(_IMAGES)}; {_PRODUCER}')
    if content.get("global") is not None:
        raise _RecordError(f'"global" has its place in "transaction"; {_PRODUCER}')
    db, table = _field(origin, "db", str, "source."), _field(origin, "table", str, "source.")
    if db != batch.source:
        raise _RecordError(f'comes from source "{db}"; {_WRONG_TOPIC}')
    _check_digest(origin, table, batch)
    version = _number(origin, "version", "source.")
    if (version == 0) != (op == _SNAPSHOT):
        raise _RecordError(
            f'op "{op}" at version {version}: version 0 is the initial load, and only that has '
            f'op "{_SNAPSHOT}"; {_PRODUCER}'
        )
    _field(transaction, "id", str, "transaction.")
    count = _number(transaction, "event_count", "transaction.")
    order = _number(transaction, "total_order", "transaction.")
    if not 1 <= order <= count:
        raise _RecordError(f"it is number {order} of {count} of its transaction; {_PRODUCER}")
    return version, order, count, _number(origin, "ts_ms", "source."), table, op


def _part(transaction: dict[str, Any], batch: _Batch) -> GlobalPart | None:
    if transaction.get("global") is None:
        return None
    form = _field(transaction, "global", dict, "transaction.")
    id_ = _field(form, "id", str, "transaction.global.")
    participants = form.get("participants")
    if not _are_participants(participants, batch.source):
        raise _RecordError(
            f'"transaction.global.participants" should name sources, {batch.source} among them;'
            f" {_PRODUCER}"
        )
    return GlobalPart(id_, frozenset(participants))


def _are_participants(form: Any, source: str) -> bool:
    return isinstance(form, list) and all(isinstance(n, str) for n in form) and source in form


def _field(content: dict[str, Any], name: str, kind: type, where: str = "") -> Any:
    value = content.get(name)
    if not isinstance(value, kind):
        found = f"is {orjson.dumps(value).decode()[:40]}" if name in content else "is missing"
        kind_name = "a string" if kind is str else "an object"
        raise _RecordError(f'"{where}{name}" {found} and should be {kind_name}; {_PRODUCER}')
    return value


def _number(content: dict[str, Any], name: str, where: str) -> int:
    value = content.get(name)
    if type(value) is not int or not 0 <= value <= _LARGEST:
        found = f"is {orjson.dumps(value).decode()[:40]}" if name in content else "is missing"
        raise _RecordError(f'"{where}{name}" {found} and should be a whole number; {_PRODUCER}')
    return value


def _check_digest(origin: dict[str, Any], table: str, batch: _Batch) -> None:
    relation, digest = batch.relations.get(table), origin.get("schema")
    if relation is None or digest is None or digest == schema_digest(relation):
        return
    columns = ", ".join(f"{name} {type_.name}" for name, type_ in relation.columns)
    raise _RecordError(
        f"the schema of {relation} has changed at the source: the view was made for {columns}. "
        "Give the relation these columns back, or make the view anew from the new ones"
    )


def _signed_rows(
    content: dict[str, Any], op: str, relation: Relation
) -> Iterator[tuple[list[Any], int]]:
    for image, carried, count in zip(("before", "after"), _IMAGES[op], (-1, 1), strict=True):
        cells = content.get(image)
        if carried and isinstance(cells, dict):
            yield _row(cells, image, relation), count
        elif carried or cells is not None:
            wanted = "an object" if carried else "null"
            raise _RecordError(f'op "{op}" of {relation} needs "{image}" as {wanted}; {_PRODUCER}')


def _row(cells: dict[str, Any], image: str, relation: Relation) -> list[Any]:
    try:
        return [type_.decode(cells[name]) for name, type_ in relation.columns]
    except KeyError as missing:
        column = missing.args[0]
        raise _RecordError(
            f'"{image}" lacks column "{column}" of {relation}; {_PRODUCER}'
        ) from None
    except ValueError:
        raise _RecordError(f"{_first_misfit(cells, image, relation)}; {_PRODUCER}") from None


def _first_misfit(cells: dict[str, Any], image: str, relation: Relation) -> str:
    for name, type_ in relation.columns:
        try:
            type_.decode(cells[name])
        except ValueError as error:
            return f'"{image}" of {relation}, column "{name}": {error}'
    raise AssertionError("a row that did not decode decodes now")


# ---------------------------------------------------------------------------- in columns

# Arrow's JSON reader is as strict as `ColumnType.decode`, but for three types: it takes a bare
# 1.5 for a decimal, drops the time zone of a timestamp without a word, and wants a date as a
# number. These are read as text and cast.
_AS_TEXT = ("DECIMAL", "DATE", "TIMESTAMP")
_ARROW: dict[str, Callable[[ColumnType], pa.DataType]] = {
    "BIGINT": lambda _: pa.int64(),
    "DOUBLE": lambda _: pa.float64(),
    "DECIMAL": lambda type_: pa.decimal128(*type_.precision_and_scale),
    "VARCHAR": lambda _: pa.string(),
    "BOOLEAN": lambda _: pa.bool_(),
    "DATE": lambda _: pa.date32(),
    "TIMESTAMP": lambda _: pa.timestamp("us"),
}


class _UnusualError(Exception):
    """Something here is bad or unusual: the batch has to be read by record."""


def _read_in_columns(values: pl.Series, batch: _Batch) -> Records | None:
    try:
        texts = _texts(values)
        heads, rows, globals_ = [], {}, []
        for relation, group in _by_relation(texts, batch):
            parsed = _parse(group, relation)
            heads.append(_heads_in_columns(parsed, batch, relation))
            globals_.append(_globals_in_columns(parsed))
            if relation is not None:
                rows[relation.name] = _rows_in_columns(parsed, group, relation)
        parts = _parts_in_columns(globals_, batch)
    except (_UnusualError, pa.ArrowInvalid, pl.exceptions.PolarsError):
        return None
    for name, schema in batch.row_schemas.items():
        rows.setdefault(name, pl.DataFrame(schema=schema))
    whole = pl.concat(heads) if heads else pl.DataFrame(schema=_HEADS)
    return Records(whole.sort("record"), rows, parts)


def _texts(values: pl.Series) -> pl.DataFrame:
    """The records as text (`json`) with their index, tombstones left out.

    Each has to begin and end like an object: then a text with two values or none in it cannot hide,
    for the number of rows that Arrow finds in the lines would differ.
    """
    texts = pl.DataFrame({RECORD: pl.int_range(len(values), eager=True), "json": values})
    texts = texts.drop_nulls("json").with_columns(pl.col("json").cast(pl.String))
    json = pl.col("json")
    _need(texts.select((json.str.starts_with("{") & json.str.ends_with("}")).all()).item())
    return texts


def _need(condition: object) -> None:
    if condition is not True:
        raise _UnusualError


def _by_relation(
    texts: pl.DataFrame, batch: _Batch
) -> Iterator[tuple[Relation | None, pl.DataFrame]]:
    """The records of each relation, then the others: columns of one name may differ in type.

    The name is looked for in the text, which is a guess that `_heads_in_columns` verifies.
    """
    for name, relation in batch.relations.items():
        tag = f'"table":{orjson.dumps(name).decode()}'
        ours = texts["json"].str.contains(tag, literal=True)
        if ours.any():
            yield relation, texts.filter(ours)
            texts = texts.filter(~ours)
    if not texts.is_empty():
        yield None, texts


def _parse(group: pl.DataFrame, relation: Relation | None) -> pl.DataFrame:
    text = "\n".join(group["json"].to_list()).encode()
    options = pj.ParseOptions(
        explicit_schema=_arrow_schema(relation, as_text=True), unexpected_field_behavior="ignore"
    )
    table = pj.read_json(pa.BufferReader(text), parse_options=options)
    parsed = pl.from_arrow(table.cast(_arrow_schema(relation)))
    _need(isinstance(parsed, pl.DataFrame) and parsed.height == group.height)
    assert isinstance(parsed, pl.DataFrame)
    return parsed.with_columns(group[RECORD])


@lru_cache(maxsize=4096)
def _arrow_schema(relation: Relation | None, as_text: bool = False) -> pa.Schema:
    """What a record holds, as far as it is read. `as_text`: with what is cast afterwards."""
    number, text = pa.int64(), pa.string()
    origin = {"db": text, "table": text, "version": number, "ts_ms": number, "schema": text}
    part = pa.struct([("id", text), ("participants", pa.list_(text))])
    transaction = {"id": text, "total_order": number, "event_count": number, "global": part}
    fields = [
        ("op", text),
        ("source", pa.struct(list(origin.items()))),
        ("transaction", pa.struct(list(transaction.items()))),
        ("global", text),
    ]
    if relation is None:
        return pa.schema(fields)
    cells = pa.struct(
        [
            (name, text if as_text and type_.family in _AS_TEXT else _ARROW[type_.family](type_))
            for name, type_ in relation.columns
        ]
    )
    return pa.schema([*fields, ("before", cells), ("after", cells)])


def _heads_in_columns(
    parsed: pl.DataFrame, batch: _Batch, relation: Relation | None
) -> pl.DataFrame:
    origin, transaction = parsed["source"].struct, parsed["transaction"].struct
    heads = pl.DataFrame(
        {
            "record": parsed[RECORD],
            "version": origin.field("version"),
            "order": transaction.field("total_order"),
            "count": transaction.field("event_count"),
            "ts_ms": origin.field("ts_ms"),
            "table": origin.field("table"),
            "op": parsed["op"],
        }
    )
    others = {
        "db": origin.field("db"),
        "schema": origin.field("schema"),
        "id": transaction.field("id"),
        "global": parsed["global"],
    }
    checked = heads.with_columns(**others)
    _need(checked.select(pl.all_horizontal(_head_laws(batch, relation)).all()).item())
    return heads


def _head_laws(batch: _Batch, relation: Relation | None) -> Iterable[pl.Expr]:
    """What `_head` asks of one record, of all; a missing value fulfils none of them."""
    op, table, version = pl.col("op"), pl.col("table"), pl.col("version")
    yield op.is_in(list(_IMAGES)).fill_null(False)
    yield pl.col("db").eq_missing(pl.lit(batch.source))
    yield (version >= 0).fill_null(False) & ((version == 0) == (op == _SNAPSHOT))
    yield (pl.col("ts_ms") >= 0).fill_null(False)
    yield pl.col("order").is_between(1, pl.col("count")).fill_null(False)
    yield pl.col("id").is_not_null()
    yield pl.col("global").is_null()
    if relation is None:
        yield ~table.is_in(list(batch.relations)).fill_null(True)
    else:
        yield table.eq_missing(pl.lit(relation.name))
        yield pl.col("schema").is_null() | (pl.col("schema") == schema_digest(relation))


def _globals_in_columns(parsed: pl.DataFrame) -> pl.DataFrame:
    """Version, id and participants of each record; null where it is of a local transaction."""
    version = parsed["source"].struct.field("version")
    part = parsed["transaction"].struct.field("global")
    fields = [part.struct.field(name) for name in ("id", "participants")]
    return pl.DataFrame([version, *fields, part.is_not_null().alias("is_part")])


def _parts_in_columns(globals_: list[pl.DataFrame], batch: _Batch) -> dict[int, GlobalPart]:
    """What `_part` finds, for all versions; records of one version have to agree."""
    if not any(each["is_part"].any() for each in globals_):
        return {}
    parts: dict[int, GlobalPart | None] = {}
    for version, id_, participants, is_part in pl.concat(globals_).unique().iter_rows():
        part = None
        if is_part:
            _need(id_ is not None and _are_participants(participants, batch.source))
            part = GlobalPart(id_, frozenset(participants))
        _need(parts.setdefault(version, part) == part)
    return {version: part for version, part in parts.items() if part is not None}


def _rows_in_columns(parsed: pl.DataFrame, texts: pl.DataFrame, relation: Relation) -> pl.DataFrame:
    parsed = parsed.with_columns(texts["json"])
    changes = parsed.filter(pl.col("op") != _SNAPSHOT)
    for image, place in (("before", 0), ("after", 1)):
        carriers = [op for op, carried in _IMAGES.items() if carried[place]]
        carried = changes["op"].is_in(carriers) == changes[image].is_not_null()
        _need(carried.all())
    signed = [_image_rows(changes, "before", -1), _image_rows(changes, "after", 1)]
    rows = pl.concat(signed)
    _need_finite(rows, relation)
    _need_every_null_written(rows, changes, relation)
    # Stable: the old row of a record stays before its new one.
    return rows.sort(RECORD, maintain_order=True)


def _image_rows(changes: pl.DataFrame, image: str, count: int) -> pl.DataFrame:
    present = changes.filter(pl.col(image).is_not_null())
    return present.select(
        pl.col(image).struct.unnest(),
        pl.lit(count, pl.Int64).alias(COUNT),
        pl.col("source").struct.field("version").alias(VERSION),
        RECORD,
    )


def _need_finite(rows: pl.DataFrame, relation: Relation) -> None:
    """Arrow's reader takes a bare NaN for a number; JSON knows none, so neither do we."""
    for name, type_ in relation.columns:
        if type_.family == "DOUBLE":
            _need(rows[name].is_finite().all())


def _need_every_null_written(rows: pl.DataFrame, changes: pl.DataFrame, relation: Relation) -> None:
    """A missing column and a null look the same to Arrow: count the nulls in the text.

    The pattern cannot match inside a string, whose quotes are preceded by a backslash.
    """
    for name in relation.column_names:
        if not rows[name].null_count():
            continue
        nulls = rows.filter(rows[name].is_null()).group_by(RECORD).len("nulls")
        pattern = f"{_as_pattern(orjson.dumps(name).decode())}\\s*:\\s*null"
        written = changes.join(nulls, on=RECORD, how="inner").select(
            pl.col("json").str.count_matches(pattern) >= pl.col("nulls")
        )
        _need(written.to_series().all())


def _as_pattern(text: str) -> str:
    return "".join(char if char.isalnum() else f"\\x{{{ord(char):x}}}" for char in text)
