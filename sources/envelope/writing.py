"""Encodes transactions of a source as records."""

import math
from collections.abc import Iterator
from itertools import chain
from typing import Any

import orjson

from protocols.views.catalog import Catalog, Relation
from sources.envelope.form import schema_digest
from sources.history import CommitHistory, digest_from_text
from sources.transaction import RowChange, Transaction


def encode_transaction(
    source: str,
    version: int,
    ts_ms: int,
    transaction: Transaction,
    catalog: Catalog,
    history: CommitHistory | None = None,
) -> list[bytes]:
    """The records of the transaction that a source commits as `version`, in the order of sending.

    With a history, adds this version to it, and the records carry its digest.
    """
    forms = _forms_of(catalog)
    images = []
    for relation, before, after in _images(source, transaction, forms):
        form = forms[source, relation]
        images.append((form, form.image(before), form.image(after)))
    whole = _whole(transaction, images, history)
    identity = f"{source}:{version}"
    return [
        orjson.dumps(
            {
                "before": orjson.Fragment(before),
                "after": orjson.Fragment(after),
                "op": "d" if after is _NONE else "c" if before is _NONE else "u",
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


def _whole(
    transaction: Transaction, images: list["_Encoded"], history: CommitHistory | None
) -> dict[str, Any]:
    """The part that is the same in all records of a transaction."""
    whole: dict[str, Any] = {"event_count": len(images)}
    if transaction.part is not None:
        participants = sorted(transaction.part.participants)
        whole["global"] = {"id": transaction.part.id, "participants": participants}
    if history is not None:
        whole["history"] = history.commit(_content(images, whole.get("global")))
    return whole


def _content(images: list["_Encoded"], part: dict[str, Any] | None) -> bytes:
    """The content of a version for the history: JSON texts, which delimit themselves."""
    texts = chain.from_iterable((form.name, old, new) for form, old, new in images)
    return b"".join([orjson.dumps(part), *texts])


def head_of(record: bytes) -> tuple[int, int]:
    """The version of one of our own records, and the digest of the history up to it."""
    content = orjson.loads(record)
    history = digest_from_text(content["transaction"].get("history"))
    return int(content["source"]["version"]), history


def record_key(record: bytes, catalog: Catalog) -> bytes | None:
    """The message key of one of our own records: its row's key as JSON, None in a bag."""
    content = orjson.loads(record)
    relation = catalog.find(content["source"]["db"], content["source"]["table"])
    if relation is None or not relation.key:
        return None
    row = content["after"] or content["before"]
    return orjson.dumps({column: row[column] for column in relation.key})


#: Stands for a missing row.
_NONE = b"null"


class _Form:
    """The form of one relation's rows in a record."""

    def __init__(self, relation: Relation) -> None:
        self.relation = relation
        self.digest = schema_digest(relation)
        self.name = orjson.dumps(relation.name)
        names = relation.column_names
        self._names = names
        # orjson writes values of all other types as `ColumnType.encode` does.
        self._doubles = [(n, type_) for n, type_ in relation.columns if type_.family == "DOUBLE"]
        self._texts = [
            (n, type_) for n, type_ in relation.columns if type_.family in ("DECIMAL", "TIMESTAMP")
        ]
        self._key = tuple(names.index(column) for column in relation.key)

    def image(self, row: tuple[Any, ...] | None) -> bytes:
        """The row as JSON text."""
        if row is None:
            return _NONE
        image = dict(zip(self._names, row, strict=True))
        for name, type_ in self._texts:
            image[name] = type_.encode(image[name])
        for name, type_ in self._doubles:
            if image[name] is not None and not math.isfinite(image[name]):
                image[name] = type_.encode(image[name])
        return orjson.dumps(image)

    def key(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple([row[place] for place in self._key])


_Forms = dict[tuple[str, str], _Form]
#: A record: (form of its relation, before, after).
_Encoded = tuple[_Form, bytes, bytes]


def _forms_of(catalog: Catalog) -> _Forms:
    """The forms of a catalog, by its identity: hashing it takes as long as encoding a record."""
    known = _known_forms.get(id(catalog))
    if known is None:
        forms = {(relation.source, relation.name): _Form(relation) for relation in catalog}
        if len(_known_forms) >= 64:
            _known_forms.clear()
        # Keeps the catalog too, so that its id is not reused.
        known = _known_forms[id(catalog)] = (catalog, forms)
    return known[1]


_known_forms: dict[int, tuple[Catalog, _Forms]] = {}


_Image = tuple[str, tuple[Any, ...] | None, tuple[Any, ...] | None]


def _images(source: str, transaction: Transaction, forms: _Forms) -> Iterator[_Image]:
    """(relation, before, after) per record: old and new row of one key are one record."""
    if len(transaction.changes) == 1:
        yield from _units(transaction.changes[0])
        return
    changes = transaction.net().changes
    by_key: dict[tuple[str, tuple[Any, ...]], list[RowChange]] = {}
    for place, change in enumerate(changes):
        form = forms[source, change.relation]
        # In a bag rows do not pair up: there the place keeps the changes apart.
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
