"""The tests: a folder for each question, and in it a folder for each room.

| folder | question |
|---|---|
| `unit` | does the piece do what it says? |
| `property` | do the laws hold for drawn values? |
| `simulation` | does any schedule break a protocol? |
| `replay` | does yesterday's failure stay fixed? |
| `integration` | do Kafka, Spark, Delta, DuckDB and processes behave as the code assumes? |

`unit` and `integration` have the folders of the product (`unit/protocols/exchange` tests
`protocols/exchange`); `integration/system` runs all rooms together, each part a process.
`property`, `simulation` and `replay` are about `protocols`.

`harness` has what tests are run with, `cases` the views and scenarios that they are run on.
"""
