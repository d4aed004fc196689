"""Records as Debezium publishes them: one topic for each database, in the order of its log.

    BEGIN 736   c item  u item  c bag   END 736, 3 records     one transaction
    BEGIN 740   m token                 END 740, 1 record      a message of ours, no transaction

The transactions are numbered here, by the ENDs of those that change a table. A connector that was
killed publishes again what it had published: whole transactions, or the rest of one under a second
BEGIN. Both are recognized (merging.py, numbering.py).
"""
