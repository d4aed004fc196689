"""The addresses of Kafka brokers, checked before anybody is asked."""

import re

from protocols.errors import WrongUse

_ADDRESS = re.compile(
    r"((PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL)://)?([\w.-]+|\[[0-9a-f:.]+\])(:\d{1,5})?",
    re.IGNORECASE | re.ASCII,
)


def checked_bootstrap(bootstrap: str) -> str:
    """The addresses of brokers, as Kafka's clients take them; WrongUse if they never would."""
    for address in bootstrap.split(","):
        if _ADDRESS.fullmatch(address.strip()) is None:
            raise WrongUse(
                f"{address.strip()!r} is no address of a Kafka broker, which looks like HOST:PORT"
            )
    return bootstrap
