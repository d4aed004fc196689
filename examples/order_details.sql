-- Every order of two pieces or more, with its customer and its product.
-- Columns that no output needs stay at the sources; so do all rows.
SELECT o.id AS order_id, c.id AS customer_id, p.id AS product_id,
       c.name AS customer, c.segment, p.name AS product, p.price, o.quantity, o.amount
FROM sales.orders o
JOIN crm.customers c ON o.customer_id = c.id
JOIN stock.products p ON o.product_id = p.id
WHERE o.quantity >= 2
