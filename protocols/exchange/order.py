"""The order of delivery: one sequence over all sources that keeps the order of each."""

from collections.abc import Callable, Mapping

import numpy as np

from protocols.exchange.deliveries import Numbers

#: (source, after, upto) → the commit times of its versions in (after, upto], by the source's clock.
Times = Callable[[str, int, int], Numbers]


def positions_of(
    batch: Mapping[str, tuple[int, int]], times: Times
) -> tuple[tuple[str, ...], Numbers, Numbers]:
    """The order of a batch: per source the versions (after, upto], merged by time of commit.

    Returns the names of the sources, and for each position the index of its source and its version.
    The order is deterministic for a given batch and extends each source's own order: commit times
    are made ascending within a source first, because clocks may step back. For equal times the
    sources come in the order of their names.
    """
    sources = tuple(sorted(batch))
    spans = [batch[source] for source in sources]
    ascending = [
        np.maximum.accumulate(times(source, after, upto))
        for source, (after, upto) in zip(sources, spans, strict=True)
    ]
    nothing = np.empty(0, np.int64)
    order = np.argsort(np.concatenate([nothing, *ascending]), kind="stable")
    which = np.repeat(np.arange(len(sources)), [len(each) for each in ascending])
    versions = [np.arange(after + 1, upto + 1) for after, upto in spans]
    return sources, which[order], np.concatenate([nothing, *versions])[order]
