"""The text of a view as its author saved it."""

from pathlib import Path

from protocols.errors import WrongUse


def sql_in(file: Path) -> str:
    """The content of the file, without the byte order mark that some editors write."""
    try:
        return file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise WrongUse(f"cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise WrongUse(f"{file}: line {line} is not UTF-8 text; save the file as UTF-8") from None
