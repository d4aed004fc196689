"""The JSON form of transactions in the body of a commit and in files of `sources apply`.

    {"changes": [{"relation": "item", "row": [1, "pen"], "count": 1}],
     "global": {"id": "t1", "participants": ["shop", "bank"]}}

`global` marks a part of a transaction over several sources.
"""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import orjson

from protocols.algebra.types import ColumnType
from protocols.errors import WrongUse
from protocols.exchange.holdback import GlobalPart
from protocols.views.catalog import Relation
from sources.transaction import RowChange, Transaction
from sources.wire.bounds import loads


def encode_transactions(
    transactions: list[Transaction], relations: Mapping[str, Relation]
) -> bytes:
    """Encodes the body of a commit, in the form that `sources apply` reads."""
    return orjson.dumps(
        [
            {
                "changes": [_change_to_json(change, relations) for change in each.changes],
                **({} if each.part is None else {"global": _part_to_json(each.part)}),
            }
            for each in transactions
        ]
    )


def _part_to_json(part: GlobalPart) -> dict[str, Any]:
    return {"id": part.id, "participants": sorted(part.participants)}


def decode_transactions(body: bytes, relations: Mapping[str, Relation]) -> list[Transaction]:
    """Decodes the transactions in the body of a commit."""
    forms = loads(body, "list of transactions")
    if not isinstance(forms, list):
        raise WrongUse("the transactions must be a JSON array")
    return [
        transaction_from_json(form, f"transaction {index}", relations)
        for index, form in enumerate(forms)
    ]


def transaction_from_json(form: Any, where: str, relations: Mapping[str, Relation]) -> Transaction:
    """Reads one transaction `{"changes": [{"relation", "row", "count"}]}`, values in JSON form.

    A part of a global transaction has `"global": {"id": …, "participants": […]}`.
    """
    if not isinstance(form, dict) or not isinstance(form.get("changes"), list):
        raise WrongUse(f'{where}: needs the form {{"changes": [{{"relation", "row", "count"}}]}}')
    odd = sorted(set(form) - {"changes", "global"})
    if odd:
        raise WrongUse(f"{where}: unknown field {odd[0]!r}")
    return Transaction(
        tuple(
            _change_from_json(change, f"{where}, change {number}", relations)
            for number, change in enumerate(form["changes"])
        ),
        None if form.get("global") is None else _part_from_json(form["global"], where),
    )


def _plain(value: Any, type_: ColumnType) -> Any:
    """Turns a number kept as written (as `sources apply` reads it) into a float, except for
    DECIMAL."""
    if isinstance(value, Decimal) and type_.family != "DECIMAL":
        return float(value)
    return value


def _part_from_json(form: Any, where: str) -> GlobalPart:
    match form:
        case {"id": str(id_), "participants": list(names), **odd} if (
            id_ and names and not odd and all(isinstance(name, str) for name in names)
        ):
            return GlobalPart(id_, frozenset(names))
    raise WrongUse(f'{where}: "global" needs the form {{"id": "…", "participants": ["…", …]}}')


def _change_from_json(form: Any, where: str, relations: Mapping[str, Relation]) -> RowChange:
    match form:
        case {"relation": str(name), "row": list(row), "count": int(count), **odd} if not (
            odd or isinstance(count, bool)
        ):
            relation = relations.get(name)
        case _:
            raise WrongUse(f'{where}: needs the form {{"relation": "…", "row": […], "count": 1}}')
    if relation is None:
        raise WrongUse(f"{where}: no relation {name!r}; choose one of: {', '.join(relations)}")
    if len(row) != len(relation.columns):
        raise WrongUse(
            f"{where}: {len(row)} values were given, but relation {relation} has"
            f" {len(relation.columns)} columns"
        )
    values = []
    for (column, type_), value in zip(relation.columns, row, strict=True):
        try:
            values.append(type_.decode(_plain(value, type_)))
        except ValueError as error:
            raise WrongUse(f"{where}: relation {relation}, column {column}: {error}") from None
    return RowChange(name, tuple(values), count)


def _change_to_json(change: RowChange, relations: Mapping[str, Relation]) -> dict[str, Any]:
    relation = relations.get(change.relation)
    if relation is None or len(change.row) != len(relation.columns):
        row = list(change.row)
    else:
        typed = zip(relation.columns, change.row, strict=True)
        row = [type_.encode(value) for (_, type_), value in typed]
    return {"relation": change.relation, "row": row, "count": change.count}
