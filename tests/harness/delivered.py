"""The deliveries of a mailbox at a position, in readable form."""

from typing import Any

from protocols.exchange.mailbox import Group, Mailbox


def at(mailbox: Mailbox[Any], position: int) -> Group:
    """The transactions with this position: (source, version)."""
    found = mailbox.deliveries(position - 1, position)
    pairs = zip(found.source, found.version, strict=True)
    return tuple((found.sources[source], int(version)) for source, version in pairs)
