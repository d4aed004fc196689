"""Checks transactions by their own content, before the source compares them with its rows.

Values must have the declared types, no key and no mandatory foreign key may be NULL, and the source
must be a participant of a global transaction that it commits a part of.
"""

from collections.abc import Callable, Sequence

from protocols.errors import WrongUse
from protocols.exchange.holdback import GlobalPart
from protocols.views.catalog import Relation
from sources.simulated.rows import shown
from sources.transaction import RowChange, Transaction, net_changes

#: The largest count of one change. Each unit is a row and a record, so more is a mistake.
MOST_UNITS = 1_000_000


class TransactionRefused(WrongUse):
    """The source refuses a transaction; `index` is its place in the given group."""

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(reason)
        self.index = index


def admitted(
    index: int, transaction: Transaction, source: str, relation: Callable[[str], Relation]
) -> Transaction:
    """The net transaction, with values converted to the declared types."""
    changes = []
    for change in transaction.changes:
        try:
            changes.append(_typed(relation(change.relation), change))
        except WrongUse as error:
            raise TransactionRefused(index, str(error)) from None
    net = net_changes(changes)
    _check_part(index, source, transaction.part, net)
    return Transaction(net, transaction.part)


def _check_part(index: int, source: str, part: GlobalPart | None, net: Sequence[RowChange]) -> None:
    """The part must name this source and publish something, since other parts wait for it."""
    if part is None:
        return
    if source not in part.participants:
        raise TransactionRefused(
            index,
            f"global transaction {part.id!r} has the participants"
            f" {', '.join(sorted(part.participants))}; this is source {source}",
        )
    if not net:
        raise TransactionRefused(
            index,
            f"global transaction {part.id!r} changes nothing at source {source}, so"
            " nothing would be published, and its other parts would wait for ever",
        )


def _typed(relation: Relation, change: RowChange) -> RowChange:
    """Converts each value to the type of its column; refuses NULL where it is not allowed."""
    row, count = change.row, change.count
    if not isinstance(count, int) or isinstance(count, bool) or abs(count) > MOST_UNITS:
        raise WrongUse(
            f"relation {relation}: row {shown(row)}: the count is {count!r},"
            f" but must be a whole number within ±{MOST_UNITS}"
        )
    if len(row) != len(relation.columns):
        raise WrongUse(
            f"relation {relation}: row {shown(row)} has {len(row)} values,"
            f" but the relation has {len(relation.columns)} columns"
        )
    values = []
    for (name, type_), value in zip(relation.columns, row, strict=True):
        try:
            decoded = type_.decode(value)
            if type_.family == "VARCHAR" and value is not None:
                value.encode()
        except ValueError as error:
            where = f"relation {relation}, column {name}, row {shown(row)}"
            raise WrongUse(f"{where}: {error}") from None
        if decoded is None and name in relation.never_null:
            what = relation.why_never_null(name)
            raise WrongUse(f"relation {relation}, row {shown(row)}: {what} {name} is NULL")
        values.append(decoded)
    return RowChange(change.relation, tuple(values), count)
