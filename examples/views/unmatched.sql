-- EXCEPT ALL: movements by card that no payment accounts for, as often as there are too many.
-- viewsweep explain examples/views/unmatched.sql --workload bank
SELECT account_id, amount FROM ledger.movements WHERE kind = 'card'
EXCEPT ALL
SELECT account_id, amount FROM cards.payments
