"""An answer is what the transactions that it says it contains have made of the relation.

Clients ask while writers commit. The mailbox brings each answer to one version (correction.py), by
the changes that its inclusion says it has or lacks; DuckDB computes the same from the committed
transactions.
"""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import polars as pl

from protocols.algebra.delta import COUNT
from protocols.algebra.expressions import And, Column, Comparison, IsNull, Literal, Not, Or
from protocols.algebra.frame import Frame
from protocols.algebra.framelog import FrameLog
from protocols.algebra.types import BIGINT, VARCHAR
from protocols.exchange.correction import snapshot
from protocols.exchange.inclusion import Prefix, keeps
from protocols.exchange.mailbox import Received
from protocols.exchange.questions import Answer, Joint, Page, Query, Question
from protocols.views.sql import parse_view
from protocols.views.view import View
from sources.history import UNKNOWN
from sources.port import Source
from tests.conformance.adapter import Database
from tests.conformance.committed import Oracle, counted
from tests.conformance.reading import beginning, log_of, take_all
from tests.conformance.stage import Stage
from tests.conformance.story import NAME, Life, Story

_CLIENTS, _WRITERS = 3, 2
#: Questions of each client; for each of them a transaction may commit.
_QUESTIONS = 24
_PAGE = 7
_PRICE, _NAME = Column("price"), Column("name")
_LOW = Comparison(_PRICE, "<", Literal(3, BIGINT))
_ODD = Or((IsNull(_NAME), Not(Comparison(_NAME, "=", Literal("item 1", VARCHAR)))))
_JOIN = "SELECT i.name, i.price, h.town FROM s.items i JOIN s.shops h ON i.shop = h.id"


def _keys(**columns: Sequence[object]) -> Frame:
    return Frame(pl.DataFrame({**columns, COUNT: [1] * len(next(iter(columns.values())))}))


def _asked(story: Story) -> tuple[tuple[Question[Frame], str], ...]:
    """Questions, each with the SQL that says the same."""
    shops, items, marks = story.catalog.relations
    names = items.column_names
    both = _keys(id=[*range(100, 110)]), _keys(shop=[2], name=["item 2"])
    return (
        (Query(items, names), "FROM items"),
        (
            Query(marks, ("colour", "item"), Comparison(Column("item"), ">", Literal(90, BIGINT))),
            "SELECT colour, item FROM marks WHERE item > 90",
        ),
        (Query(items, ("id", "name"), _LOW), "SELECT id, name FROM items WHERE price < 3"),
        (
            Query(items, names, And((_LOW, _ODD))),
            "FROM items WHERE price < 3 AND (name IS NULL OR name <> 'item 1')",
        ),
        (Query(items, names, None, (_keys(shop=[1, 3]),)), "FROM items WHERE shop IN (1, 3)"),
        (
            Query(marks, ("colour",), None, (_keys(item=[100, 101, 102, 103]),)),
            "SELECT colour FROM marks WHERE item BETWEEN 100 AND 103",
        ),
        (
            Query(items, names, _LOW, both),
            "FROM items WHERE price < 3"
            " AND (id BETWEEN 100 AND 109 OR (shop = 2 AND name = 'item 2'))",
        ),
        (
            Query(items, ("id", "price"), None, None, Page(None, _PAGE)),
            "SELECT id, price FROM items WHERE true",
        ),
        (
            Query(items, ("id", "name"), _LOW, None, Page((4,), _PAGE)),
            "SELECT id, name FROM items WHERE price < 3 AND id > 4",
        ),
        (
            Query(shops, ("town",), None, (_keys(town=["town 1"], number=[3]),)),
            "SELECT town FROM shops WHERE town = 'town 1' AND number = 3",
        ),
    )


def _joined(story: Story) -> tuple[Question[Frame], str]:
    view = parse_view("v", _JOIN, story.catalog)
    assert isinstance(view, View)
    return Joint(view, ({},)), _JOIN.replace("s.", "")


@dataclass(frozen=True)
class Told:
    """An answer, and the number of transactions that were committed before it was asked for."""

    question: Question[Frame]
    sql: str
    answer: Answer[Frame]
    before: int


def contain_what_they_say(stage: Stage) -> Iterator[str]:
    """Under load, for questions with keys, conditions and pages, and joint ones."""
    story = stage.adapter.story
    asked = (*_asked(story), *((_joined(story),) if stage.adapter.joins else ()))
    with stage.adapter.made(story) as database:
        told = _under_load(database, asked)
        database.settle()
        yield from _wrong(database, told)


def _under_load(database: Database, asked: Sequence[tuple[Question[Frame], str]]) -> list[Told]:
    """The answers of all clients, while each question lets a writer commit."""
    turns, is_over = threading.Semaphore(2), threading.Event()

    def write(number: int) -> None:
        life = Life(database.story, number, 100 + 1000 * number)
        while turns.acquire() and not is_over.is_set():
            database.commit(life.transaction())

    def ask(first: int) -> list[Told]:
        found = []
        for number in range(first, first + _QUESTIONS):
            question, sql = asked[number % len(asked)]
            turns.release()
            before = len(database.committed)
            found.append(Told(question, sql, _answer(database.source, question), before))
        return found

    with ThreadPoolExecutor(_CLIENTS + _WRITERS) as threads:
        writers = [threads.submit(write, number) for number in range(_WRITERS)]
        clients = [threads.submit(ask, 3 * number) for number in range(_CLIENTS)]
        try:
            return [told for client in clients for told in client.result()]
        finally:
            is_over.set()
            turns.release(_WRITERS)
            for writer in writers:
                writer.result()


def _answer(source: Source, question: Question[Frame]) -> Answer[Frame]:
    """The answer; to a page with the key of its last row, if more may follow."""
    answer = source.ask(question)
    page = question.page if isinstance(question, Query) else None
    if not isinstance(question, Query) or page is None or answer.rows.data.height < page.limit:
        return answer
    last = answer.rows.data.tail(1).select(question.relation.key).row(0)
    return replace(answer, last_key=last)


def _wrong(database: Database, told: Sequence[Told]) -> Iterator[str]:
    committed = database.committed
    received, oracle = _received(database), Oracle(database.story, committed)
    versions = set()
    promised = database.source.describe().reads
    for each in told:
        if not keeps(promised, each.answer.inclusion):
            yield f"{each.sql}: {each.answer.inclusion} from a source that promises {promised}"
        if promised == "versions":
            yield from _forgotten(each, len(committed))
        if each.answer.newest > received.received(NAME):
            yield f"{each.sql}: contains {each.answer.newest}, which was never committed"
            continue
        found = snapshot(received, each.question, each.answer)
        versions.add(found.version)
        columns = _columns(each.question)
        rows = counted(found.rows.data.select(*columns, COUNT).iter_rows())
        expected = oracle.at(found.version, each.sql + _up_to_the_last(each.answer))
        if rows != expected:
            yield (
                f"{each.sql}: {each.answer.inclusion} has {dict(rows - expected)} too much and"
                f" {dict(expected - rows)} too little"
            )
    oracle.close()
    if len(versions) < _QUESTIONS // 4:
        yield f"vacuous: all answers are of the versions {sorted(versions)}"
    yield from _other_digests(database.source, told)


def _up_to_the_last(answer: Answer[Frame]) -> str:
    """A page ends with the key of its last row; what has changed since may add or remove rows."""
    return "" if answer.last_key is None else f" AND id <= {answer.last_key[0]}"


def _columns(question: Question[Frame]) -> Sequence[str]:
    return question.columns if isinstance(question, Query) else tuple(question.view.schema)


def _received(database: Database) -> Received[Frame]:
    """The mailbox with everything that was committed."""
    relations, log = database.story.catalog.relations, log_of(database)
    received = Received({relation: FrameLog() for relation in relations}, {NAME: 0})
    take_all(database.source.changes(relations, received, beginning(log), (), UNKNOWN), log)
    return received


def _forgotten(told: Told, last: int) -> Iterator[str]:
    """Transactions that were committed before the question, and are not contained."""
    inclusion = told.answer.inclusion
    if isinstance(inclusion, Prefix):
        missing = [v for v in range(1, told.before + 1) if not inclusion.contains(v)]
    else:
        missing = list(range(inclusion.high + 1, told.before + 1))
    if missing:
        yield f"{told.sql}: committed before, and not contained: {missing} of {last}"


def _other_digests(source: Source, told: Sequence[Told]) -> Iterator[str]:
    """Answers with another digest than the source has of their version."""
    digests = source.digests(sorted({each.answer.inclusion.version for each in told}))
    for each in told:
        version, digest = each.answer.inclusion.version, each.answer.digest
        if UNKNOWN not in (digest, digests[version]) and digest != digests[version]:
            yield f"{each.sql}: its digest is not that of version {version}"
