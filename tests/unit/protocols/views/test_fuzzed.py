"""View texts that are damaged at random: each is either accepted or refused.

DuckDB must be able to run each accepted text, with columns of the same names and types; only items
without a name have another one in DuckDB (`views/naming.py`). A good part must be accepted, some
with every kind of damage, or the comparison would be vacuous.
"""

import re
from collections import Counter
from dataclasses import dataclass
from random import Random

import duckdb
import pytest
import sqlglot
from sqlglot.tokens import TokenType  # type: ignore[attr-defined]

from protocols.errors import ViewRefused
from protocols.views.sql import parse_view
from protocols.views.tree import AnyView
from tests.cases.good_views import CATALOG, GOOD
from tests.harness.views_in_duckdb import EmptyTables

MUTATIONS = 2_000
KINDS = ("delete", "duplicate", "swap", "alike", "any", "graft")


@dataclass(frozen=True)
class Word:
    """A word of a text, and its kind."""

    text: str
    kind: TokenType


def words_of(sql: str) -> list[Word]:
    """Splits the text into words."""
    tokens = sqlglot.tokenize(sql, read="duckdb")
    return [Word(sql[token.start : token.end + 1], token.token_type) for token in tokens]


_WORDS = [words_of(sql) for sql in GOOD]
_ALIKE: dict[TokenType, list[Word]] = {}
for _word in (word for words in _WORDS for word in words):
    _ALIKE.setdefault(_word.kind, []).append(_word)


def mutated(number: int) -> tuple[str, str]:
    """(kind of damage, the damaged text)."""
    rng = Random(f"view {number}")
    words = list(rng.choice(_WORDS))
    kind = rng.choice(KINDS)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        at = rng.randrange(len(words))
        match kind:
            case "delete":
                del words[at : at + rng.choice((1, 1, 2, 3, 4))]
            case "duplicate":
                words[at:at] = words[at : at + rng.choice((1, 2, 3, 4))]
            case "swap":
                other = rng.choice([i for i, w in enumerate(words) if w.kind == words[at].kind])
                words[at], words[other] = words[other], words[at]
            case "alike":
                words[at] = rng.choice(_ALIKE[words[at].kind])
            case "any":
                words[at] = rng.choice(rng.choice(_WORDS))
            case "graft":
                other_words = rng.choice(_WORDS)
                same = [i for i, w in enumerate(other_words) if w.kind == words[at].kind]
                words[at:] = other_words[rng.choice(same) :] if same else words[at:]
        words = words or [Word("SELECT", TokenType.SELECT)]
    return kind, " ".join(word.text for word in words)


def _kept(sql: str) -> list[tuple[str, str]] | None:
    """The columns of the view; None if it is refused with a place inside the text."""
    view = _read(sql)
    if not isinstance(view, ViewRefused):
        return [(name.lower(), type_.name) for name, type_ in view.schema.items()]
    lines = sql.split("\n")
    assert 1 <= view.line <= len(lines)
    assert 1 <= view.column <= len(lines[view.line - 1]) + 1
    assert len(view.reason) > 10
    return None


def _read(sql: str) -> AnyView | ViewRefused:
    try:
        return parse_view("v", sql, CATALOG)
    except ViewRefused as refused:
        return refused


def _same(ours: list[tuple[str, str]], duckdbs: list[tuple[str, str]]) -> bool:
    """Whether the columns agree; DuckDB calls an unnamed item as it is written."""
    unnamed = re.compile(r"true|false|null|.*[^\w].*|\d.*")
    return len(ours) == len(duckdbs) and all(
        one[1] == other[1] and (one[0] == other[0] or unnamed.fullmatch(other[0]) is not None)
        for one, other in zip(ours, duckdbs, strict=True)
    )


@pytest.fixture(scope="module")
def tables() -> EmptyTables:
    return EmptyTables(CATALOG)


@pytest.mark.parametrize("sql", GOOD)
def test_a_good_view_has_the_columns_that_duckdb_gives_it(sql: str, tables: EmptyTables) -> None:
    kept = _kept(sql)
    assert kept is not None
    assert _same(kept, tables.columns(sql))


def test_a_damaged_view_is_refused_or_has_the_columns_that_duckdb_gives_it(
    tables: EmptyTables,
) -> None:
    kept: Counter[str] = Counter()
    for number in range(MUTATIONS):
        kind, sql = mutated(number)
        columns = _kept(sql)
        if columns is not None:
            assert _same(columns, tables.columns(sql)), sql
            kept[kind] += 1
    assert kept.total() > MUTATIONS // 5
    assert set(kept) == set(KINDS)


def test_the_comparison_with_duckdb_can_fail(tables: EmptyTables) -> None:
    for name, type_ in (("x", "BIGINT"), ("y", "DOUBLE")):
        text = "SELECT CAST(id AS DOUBLE) AS x FROM shop.orders"
        assert not _same([(name, type_)], tables.columns(text))
    with pytest.raises(duckdb.Error):
        tables.columns("SELECT nix FROM shop.orders")
