"""MariaDB databases as sources: asked directly, their changes read from Debezium's topic.

    source.py      the adapter
    logform.py     GTIDs in Debezium's records
    connecting.py  connections, and the marks that questions leave in the log
    describing.py  relations, types and keys from the information schema
    lookup.py      a question as SQL

A question is asked between two marks, rows of a table of their own:

    mark ── rows, each read at a moment of its own ── mark

Everything before the first mark is visible when its commit returns, since MariaDB commits in the
order of its log; nothing after the second was there when the rows were read. Whatever changed
between is taken from the topic, by its key. (PostgreSQL promises no such thing; it has snapshots
instead.)
"""
