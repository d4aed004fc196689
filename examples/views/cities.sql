-- DISTINCT over a join: the kinds of movements that each city has seen.
-- viewsweep explain examples/views/cities.sql --workload bank
SELECT DISTINCT b.city, m.kind
FROM ledger.movements m
JOIN core.accounts a ON m.account_id = a.id
JOIN network.branches b ON a.branch_id = b.id
