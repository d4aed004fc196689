"""Checks addresses of Kafka brokers before connecting."""

import re

from protocols.errors import WrongUse

_ADDRESS = re.compile(
    r"((PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL)://)?([\w.-]+|\[[0-9a-f:.]+\])(:\d{1,5})?",
    re.IGNORECASE | re.ASCII,
)


def checked_bootstrap(bootstrap: str) -> str:
    """The broker addresses as Kafka's clients accept them; WrongUse if they are malformed."""
    for address in bootstrap.split(","):
        if _ADDRESS.fullmatch(address.strip()) is None:
            raise WrongUse(
                f"{address.strip()!r} is not the address of a Kafka broker;"
                " it has the form HOST:PORT"
            )
    return bootstrap
