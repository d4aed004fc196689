-- Two sums at two sources, joined: what each account was credited less what was paid by its cards.
-- viewsweep explain examples/views/balance.sql --workload bank
WITH credits AS (
    SELECT account_id, SUM(amount) AS credited FROM ledger.movements GROUP BY account_id
), debits AS (
    SELECT account_id, SUM(amount) AS debited FROM cards.payments GROUP BY account_id
)
SELECT account_id, COALESCE(credited, 0) - COALESCE(debited, 0) AS balance
FROM credits FULL OUTER JOIN debits USING (account_id)
