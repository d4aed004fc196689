"""A digest of a source's history, which tells two histories apart.

    H(0) = hash(identity, catalog)        the identity is random, drawn when the source is created
    H(v) = hash(H(v - 1), content of version v)

A database that is restored from a backup and commits again has another history than before,
although its version numbers look the same. The two agree up to some version and differ at every
later one. The digest covers the content of commits, not their times.

Statuses, answers and records (`transaction.history`) carry the digest as 15 hexadecimal digits. A
source that sends none is not checked.
"""

import hashlib
import secrets
from collections.abc import Callable

#: The digest of an unknown history.
UNKNOWN = 0
#: The number of hexadecimal digits of a digest as text.
DIGITS = 15
DIGEST = f"[0-9a-fA-F]{{{DIGITS}}}"


class CommitHistory:
    """A history that grows with each commit."""

    def __init__(self, digest: int) -> None:
        self.digest = digest

    @classmethod
    def begun(cls, identity: str, catalog: str, version: int = 0) -> "CommitHistory":
        """The history of a new source, or of an old one whose earlier versions are not recorded."""
        return cls(_hash(UNKNOWN, f"{identity} {version} {catalog}".encode()))

    def commit(self, content: bytes) -> str:
        """Adds a version with this self-delimiting content; returns the digest as text."""
        self.digest = _hash(self.digest, content)
        return digest_to_text(self.digest)


def new_identity() -> str:
    """A random identity for a new source."""
    return secrets.token_hex(16)


def _hash(before: int, content: bytes) -> int:
    made = hashlib.blake2b(before.to_bytes(8, "big") + content, digest_size=8).digest()
    return (int.from_bytes(made, "big") >> 4) or 1


def digest_to_text(digest: int) -> str:
    """The digest as hexadecimal text."""
    return f"{digest:0{DIGITS}x}"


def digest_from_text(text: object) -> int:
    """Parses a digest; `UNKNOWN` for None, ValueError for anything else that is not a digest."""
    if text is None:
        return UNKNOWN
    if isinstance(text, str) and len(text) == DIGITS and text.isascii() and text.isalnum():
        return int(text, 16)
    raise ValueError(f"{text!r} is not a history digest of {DIGITS} hexadecimal digits")


def differ(one: int, other: int) -> bool:
    """Whether both digests are known and belong to different histories."""
    return one != other and UNKNOWN not in (one, other)


def other_past(source: str, agreed: int, differing: int) -> str:
    """The message about a fork, with the way out.

    As far as known, the two histories are the same up to version `agreed`; at `differing` they are
    not.
    """
    where = f"at version {differing}" + (
        f", after version {agreed}" if agreed == differing - 1 else f" or between it and {agreed}"
    )
    return (
        f"source {source} has another past than the one seen before: they diverge {where}."
        " Its database was restored from an old copy, or recreated, and has committed since."
        " Put the database with the other past back, and everything continues; or, to keep the"
        " present one, give it another topic (delete the old one, or name a new one) and recreate"
        " the views over it (remove their directories)"
    )


def parting(same: Callable[[int], bool], agreed: int, differing: int) -> tuple[int, int]:
    """Searches where two histories begin to differ: (the last place at which they agree, the next
    place)."""
    while differing - agreed > 1:
        middle = (agreed + differing) // 2
        if same(middle):
            agreed = middle
        else:
            differing = middle
    return agreed, differing
