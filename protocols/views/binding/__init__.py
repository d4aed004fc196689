"""From the text of a view to a tree of operators over relations, names and types checked.

One construct of SQL a file: `select.py` goes through a SELECT clause by clause, `sources.py` reads
FROM, `grouping.py` aggregates, `conditions.py` takes conditions apart, `subqueries.py` reads what
stands in them, `setoperations.py` UNION and its like. What comes out is as the text says it;
`views/normal` makes of it what is kept. `resolved.py` tells the clauses of a SELECT, with its names
resolved, to whoever asks about the text and not about how it is kept.
"""
