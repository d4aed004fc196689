"""From a snapshot of the database to an inclusion: the numbers of the transactions in an answer.

All that the snapshot sees stands in the topic before the END of the message that was written with
it. So the answer contains every transaction up to there, except those that the snapshot does not
see: they had not ended when it was taken, or began after it.
"""

import numpy as np

from protocols.exchange.inclusion import Prefix
from sources.debezium.numbering import Numbering
from sources.postgres.connecting import DatabaseSnapshot


def inclusion(snapshot: DatabaseSnapshot, numbering: Numbering, upto: int) -> Prefix:
    """The inclusion of an answer whose message came after version `upto`."""
    first, transactions = numbering.remembered
    # Those that are not remembered ended long ago.
    unseen = ~snapshot.sees(transactions[: upto + 1 - first])
    return Prefix(upto, without=tuple((first + np.flatnonzero(unseen)).tolist()))
