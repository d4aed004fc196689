"""The inclusion of an answer: which of a source's transactions it contains.

The reader of the source's topic numbers transactions in the topic's order. A source that serves
each question from a single state makes it simple: all up to a number. A database does not:

    Prefix     all transactions up to a number, with exceptions. PostgreSQL answers from a snapshot:
               a transaction that is later in the topic can be visible already, an earlier one
               not yet (44 of 3,334 answers under load).
    Window     each row was read at a moment of its own between two tokens that the question wrote
               into the source's log. It holds for databases in which everything before a token is
               visible when the token's commit has returned (MariaDB), and for keyed relations.

Either way the inclusion says up to which number the mailbox has to be filled before the answer can
be used; `correction.py` then turns the answer into a snapshot at one version.
"""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias


@dataclass(frozen=True)
class Prefix:
    """All transactions up to a number, with exceptions."""

    upto: int
    #: After the prefix, but contained; ascending.
    besides: tuple[int, ...] = ()
    #: Inside the prefix, but not contained; ascending.
    without: tuple[int, ...] = ()

    @property
    def newest(self) -> int:
        """The last transaction that has to be known to use the answer."""
        return max(self.upto, *self.besides) if self.besides else self.upto

    @property
    def version(self) -> int:
        """The version of the snapshot that is made of the answer."""
        return self.upto

    def longest(self) -> "Prefix":
        """The same inclusion with the longest prefix: none of `besides` directly follows it."""
        if not self.besides:
            return self
        upto = self.upto
        for each in self.besides:
            if each != upto + 1:
                break
            upto = each
        return Prefix(upto, self.besides[bisect_right(self.besides, upto) :], self.without)

    def contains(self, transaction: int) -> bool:
        """Whether the answer contains a transaction."""
        if transaction in self.without:
            return False
        return transaction <= self.upto or transaction in self.besides


@dataclass(frozen=True)
class Window:
    """All transactions up to `low`, none after `high`; any row may show those in between or not."""

    low: int
    high: int

    @property
    def newest(self) -> int:
        """The last transaction that has to be known to use the answer."""
        return self.high

    @property
    def version(self) -> int:
        """The version of the snapshot that is made of the answer."""
        return self.high


Inclusion: TypeAlias = Prefix | Window

#: What a source promises of its answers: each has one version; a prefix with exceptions; a window.
#: Each allows the ones before it as well.
Reads = Literal["versions", "holes", "windows"]

IN_WORDS: Mapping[Reads, str] = {
    "versions": "answers of one version each",
    "holes": "snapshots with exceptions",
    "windows": "rows read one by one",
}


def keeps(reads: Reads, inclusion: Inclusion) -> bool:
    """Whether a source that promises this may give an answer with this inclusion."""
    if isinstance(inclusion, Window):
        return reads == "windows"
    return reads != "versions" or inclusion == Prefix(inclusion.upto)
