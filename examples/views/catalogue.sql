-- A three-way outer join: customers without orders and products that nobody ordered are there, too.
-- viewsweep explain examples/views/catalogue.sql --workload retail
SELECT c.id AS customer_id, o.id AS order_id, p.id AS product_id, c.name, o.amount, p.price
FROM sales.orders o
RIGHT JOIN crm.customers c ON o.customer_id = c.id
FULL JOIN stock.products p ON o.product_id = p.id
