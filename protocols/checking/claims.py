"""Checks the claims of a run about itself against its lines.

A state claims a position and a vector. Some claims cannot be true for any contents of the view: a
position twice or out of order, a state of a transaction that is not delivered yet, a vector beyond
its position. Those are refused at every level. Others only keep a run from being complete in
delivery order: a position without a state, a vector behind its position, a position that splits a
global transaction.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from protocols.checking.order import DeliveryOrder, first_half
from protocols.checking.trace import DeliverLine, StateLine, Trace


@dataclass(frozen=True)
class RefutedClaim:
    """A claim that does not hold; `refused` if it cannot be true at any level."""

    position: int
    words: str
    refused: bool


def troubles(trace: Trace, order: DeliveryOrder, last: int) -> list[RefutedClaim]:
    """Finds all of them, by position; `last` is the last position that is judged."""
    found = [*_first(trace), *_in_order(trace), *_vectors(trace, order)]
    found += [*_left_out(trace, order, last), *_halves(trace, order), *_end(trace, order)]
    return sorted(found, key=lambda trouble: (trouble.position, not trouble.refused))


def _first(trace: Trace) -> Iterator[RefutedClaim]:
    if not trace.states:
        yield RefutedClaim(0, "The run has a view, however it shows no state of it", True)
    elif trace.states[0].position != 0:
        at = trace.states[0].position
        yield RefutedClaim(
            0, f"The first state is the whole view at position 0, however it says {at}", True
        )


def _in_order(trace: Trace) -> Iterator[RefutedClaim]:
    delivered = 0
    before: StateLine | None = None
    for line in trace.lines:
        if isinstance(line, DeliverLine):
            delivered = line.position
        if not isinstance(line, StateLine):
            continue
        at = line.position
        if at > delivered:
            words = (
                f"The state of position {at} (line {line.line}) is shown, however at that time "
                f"only {delivered} positions were delivered"
            )
            yield RefutedClaim(at, words, True)
        if before and at == before.position:
            words = f"Position {at} has one state, however lines {before.line} and {line.line} "
            yield RefutedClaim(at, words + "both claim to be it", True)
        if before and at < before.position:
            words = f"States are shown in order, however position {at} (line {line.line}) "
            yield RefutedClaim(at, words + f"follows position {before.position}", True)
        before = line


def _vectors(trace: Trace, order: DeliveryOrder) -> Iterator[RefutedClaim]:
    for state in trace.states:
        if state.position > order.last:
            continue
        prefix = order.prefixes[state.position].tolist()
        claimed = order.row(state.vector)
        for source, has, says in zip(order.sources, prefix, claimed, strict=True):
            if says == has:
                continue
            relation = "ahead of" if says > has else "behind"
            words = (
                f"The deliveries up to position {state.position} end with {source} at version "
                f"{has}, however the state there claims version {says}, {relation} what was "
                "delivered"
            )
            yield RefutedClaim(state.position, words, says > has)


def _left_out(trace: Trace, order: DeliveryOrder, last: int) -> Iterator[RefutedClaim]:
    shown = {state.position for state in trace.states}
    for position in range(1, last + 1):
        if position not in shown:
            names = " and ".join(order.name(part) for part in order.at.get(position, ()))
            words = f"Position {position} delivers {names}, however no state shows it"
            yield RefutedClaim(position, words, False)


def _halves(trace: Trace, order: DeliveryOrder) -> Iterator[RefutedClaim]:
    half = first_half(order, order.prefixes)
    if half is not None and trace.states and half[0] <= order.last:
        position, name = half
        words = (
            f"Position {position} delivers a part of the global transaction {name}, however its "
            "other parts come later or not at all: a state there is half of a transaction"
        )
        yield RefutedClaim(position, words, False)


def _end(trace: Trace, order: DeliveryOrder) -> Iterator[RefutedClaim]:
    if trace.end is None:
        return
    top = order.vector(order.prefixes[-1])
    for source, says in trace.end.delivered.items():
        if says != top[source]:
            words = (
                f"The deliver lines end with version {top[source]} of {source}, however the end "
                f"line says {says}"
            )
            yield RefutedClaim(order.last, words, True)
