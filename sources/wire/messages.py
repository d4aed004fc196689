"""The wire format of questions and answers between a query server and its clients.

A question is the ticket of a Flight `do_get`: one line of JSON, followed by its key sets as Arrow
IPC streams:

    {"source": …, "relation": …, "schema": {relation in JSON form}, "columns": […],
     "condition": […]|null, "keys": [bytes of each stream]|null, "page": {"after": …, "limit": …}}

A joint question, about a view over several relations of the source, has another header; the rows
that its terms give for atoms follow it, with counts:

    {"joint": {"atoms": [{"alias", "source", "relation", "schema", "columns", "condition"}],
     "links": [[[atom, column], [atom, column]]], "residuals": [condition],
     "outputs": [[name, qualified column, type]]},
     "terms": [{"number": …, "given": {atom: bytes of the stream}}]}

Each entry of `terms` stands for all terms that give rows for the same atoms (terms.py).

The answer is the stream of rows; the metadata of its schema carries the version, and as `history`
the digest of the source's history up to it (history.py). Every question carries the relation's
schema, so a source that was altered refuses it instead of answering something else. There is no SQL
in either direction.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import orjson
import polars as pl
import pyarrow as pa

from protocols.algebra.delta import COUNT
from protocols.algebra.expressions import Condition
from protocols.algebra.expressions_wire import from_json, to_json
from protocols.algebra.frame import Frame
from protocols.algebra.types import column_type
from protocols.errors import WrongUse
from protocols.exchange.inclusion import Inclusion
from protocols.exchange.questions import Joint, Page, Query, Question
from protocols.views.catalog import Relation, relation_from_json
from protocols.views.view import Atom, Link, OutputColumn, View
from sources.history import UNKNOWN, digest_to_text
from sources.wire.bounds import MOST_ATOMS, MOST_KEY_SETS, Bounds, read_header
from sources.wire.inclusions import INCLUSION, encode_inclusion
from sources.wire.terms import Sum, Terms, in_groups
from sources.wire.unpacking import unpacked

VERSION = b"version"
HISTORY = b"history"
STATUS = "status"
STATISTICS = "statistics"
COMMIT = "commit"
#: `extra_info` of a Flight error whose cause is the request itself.
REFUSED = b"refused"


def encode_query(query: Query[Frame]) -> bytes:
    """Encodes the question as a ticket."""
    keys = None if query.keys is None else [_ipc(uncounted(each)) for each in query.keys]
    header = {
        "source": query.relation.source,
        "relation": query.relation.name,
        "schema": query.relation.schema(),
        "columns": query.columns,
        "condition": None if query.condition is None else to_json(query.condition),
        "keys": None if keys is None else [len(each) for each in keys],
        "page": None if query.page is None else _page_to_json(query.relation, query.page),
    }
    return b"".join([orjson.dumps(header), b"\n", *(keys or [])])


def encode_question(question: Question[Frame]) -> bytes:
    """Encodes the question as a ticket."""
    return _encode_joint(question) if isinstance(question, Joint) else encode_query(question)


def decode_question(ticket: bytes, most_bytes: int = Bounds.question) -> Query[Frame] | Sum:
    """Decodes the question of a ticket; WrongUse if it is malformed or exceeds a bound."""
    if len(ticket) > most_bytes:
        raise WrongUse(
            f"the question has {len(ticket)} bytes, but the limit is {most_bytes}; split it, or"
            " raise --largest-question"
        )
    line, _, streams = ticket.partition(b"\n")
    header = read_header(line, "question")
    if not isinstance(header, dict):
        raise WrongUse("the question is not a JSON object")
    with _reading_question():
        form = _Streams(streams, most_bytes)
        return _sum(header, form) if "joint" in header else _query(header, form)


def decode_query(ticket: bytes) -> Query[Frame]:
    """Decodes the query of a ticket; WrongUse if it is not one."""
    question = decode_question(ticket)
    if isinstance(question, Sum):
        raise WrongUse("a joint question where a query was expected")
    return question


@contextmanager
def _reading_question() -> Iterator[None]:
    try:
        yield
    except KeyError as error:
        raise WrongUse(f"the question lacks {error}") from None
    except (TypeError, ValueError, AttributeError, struct.error, pa.ArrowException) as error:
        raise WrongUse(f"the question is malformed: {error}") from None


@dataclass(frozen=True)
class _Streams:
    """The unread streams after the header."""

    content: bytes
    most_bytes: int

    def frames(self, lengths: list[int]) -> tuple[Frame, ...]:
        """Reads the rows of each stream; these are the lengths of the streams."""
        if sum(lengths) != len(self.content) or any(length < 0 for length in lengths):
            raise ValueError(
                f"{sum(lengths)} bytes of keys are announced, {len(self.content)} were sent"
            )
        ends = list(accumulate(lengths, initial=0))
        view = memoryview(self.content)
        streams = [view[start:end] for start, end in pairwise(ends)]
        return tuple(counted(table) for table in unpacked(streams, self.most_bytes))


def _query(header: dict[str, Any], streams: _Streams) -> Query[Frame]:
    source, name = _text(header["source"]), _text(header["relation"])
    relation = relation_from_json(source, name, header["schema"])
    keys = header["keys"]
    if keys is not None and len(keys) > MOST_KEY_SETS:
        raise WrongUse(
            f"the question has {len(keys)} key sets, but the limit is {MOST_KEY_SETS}; split the"
            " question"
        )
    return Query(
        relation=relation,
        columns=tuple(map(_text, header["columns"])),
        condition=_condition(header["condition"]),
        keys=None if keys is None else streams.frames(keys),
        page=None if header["page"] is None else _page(relation, header["page"]),
    )


# ------------------------------------------------------------------------------ joint questions


def _encode_joint(joint: Joint[Frame]) -> bytes:
    view, groups = joint.view, in_groups(joint).groups
    given = [{str(i): _ipc(rows.to_arrow()) for i, rows in each.given.items()} for each in groups]
    header = {
        "joint": {
            "atoms": [_atom_to_json(atom) for atom in view.atoms],
            "links": [[link.left, link.right] for link in view.links],
            "residuals": [to_json(residual) for residual in view.residuals],
            "outputs": [[o.name, o.column, o.type.name] for o in view.outputs],
        },
        "terms": [
            {"number": each.number, "given": {index: len(rows) for index, rows in sent.items()}}
            for each, sent in zip(groups, given, strict=True)
        ],
    }
    streams = [rows for sent in given for rows in sent.values()]
    return b"".join([orjson.dumps(header), b"\n", *streams])


def _atom_to_json(atom: Atom) -> dict[str, Any]:
    return {
        "alias": atom.alias,
        "source": atom.relation.source,
        "relation": atom.relation.name,
        "schema": atom.relation.schema(),
        "columns": atom.columns,
        "condition": None if atom.condition is None else to_json(atom.condition),
    }


def _sum(header: dict[str, Any], streams: _Streams) -> Sum:
    form, terms = header["joint"], header["terms"]
    if len(form["atoms"]) > MOST_ATOMS:
        raise WrongUse(
            f"the joint question joins {len(form['atoms'])} relations, but the limit is"
            f" {MOST_ATOMS}"
        )
    atoms = tuple(_atom(index, each) for index, each in enumerate(form["atoms"]))
    links = tuple(Link(_end(left), _end(right)) for left, right in form["links"])
    residuals = tuple(from_json(each) for each in form["residuals"])
    outputs = tuple(
        OutputColumn(_text(name), _text(column), column_type(_text(type_)))
        for name, column, type_ in form["outputs"]
    )
    lengths = [length for each in terms for length in each["given"].values()]
    frames = iter(streams.frames(lengths))
    groups = tuple(
        Terms(_whole(each["number"]), {int(i): next(frames).data for i in each["given"]})
        for each in terms
    )
    return Sum(View("", "", atoms, links, residuals, outputs), groups)


def _whole(form: Any) -> int:
    if not isinstance(form, int) or isinstance(form, bool) or form < 1:
        raise ValueError(f"{form!r} is not a number of terms")
    return form


def _atom(index: int, form: Mapping[str, Any]) -> Atom:
    source, name = _text(form["source"]), _text(form["relation"])
    relation = relation_from_json(source, name, form["schema"])
    columns = tuple(map(_text, form["columns"]))
    return Atom(index, _text(form["alias"]), relation, columns, _condition(form["condition"]))


def _end(form: Any) -> tuple[int, str]:
    match form:
        case [int(index), str(column)] if not isinstance(index, bool):
            return index, column
    raise ValueError(f"{form!r} is not an end of a link")


# ------------------------------------------------------------------------------ other messages


def check_token(token: str) -> None:
    """A token is sent in a header, so it must be printable ASCII."""
    if not token or not token.isascii() or not token.isprintable():
        raise WrongUse("a token must consist of printable ASCII characters and must not be empty")


def answer_stream(
    rows: pa.Table, version: int, digest: int = UNKNOWN, inclusion: Inclusion | None = None
) -> pa.Table:
    """The rows, with version, digest of the history and inclusion in the schema's metadata."""
    metadata = {VERSION: str(version).encode()}
    if digest != UNKNOWN:
        metadata[HISTORY] = digest_to_text(digest).encode()
    if inclusion is not None:
        metadata[INCLUSION] = encode_inclusion(inclusion)
    return rows.replace_schema_metadata(metadata)


def encode_status_question(versions: Sequence[int]) -> bytes:
    """Encodes the body of a status request: the versions whose history digests are wanted."""
    return orjson.dumps({"histories": list(versions)})


def decode_status_question(body: bytes) -> list[int]:
    """Decodes the versions of a status request."""
    if not body:
        return []
    form = read_header(body, "body of a status")
    if not isinstance(form, dict):
        raise WrongUse("the body of the status request is not a JSON object")
    versions = form.get("histories", [])
    if not isinstance(versions, list) or not all(type(each) is int for each in versions):
        raise WrongUse('"histories" must be a list of versions')
    return versions


def _text(form: Any) -> str:
    if not isinstance(form, str):
        raise ValueError(f"{form!r} is not a name")
    return form


def _condition(form: Any) -> Condition | None:
    return None if form is None else from_json(form)


def _page(relation: Relation, form: Mapping[str, Any]) -> Page:
    after, limit = form["after"], form["limit"]
    if not isinstance(limit, int) or isinstance(limit, bool):
        raise ValueError(f"a page of {limit!r} rows")
    if after is None:
        return Page(None, limit)
    types = [relation.type_of(name) for name in relation.key]
    if not isinstance(after, list) or len(after) != len(types):
        raise ValueError(f"a page after {after!r}, the key has {len(types)} parts")
    return Page(tuple(t.decode(value) for t, value in zip(types, after, strict=True)), limit)


def _page_to_json(relation: Relation, page: Page) -> dict[str, Any]:
    if page.after is None:
        return {"after": None, "limit": page.limit}
    types = [relation.type_of(name) for name in relation.key]
    after = [t.encode(value) for t, value in zip(types, page.after, strict=True)]
    return {"after": after, "limit": page.limit}


def counted(rows: pa.Table) -> Frame:
    """The rows, each with a count of 1 if they have no counts.

    Polars' expressions would wake its thread pool, which here takes most of the time. And the first
    Python value given to Arrow makes it import pandas, which takes a quarter of a second.
    """
    if COUNT in rows.column_names:
        return Frame(pl.DataFrame(pl.from_arrow(rows)))
    ones = pl.Series(COUNT, np.ones(rows.num_rows, np.int64))
    if not rows.num_columns:
        return Frame(pl.DataFrame([ones]))
    return Frame(pl.DataFrame([*pl.DataFrame(pl.from_arrow(rows)).get_columns(), ones]))


def uncounted(frame: Frame) -> pa.Table:
    """The columns without the counts."""
    return frame.data[list(frame.columns)].to_arrow()


def _ipc(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())
