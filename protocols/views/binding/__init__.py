"""From the text of a view to a tree of operators over relations, names and types checked.

One construct of SQL a file: `select.py` goes through a SELECT clause by clause, `sources.py` reads
FROM, `grouping.py` aggregates, `subqueries.py` what stands in conditions, `setoperations.py` UNION
and its like. What comes out is as the text says it; `views/normal` makes of it what is kept.
"""
