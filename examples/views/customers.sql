-- A left join: all customers, with their orders of two pieces or more where there are any.
-- viewsweep explain examples/views/customers.sql --workload retail
SELECT c.id AS customer_id, c.name, c.segment, o.id AS order_id, o.amount
FROM crm.customers c
LEFT JOIN sales.orders o ON o.customer_id = c.id AND o.quantity >= 2
