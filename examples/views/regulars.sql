-- Aggregates and HAVING: customers with three orders or more, their least and their greatest one.
-- viewsweep explain examples/views/regulars.sql --workload retail
SELECT customer_id, COUNT(*) AS orders, SUM(amount) AS spent, MIN(amount) AS least,
       MAX(amount) AS greatest
FROM sales.orders
GROUP BY customer_id
HAVING COUNT(*) >= 3
