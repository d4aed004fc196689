"""The views of one job, from received transactions to commits; nothing here knows Spark."""
