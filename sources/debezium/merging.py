"""Transactions that a killed connector has published in part, and again.

    BEGIN 7   a b              BEGIN 7   a b c d   END 7, 4     all of it again
    BEGIN 7   a b              BEGIN 7   c d       END 7, 2     only the rest

All parts become one transaction: a change that stands in several of them counts once, and the END
counts all.
"""

from collections import Counter

import numpy as np
import orjson

from protocols.exchange.deliveries import Numbers
from sources.debezium.decoding import BEGIN, END, Events


def with_silent_ends(events: Events) -> Events:
    """The events with an END for each transaction that has none because it changes no row.

    It is a BEGIN directly before the BEGIN of a later one: after a crash a connector goes on with
    the same transaction, or with earlier ones.
    """
    kinds, numbers = events["kind"], events["tx"]
    both = (kinds[:-1] == BEGIN) & (kinds[1:] == BEGIN)
    silent = np.flatnonzero(both & (numbers[1:] > numbers[:-1]))
    if not len(silent):
        return events
    found = events.at(np.insert(np.arange(len(events)), silent + 1, silent))
    found["kind"][silent + 1 + np.arange(len(silent))] = END
    return found


def is_torn(events: Events) -> bool:
    """Whether a transaction begins before the one before it has ended."""
    marks = events["kind"][events["kind"] != 1]
    return bool((marks[1:] == marks[:-1]).any())


def merged(events: Events) -> tuple[Events, Numbers]:
    """The events without repetitions, transaction by transaction; and those that are not whole.

    The second are the places (in the events given) of transactions that have no END yet.
    """
    #: Transaction → its first BEGIN, and its changes so far.
    torn: dict[int, tuple[int, list[int]]] = {}
    places: list[int] = []
    counts: list[tuple[int, int]] = []
    for start, stop in _segments(events):
        tx, ended = int(events["tx"][start]), events["kind"][stop - 1] == END
        changes = list(range(start + 1, stop - 1 if ended else stop))
        begin, parts = torn.pop(tx, (start, []))
        earlier = _not_in(events, parts, changes)
        if not ended:
            torn[tx] = begin, [*earlier, *changes]
            continue
        places += [begin, *earlier, *changes]
        counts.append((len(places), int(events["count"][stop - 1]) + len(earlier)))
        places.append(stop - 1)
    found = events.at(np.array(places, np.int64))
    for place, count in counts:
        found["count"][place] = count
    rest = np.setdiff1d(np.arange(len(events)), places)
    return found, rest[np.isin(events["tx"][rest], list(torn))]


def _segments(events: Events) -> list[tuple[int, int]]:
    """The stretches from each BEGIN to the next one."""
    begins = np.flatnonzero(events["kind"] == BEGIN)
    return list(zip(begins.tolist(), [*begins[1:].tolist(), len(events)], strict=True))


def _not_in(events: Events, earlier: list[int], later: list[int]) -> list[int]:
    """Those of the earlier changes that the later ones do not repeat."""
    repeated = Counter(orjson.dumps(events.identity[place]) for place in later)
    found = []
    for place in earlier:
        identity = orjson.dumps(events.identity[place])
        if repeated[identity] > 0:
            repeated[identity] -= 1
        else:
            found.append(place)
    return found
