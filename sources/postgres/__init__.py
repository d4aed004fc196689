"""PostgreSQL databases as sources: asked directly, their changes read from Debezium's topic.

    source.py      the adapter
    connecting.py  connections, and the two statements that tell what an answer contains
    describing.py  relations, types and keys from the catalog of the database
    lookup.py      a question as SQL
    inclusion.py   from a snapshot of the database to the numbers of transactions

An answer and a message to the topic are written in one read-only transaction:

    BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY
      snapshot, own number, message into the log ── rows ──
    COMMIT ──> the message's END passes in the topic: all that the answer contains has come before
"""
