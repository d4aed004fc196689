-- The running example of Quass, Gupta, Mumick and Widom, "Making Views Self-Maintainable for Data
-- Warehousing" (1996): toys sold in California in 1996.
-- viewsweep advise examples/auxiliary/cal_toy_sales.sql --catalog examples/auxiliary/department_stores.json
SELECT store.manager, sale.sale_id, sale.month, item.item_id, item.item_name, line.line_id, line.sales_price
FROM shop.store, shop.sale, shop.line, shop.item
WHERE store.store_id = sale.store_id
  AND sale.sale_id = line.sale_id
  AND line.item_id = item.item_id
  AND store.state = 'CA'
  AND sale.year = 1996
  AND item.category = 'toy'
