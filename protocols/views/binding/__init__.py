"""Reads the text of a view into a tree of operators over relations; checks names and types.

Each file reads one construct of SQL: `select.py` goes through a SELECT clause by clause,
`sources.py` reads FROM, `grouping.py` aggregates, `conditions.py` takes conditions apart,
`subqueries.py` reads the subqueries in them, `setoperations.py` UNION and its like. The resulting
tree follows the text; `views/normal` turns it into the form that is kept. `resolved.py` gives the
clauses of a SELECT with names resolved, for questions about the text rather than the tree.
"""
