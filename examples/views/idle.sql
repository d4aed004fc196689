-- NOT IN: accounts without card payments; a payment of nobody's account (NULL) would empty the view.
-- viewsweep explain examples/views/idle.sql --workload bank
SELECT a.id, a.owner
FROM core.accounts a
WHERE a.id NOT IN (SELECT p.account_id FROM cards.payments p)
