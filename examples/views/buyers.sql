-- EXISTS: the customers who ordered something that can still be had.
-- viewsweep explain examples/views/buyers.sql --workload retail
SELECT c.id, c.name
FROM crm.customers c
WHERE EXISTS (
    SELECT 1 FROM sales.orders o JOIN stock.products p ON o.product_id = p.id
    WHERE o.customer_id = c.id AND p.available
)
