"""Turns errors of libraries into ours, in one place, so that no traceback reaches a user.

Code that calls a library and knows its errors converts them on the spot, with the name of the thing
and the way out. All other errors are converted here: at the end of the command line, and in every
thread that passes its error on. They are caught as BaseException, because a panic of a library
written in Rust is not an Exception.
"""

from protocols.errors import Unforeseen, ViewsweepError

#: The package of an exception's class → the library's name.
_LIBRARIES = {
    "py4j": "Spark's JVM",
    "pyspark": "Spark",
    "pyarrow": "Arrow",
    "_duckdb": "DuckDB",
    "duckdb": "DuckDB",
    "polars": "Polars",
    "_internal": "delta-rs",
    "deltalake": "delta-rs",
    "cimpl": "Kafka's client",
    "confluent_kafka": "Kafka's client",
    "pyo3_runtime": "a library written in Rust",
    "sqlglot": "sqlglot",
    "orjson": "JSON",
}
_LONGEST = 300


def as_ours(error: BaseException) -> ViewsweepError:
    """The error itself if it is ours; else an Unforeseen that names error and library in a line."""
    if isinstance(error, ViewsweepError):
        return error
    unforeseen = Unforeseen(words_of(error))
    unforeseen.__cause__ = error
    return unforeseen


def words_of(error: BaseException) -> str:
    """The error in one line."""
    if isinstance(error, MemoryError):
        return "there is not enough memory" + _said(error)
    if isinstance(error, RecursionError):
        return "something is nested too deeply" + _said(error)
    if isinstance(error, UnicodeError):
        return "a text is not in the encoding that it should be in" + _said(error)
    if isinstance(error, OSError) and type(error).__module__ == "builtins":
        place = f"{error.filename}: " if error.filename is not None else ""
        return f"the operating system: {place}{error.strerror or _first_line(error)}"
    library = _LIBRARIES.get(type(error).__module__.partition(".")[0])
    kind = type(error).__name__
    return (f"{library}: {kind}" if library else kind) + _said(error)


def _said(error: BaseException) -> str:
    text = _first_line(error)
    return f": {text}" if text else ""


def _first_line(error: BaseException) -> str:
    """The first line that is not empty; stacks and plans follow it."""
    line = next((line.strip() for line in _text(error).splitlines() if line.strip()), "")
    return line if len(line) <= _LONGEST else line[:_LONGEST] + " …"


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # py4j asks the JVM for it, which may have gone
        return ""
