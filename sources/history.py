"""A source's past as one number, by which two pasts are told apart.

    H(0) = hash(identity, catalog)        the identity is drawn when the source is made
    H(v) = hash(H(v - 1), what version v commits)

A database that is restored from a backup and goes on to commit has another past than the one that
was there before, although its versions look the same. The two agree up to some version and differ
at every later one. When something was committed does not count, only what.

The number travels with statuses, answers and records (`transaction.history`) as 15 hexadecimal
digits. Whoever says nothing of it is not checked.
"""

import hashlib
import secrets
from collections.abc import Callable

#: The digest of a past that nothing is known of.
UNKNOWN = 0
#: As it travels: so many hexadecimal digits.
DIGITS = 15
DIGEST = f"[0-9a-fA-F]{{{DIGITS}}}"


class History:
    """A past that grows with each commit."""

    def __init__(self, digest: int) -> None:
        self.digest = digest

    @classmethod
    def begun(cls, identity: str, catalog: str, version: int = 0) -> "History":
        """The past of a new source, or of an old one that says nothing of its earlier versions."""
        return cls(_hash(UNKNOWN, f"{identity} {version} {catalog}".encode()))

    def commit(self, content: bytes) -> str:
        """Adds a version with this content, which delimits itself; returns the digest as text."""
        self.digest = _hash(self.digest, content)
        return digest_to_text(self.digest)


def new_identity() -> str:
    """Drawn for each source that is made."""
    return secrets.token_hex(16)


def _hash(before: int, content: bytes) -> int:
    made = hashlib.blake2b(before.to_bytes(8, "big") + content, digest_size=8).digest()
    return (int.from_bytes(made, "big") >> 4) or 1


def digest_to_text(digest: int) -> str:
    """As it travels."""
    return f"{digest:0{DIGITS}x}"


def digest_from_text(text: object) -> int:
    """`UNKNOWN` for None; ValueError for anything else that is no digest."""
    if text is None:
        return UNKNOWN
    if isinstance(text, str) and len(text) == DIGITS and text.isascii() and text.isalnum():
        return int(text, 16)
    raise ValueError(f"{text!r} is no digest of a history, which has {DIGITS} hexadecimal digits")


def differ(one: int, other: int) -> bool:
    """Whether both are known, and of different pasts."""
    return one != other and UNKNOWN not in (one, other)


def other_past(source: str, agreed: int, differing: int) -> str:
    """What is said of a fork, and the way out.

    Up to version `agreed` the two pasts are the same, as far as anybody knows; at `differing` they
    are not.
    """
    where = f"at version {differing}" + (
        f", after version {agreed}" if agreed == differing - 1 else f" or between it and {agreed}"
    )
    return (
        f"source {source} has another past than the one that was seen before: they part {where}."
        " Its database was restored from an old copy, or made anew, and has gone on from there."
        " Put the database with the other past back, and everything goes on; or, if the present"
        " one is to count, give it another topic (delete the old one, or name a new one) and make"
        " the views over it anew (remove their directories)"
    )


def parting(same: Callable[[int], bool], agreed: int, differing: int) -> tuple[int, int]:
    """Where two pasts part, by asking about places in between: (the last at which they agree, the
    next one)."""
    while differing - agreed > 1:
        middle = (agreed + differing) // 2
        if same(middle):
            agreed = middle
        else:
            differing = middle
    return agreed, differing
