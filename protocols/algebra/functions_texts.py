"""Functions of texts, which are sequences of Unicode code points.

Two things follow DuckDB, because in PostgreSQL they depend on the locale or differ for rare
characters: in upper and lower case every letter beyond ASCII becomes one letter (ß becomes ẞ, not
SS), and TRIM removes the spaces of Unicode too.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

import polars as pl

from protocols.algebra.function import Function, Signature, Unfit, always, call, infix
from protocols.algebra.types import BIGINT, BOOLEAN, VARCHAR, ColumnType, SqlType


def _takes(
    name: str, *wanted: ColumnType, gives: ColumnType, optional: int = 0
) -> Callable[[Sequence[SqlType]], Signature]:
    """The signature with these types; the last `optional` ones may be missing. Nothing is cast."""

    def signature(types: Sequence[SqlType]) -> Signature:
        if not len(wanted) - optional <= len(types) <= len(wanted):
            raise Unfit(f"{name} takes {len(wanted)} arguments, not {len(types)}")
        for given, there in zip(types, wanted, strict=False):
            whole = given.name == "INTEGER" and there == BIGINT
            if given != there and not whole:
                raise Unfit(f"{name} takes a {there.name} here, not a {given.name}")
        return Signature(wanted[: len(types)], gives)

    return signature


def _concatenation(types: Sequence[SqlType]) -> Signature:
    if VARCHAR not in types:
        raise Unfit(f"|| joins texts, not {types[0].name} and {types[1].name}; cast one to VARCHAR")
    return Signature((VARCHAR, VARCHAR), VARCHAR)


# ------------------------------------------------------------------------------------------ case


class _Letters(dict[int, str]):
    """Maps a letter, by its code point, to another single letter, or to itself."""

    def __init__(self, *changes: Callable[[str], str], exceptions: dict[str, str]) -> None:
        super().__init__({ord(letter): other for letter, other in exceptions.items()})
        self.changes = changes

    def __missing__(self, number: int) -> str:
        candidates = (change(chr(number)) for change in self.changes)
        self[number] = next((each for each in candidates if len(each) == 1), chr(number))
        return self[number]


#: Greek letters with an iota below have no upper case of one letter, but a title case.
_UPPER = _Letters(str.upper, str.title, exceptions={"ß": "ẞ"})
_LOWER = _Letters(str.lower, exceptions={"İ": "i"})


def _if_ascii(change: Callable[[pl.Series], pl.Series]) -> Callable[..., pl.Series | None]:
    """Applies Polars' function if all texts are ASCII: it changes other letters differently."""

    def applied(_type: ColumnType, texts: pl.Series) -> pl.Series | None:
        ascii_only = (texts.str.len_bytes() == texts.str.len_chars()).all()
        return change(texts) if ascii_only else None

    return applied


# ----------------------------------------------------------------------------------------- parts


def _substring(_type: ColumnType, text: str, start: int, length: int | None = None) -> str:
    """Counts from 1; positions before the text use up length too."""
    begin = start - 1
    return text[max(begin, 0) : None if length is None else max(begin + length, 0)]


def _substring_column(
    _type: ColumnType, texts: pl.Series, start: pl.Series, length: pl.Series | None = None
) -> pl.Series | None:
    if (
        _constant(start) is None
        or start[0] < 1
        or (length is not None and _constant(length) is None)
    ):
        return None
    return texts.str.slice(start[0] - 1, None if length is None else length[0])


def _constant(column: pl.Series) -> Any:
    """The value of a column that stands for a constant; None for any other column."""
    return column[0] if len(column) == 1 else None


def _with_constants(change: Callable[..., pl.Series]) -> Callable[..., pl.Series | None]:
    """Applies Polars' function if the arguments after the first are constants."""

    def applied(_type: ColumnType, texts: pl.Series, *others: pl.Series) -> pl.Series | None:
        constants = list(map(_constant, others))
        return None if None in constants or "" in constants[:1] else change(texts, *constants)

    return applied


def _left(_type: ColumnType, text: str, count: int) -> str:
    """The first letters; a negative count says how many to leave out at the end."""
    return text[:count]


def _right(_type: ColumnType, text: str, count: int) -> str:
    """The last letters; a negative count says how many to leave out at the beginning."""
    return text[max(len(text) - count, 0) if count >= 0 else -count :]


#: The characters that TRIM removes by default.
SPACES = "".join(c for c in map(chr, range(0x3001)) if unicodedata.category(c) == "Zs")


def _position(_type: ColumnType, text: str, part: str) -> int:
    """The place where the part begins, from 1; 0 if it does not occur."""
    return text.find(part) + 1


# ------------------------------------------------------------------------------------------ LIKE


def _like(_type: ColumnType, text: str, pattern: str, escape: str = "") -> bool:
    return _pattern(pattern, escape, re.escape).fullmatch(text) is not None


def _like_column(
    _type: ColumnType, texts: pl.Series, pattern: pl.Series, escape: pl.Series | None = None
) -> pl.Series | None:
    wanted, sign = _constant(pattern), "" if escape is None else _constant(escape)
    if wanted is None or sign is None:
        return None
    return texts.str.contains(rf"(?s)\A{_regular(wanted, sign, _by_number)}\z")


def _by_number(letter: str) -> str:
    return rf"\x{{{ord(letter):x}}}"


@lru_cache(maxsize=256)
def _pattern(pattern: str, escape: str, literal: Callable[[str], str]) -> re.Pattern[str]:
    return re.compile(_regular(pattern, escape, literal), re.DOTALL)


def _regular(pattern: str, escape: str, literal: Callable[[str], str]) -> str:
    """The regular expression of a LIKE pattern: % is any text, _ any letter, newlines included."""
    letters = iter(pattern)
    parts = []
    for letter in letters:
        if escape and letter == escape:
            parts.append(literal(next(letters)))
        else:
            parts.append({"%": ".*", "_": "."}.get(letter) or literal(letter))
    return "".join(parts)


def _like_text(_type: ColumnType, texts: Sequence[str]) -> str:
    escape = f" ESCAPE {texts[2]}" if len(texts) > 2 else ""
    return f"({texts[0]} LIKE {texts[1]}{escape})"


# ----------------------------------------------------------------------------------- the entries


def _trimming(
    name: str, strip: Callable[[str, str], str], column: Callable[[pl.Series, str], pl.Series]
) -> Function:
    def of_column(
        _type: ColumnType, texts: pl.Series, letters: pl.Series | None = None
    ) -> pl.Series | None:
        if letters is None:
            return column(texts, SPACES)
        return column(texts, letters[0]) if _constant(letters) else None

    return Function(
        name,
        _takes(name.upper(), VARCHAR, VARCHAR, gives=VARCHAR, optional=1),
        lambda _, text, letters=SPACES: strip(text, letters),
        call(name),
        of_column,
        never_fails=always,
    )


TEXTS: Iterable[Function] = (
    Function(
        "||",
        _concatenation,
        lambda _, left, right: left + right,
        infix("||"),
        lambda _, left, right: left + right,
        never_fails=always,
    ),
    Function(
        "upper",
        _takes("UPPER", VARCHAR, gives=VARCHAR),
        lambda _, text: text.translate(_UPPER),
        call("upper"),
        _if_ascii(lambda texts: texts.str.to_uppercase()),
        never_fails=always,
    ),
    Function(
        "lower",
        _takes("LOWER", VARCHAR, gives=VARCHAR),
        lambda _, text: text.translate(_LOWER),
        call("lower"),
        _if_ascii(lambda texts: texts.str.to_lowercase()),
        never_fails=always,
    ),
    Function(
        "length",
        _takes("LENGTH", VARCHAR, gives=BIGINT),
        lambda _, text: len(text),
        call("length"),
        lambda _, texts: texts.str.len_chars().cast(pl.Int64),
        never_fails=always,
    ),
    Function(
        "substring",
        _takes("SUBSTRING", VARCHAR, BIGINT, BIGINT, gives=VARCHAR, optional=1),
        _substring,
        call("substring"),
        _substring_column,
        never_fails=always,
    ),
    Function(
        "left",
        _takes("LEFT", VARCHAR, BIGINT, gives=VARCHAR),
        _left,
        call("left"),
        _with_constants(lambda texts, count: texts.str.head(count)),
        never_fails=always,
    ),
    Function(
        "right",
        _takes("RIGHT", VARCHAR, BIGINT, gives=VARCHAR),
        _right,
        call("right"),
        _with_constants(lambda texts, count: texts.str.tail(count)),
        never_fails=always,
    ),
    _trimming("trim", str.strip, lambda texts, letters: texts.str.strip_chars(letters)),
    _trimming("ltrim", str.lstrip, lambda texts, letters: texts.str.strip_chars_start(letters)),
    _trimming("rtrim", str.rstrip, lambda texts, letters: texts.str.strip_chars_end(letters)),
    Function(
        "replace",
        _takes("REPLACE", VARCHAR, VARCHAR, VARCHAR, gives=VARCHAR),
        lambda _, text, old, new: text.replace(old, new) if old else text,
        call("replace"),
        _with_constants(lambda texts, old, new: texts.str.replace_all(old, new, literal=True)),
        never_fails=always,
    ),
    Function(
        "starts_with",
        _takes("STARTS_WITH", VARCHAR, VARCHAR, gives=BOOLEAN),
        lambda _, text, start: text.startswith(start),
        call("starts_with"),
        _with_constants(lambda texts, start: texts.str.starts_with(start)),
        never_fails=always,
    ),
    Function(
        "strpos",
        _takes("STRPOS", VARCHAR, VARCHAR, gives=BIGINT),
        _position,
        call("strpos"),
        never_fails=always,
    ),
    Function(
        "like",
        _takes("LIKE", VARCHAR, VARCHAR, VARCHAR, gives=BOOLEAN, optional=1),
        _like,
        _like_text,
        _like_column,
        never_fails=always,
    ),
)
