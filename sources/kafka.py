"""A Kafka cluster as a client sees it."""

from typing import TypeAlias

#: The addresses of its brokers.
Kafka: TypeAlias = str
