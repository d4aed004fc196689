-- ALL: accounts whose balance is above each single payment by card.
-- viewsweep explain examples/views/covered.sql --workload bank
SELECT a.id, a.owner, a.balance
FROM core.accounts a
WHERE a.balance > ALL (SELECT p.amount FROM cards.payments p WHERE p.account_id = a.id)
