"""What tests are run with.

| file | |
|---|---|
| `waiting.py` | waits for a condition, longer on a busy machine |
| `world.py` | a job without Spark over three real sources; the fixture `world` |
| `records.py`, `topics.py` | the records of topics, cut into batches; topics changed by others |
| `truth.py` | the view at any vector, from DuckDB |
| `severalviews.py`, `cluster.py` | jobs over several views of a world; executors in this process |
| `command.py` | `viewsweep run` over a world, in this process or its own; the fixture `command` |
| `system.py`, `crashes.py` | everything as processes, and their crashes |
| `stored.py` | the tables of a small view, without sources |
| `campaigns.py`, `oracle.py` | simulated runs, planted defects, and the truth about them |
| `watching.py`, `delivered.py` | what operators ask; what a mailbox delivered |
| `running.py` | any command, as its entry point runs it |
"""
