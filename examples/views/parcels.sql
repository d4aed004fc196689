-- A plain join of four relations: each parcel with its order, the contract and the agent behind it.
-- viewsweep explain examples/views/parcels.sql --workload chain4
SELECT p.number AS parcel, o.number AS ordered, c.number AS contract, a.number AS agent,
       p.amount, a.label
FROM shipping.parcels p
JOIN sales.orders o ON p.order_id = o.number
JOIN legal.contracts c ON o.contract_id = c.number
JOIN staff.agents a ON c.agent_id = a.number
