"""The rules that every adapter of the port for sources (sources/port.py) keeps.

    adapter.py    what the suite has to be told about an adapter: how to make a database behind it,
                  commit to it, publish, break and reset it
    story.py      the relations of such a database, and random transactions over them
    committed.py  the oracle: the list of committed transactions, evaluated by DuckDB
    reading.py    reads partitions through the port, as a job does
    rules/        one function for each rule
    suite.py      `violations(adapter)`: all rules, and what breaks them
    adapters/     one file for each adapter, and defects of one that the suite has to name

The rules use the port and Kafka only. What a record looks like only the adapters know.
"""
