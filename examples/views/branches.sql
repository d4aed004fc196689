-- A CTE that is grouped once more: per city, how many accounts were used, and the busiest of them.
-- viewsweep explain examples/views/branches.sql --workload bank
WITH used AS (
    SELECT a.id, b.city, COUNT(*) AS movements
    FROM ledger.movements m
    JOIN core.accounts a ON m.account_id = a.id
    JOIN network.branches b ON a.branch_id = b.id
    GROUP BY a.id, b.city
)
SELECT city, COUNT(*) AS accounts, MAX(movements) AS busiest
FROM used
GROUP BY city
