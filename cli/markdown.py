"""Tables in Markdown files, between marks that name the table."""

from collections.abc import Sequence
from pathlib import Path

from protocols.errors import WrongUse


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of cells."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def put(file: Path, mark: str, text: str) -> None:
    """Replaces the text between `<!-- MARK -->` and `<!-- end of MARK -->`."""
    before, after = around(file, mark)
    write(file, f"{before}\n{text}\n{after}")


def around(file: Path, mark: str) -> tuple[str, str]:
    """The text before the place of a table, and the text after it, with the marks."""
    begin, end = f"<!-- {mark} -->", f"<!-- end of {mark} -->"
    try:
        content = file.read_text()
    except OSError as error:
        raise WrongUse(f"cannot read {file}: {error.strerror}") from None
    before, found, rest = content.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise WrongUse(
            f"{file} lacks the lines that mark the place of the table: '{begin}' and '{end}'"
        )
    return before + begin, end + after


def write(file: Path, text: str) -> None:
    """Writes a file that the user named."""
    try:
        file.write_text(text)
    except OSError as error:
        raise WrongUse(f"cannot write {file}: {error.strerror}") from None
