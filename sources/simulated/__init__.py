"""A source of our own making: a DuckDB database that commits, publishes and answers."""
