"""A bank: accounts at `core`, branches at `network`, movements of money at `ledger`.

A transfer touches two rows in one transaction: two balances at `core`, two movements at `ledger`.
An account that moves to another branch changes all its movements in the view; during the move it
has no branch.

Payments by card are at `cards`. The view `balance` is the credit of each account less its card
payments: sums at two sources, and an account may be missing at either of them.
"""

from collections.abc import Sequence
from datetime import date, datetime, timedelta

from protocols.views.catalog import relation_from_json
from sources.simulated.workloads.dice import Dice, money
from sources.simulated.workloads.stream import Row, Table, Workload

ACCOUNTS = relation_from_json(
    "core",
    "accounts",
    {
        "columns": {
            "id": "BIGINT",
            "branch_id": "BIGINT",
            "owner": "VARCHAR",
            "balance": "DECIMAL(14,2)",
            "frozen": "BOOLEAN",
        },
        "key": ["id"],
    },
)
BRANCHES = relation_from_json(
    "network",
    "branches",
    {
        "columns": {"id": "BIGINT", "city": "VARCHAR", "manager": "VARCHAR", "opened": "DATE"},
        "key": ["id"],
    },
)
MOVEMENTS = relation_from_json(
    "ledger",
    "movements",
    {
        "columns": {
            "id": "BIGINT",
            "account_id": "BIGINT",
            "kind": "VARCHAR",
            "amount": "DECIMAL(14,2)",
            "booked_at": "TIMESTAMP",
        },
        "key": ["id"],
    },
)
PAYMENTS = relation_from_json(
    "cards",
    "payments",
    {
        "columns": {
            "id": "BIGINT",
            "account_id": "BIGINT",
            "merchant": "VARCHAR",
            "amount": "DECIMAL(14,2)",
            "paid_on": "DATE",
        },
        "key": ["id"],
    },
)
VIEW = """\
SELECT m.id AS movement_id, a.id AS account_id, b.id AS branch_id,
       a.owner, b.city, m.kind, m.amount, m.booked_at
FROM ledger.movements m
JOIN core.accounts a ON m.account_id = a.id
JOIN network.branches b ON a.branch_id = b.id
WHERE m.kind <> 'fee'
"""
BALANCE = """\
WITH credits AS (
    SELECT account_id, SUM(amount) AS credited FROM ledger.movements GROUP BY account_id
), debits AS (
    SELECT account_id, SUM(amount) AS debited FROM cards.payments GROUP BY account_id
)
SELECT account_id, COALESCE(credited, 0) - COALESCE(debited, 0) AS balance
FROM credits FULL OUTER JOIN debits USING (account_id)
"""

_CITIES = ("Aarhus", "Bilbao", "Coimbra", "Dresden", "Évora", "Florence", "Genève", "Haarlem")
_PEOPLE = ("Aki", "Bea", "Carlos", "Dana", "Élodie", "Femke", "Giulia", "Hakim", "Ivana")
_KINDS = ("cash", "card", "fee", "interest")
_MERCHANTS = ("bakery", "cinema", "dentist", "grocer", "station", "tailor")
_OPENING = datetime(2024, 1, 1, 0, 0, 0)


def _accounts(scale: int) -> int:
    return scale


def _branches(scale: int) -> int:
    return max(scale // 20, 5)


def _movements(scale: int) -> int:
    return 3 * scale


def _payments(scale: int) -> int:
    return 2 * scale


def _new_accounts(dice: Dice, scale: int, ids: Sequence[int]) -> list[Row]:
    return [
        (
            each,
            None if dice.chance(0.03) else 1 + dice.skewed_below(_branches(scale)),
            f"{dice.pick(_PEOPLE)} {each}",
            dice.cents(0, 1_000_000),
            dice.chance(0.02),
        )
        for each in ids
    ]


def _changed_accounts(dice: Dice, scale: int, rows: Sequence[Row]) -> list[Row]:
    """Several accounts pay each other; a single one moves to another branch."""
    if len(rows) == 1:
        each, branch, owner, balance, frozen = rows[0]
        to = 1 + ((branch or 0) + dice.below(_branches(scale) - 1)) % _branches(scale)
        return [(each, None if branch and dice.chance(0.03) else to, owner, balance, frozen)]
    amount = dice.cents(1, 50_000)
    # All but the last pay the last one.
    signs = [-1] * (len(rows) - 1) + [len(rows) - 1]
    return [
        (each, branch, owner, balance + sign * amount, frozen)
        for (each, branch, owner, balance, frozen), sign in zip(rows, signs, strict=True)
    ]


def _new_branches(dice: Dice, _scale: int, ids: Sequence[int]) -> list[Row]:
    return [
        (
            each,
            dice.pick(_CITIES),
            dice.pick(_PEOPLE),
            date(1950, 1, 1) + timedelta(days=dice.below(25_000)),
        )
        for each in ids
    ]


def _changed_branches(dice: Dice, _scale: int, rows: Sequence[Row]) -> list[Row]:
    """Changes the manager, or moves the whole branch to another town."""
    if dice.chance(0.5):
        return [
            (each, city, dice.other(_PEOPLE, manager), opened)
            for each, city, manager, opened in rows
        ]
    return [
        (each, dice.other(_CITIES, city), manager, opened) for each, city, manager, opened in rows
    ]


def _new_movements(dice: Dice, scale: int, ids: Sequence[int]) -> list[Row]:
    """Several at once are a transfer: the last account gets what the others pay."""
    if len(ids) == 1:
        cents = dice.below(100_000) - 60_000
        return [_movement(dice, scale, ids[0], dice.pick(_KINDS), cents)]
    cents = 1 + dice.below(50_000)
    paid = [_movement(dice, scale, each, "transfer", -cents) for each in ids[:-1]]
    return [*paid, _movement(dice, scale, ids[-1], "transfer", cents * len(paid))]


def _movement(dice: Dice, scale: int, movement: int, kind: str, cents: int) -> Row:
    return (
        movement,
        _linked_account(dice, scale),
        kind,
        money(cents),
        _OPENING + timedelta(seconds=11 * movement, microseconds=dice.below(1_000_000)),
    )


def _linked_account(dice: Dice, scale: int) -> int:
    return 1 + dice.skewed_below(_accounts(scale) + _accounts(scale) // 20 + 1)


def _changed_movements(dice: Dice, _scale: int, rows: Sequence[Row]) -> list[Row]:
    """Corrects bookings: a few cents more, sometimes as a fee."""
    return [
        (
            each,
            account,
            "fee" if dice.chance(0.1) else kind,
            amount + dice.cents(1, 10_000),
            booked_at,
        )
        for each, account, kind, amount, booked_at in rows
    ]


def _new_payments(dice: Dice, scale: int, ids: Sequence[int]) -> list[Row]:
    """Several at once are paid with one card."""
    account = _linked_account(dice, scale)
    return [
        (
            each,
            account,
            dice.pick(_MERCHANTS),
            dice.cents(100, 20_000),
            _OPENING.date() + timedelta(days=each // 50),
        )
        for each in ids
    ]


def _changed_payments(dice: Dice, scale: int, rows: Sequence[Row]) -> list[Row]:
    """Adds a tip; sometimes the card turns out to belong to another account."""
    changed = []
    for each, account, merchant, amount, paid_on in rows:
        payer = _linked_account(dice, scale) if dice.chance(0.2) else account
        changed.append((each, payer, merchant, amount + dice.cents(1, 500), paid_on))
    return changed


BANK = Workload(
    name="bank",
    view=VIEW,
    further={"balance": BALANCE},
    tables={
        "core": (Table(ACCOUNTS, _accounts, _new_accounts, _changed_accounts),),
        "network": (Table(BRANCHES, _branches, _new_branches, _changed_branches),),
        "ledger": (Table(MOVEMENTS, _movements, _new_movements, _changed_movements),),
        "cards": (Table(PAYMENTS, _payments, _new_payments, _changed_payments),),
    },
)
