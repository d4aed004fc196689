"""The tests: a folder for each question, and in it a folder for each room.

| folder | question |
|---|---|
| `unit` | does the piece do what it says? |
| `property` | do the laws hold for drawn values? |
| `simulation` | does any schedule break a protocol? |
| `replay` | does yesterday's failure stay fixed? |
| `conformance` | does an adapter keep the rules of the port for sources? |
| `integration` | do Kafka, Spark, Delta, DuckDB and processes behave as the code assumes? |

`unit` and `integration` have the folders of the product (`unit/protocols/exchange` tests
`protocols/exchange`); `integration/system` runs all rooms together, each part a process.
`property`, `simulation` and `replay` are about `protocols`, `conformance` about `sources/port.py`:
its rules know the port only, and each adapter tells them how to make a database behind it.

`harness` has what tests are run with, `cases` the views and scenarios that they are run on.
"""
