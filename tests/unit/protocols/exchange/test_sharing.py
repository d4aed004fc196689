"""Equal questions: the question asked instead, and correct answers for each asker.

Here plain Python over a list of rows answers for a source, and shares no code with the frames. The
control merges by intersection instead of union, and the same law catches it.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

import polars as pl
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from protocols.algebra.delta import COUNT
from protocols.algebra.expressions import Column, Comparison, Condition, Literal
from protocols.algebra.frame import Frame, empty_frame
from protocols.algebra.framelog import FrameLog
from protocols.algebra.types import column_type
from protocols.exchange.correction import snapshot
from protocols.exchange.inclusion import Prefix
from protocols.exchange.mailbox import Received
from protocols.exchange.questions import Answer, Joint, Page, Query, Question, Snapshot
from protocols.exchange.sharing import Shared
from protocols.views.catalog import Catalog, Relation
from tests.harness.innerjoins import parsed

BIGINT = column_type("BIGINT")
NAMES = ("a", "b", "c")
R = Relation("one", "r", tuple((name, BIGINT) for name in NAMES))
S = Relation("two", "r", R.columns)
#: The same condition as two objects, as in two views.
CONDITIONS: tuple[Callable[[], Condition | None], ...] = (
    lambda: None,
    lambda: Comparison(Column("c"), "=", Literal(1, BIGINT)),
    lambda: Comparison(Column("c"), ">", Literal(0, BIGINT)),
)

Row = tuple[int, ...]
Wanted = Query[Frame]


def keys(columns: str, rows: Sequence[Row]) -> Frame:
    """Distinct rows of these columns (one letter each)."""
    schema = {**dict.fromkeys(columns, pl.Int64), COUNT: pl.Int64}
    return Frame(pl.DataFrame([(*row, 1) for row in set(rows)], schema=schema, orient="row"))


def query(columns: str = "abc", keyed: dict[str, Sequence[Row]] | None = None, **more: Any) -> Any:
    found = None if keyed is None else tuple(keys(names, rows) for names, rows in keyed.items())
    return Query(
        more.pop("relation", R), tuple(columns), more.pop("condition", None), found, **more
    )


# ------------------------------------------------------------------------------------------- truth


def rows_of(frame: Frame) -> Counter[Row]:
    found: Counter[Row] = Counter()
    for *row, count in frame.data.iter_rows():
        found[tuple(row)] += count
    return Counter({row: count for row, count in found.items() if count})


def holds(condition: Condition | None, row: Row) -> bool:
    """Evaluates the conditions of these tests, identified by their text."""
    return condition is None or (row[2] == 1 if condition == CONDITIONS[1]() else row[2] > 0)


def matches(question: Wanted, row: Row) -> bool:
    return question.keys is None or any(
        tuple(row[NAMES.index(name)] for name in each.columns) in rows_of(each)
        for each in question.keys
    )


def selected(rows: Counter[Row], columns: Sequence[str]) -> Counter[Row]:
    found: Counter[Row] = Counter()
    for row, count in rows.items():
        found[tuple(row[NAMES.index(name)] for name in columns)] += count
    return found


def told(question: Wanted, held: Counter[Row]) -> Answer[Frame]:
    """The answer of a source with these rows."""
    there = {r: n for r, n in held.items() if holds(question.condition, r) and matches(question, r)}
    rows = selected(Counter(there), question.columns)
    if not rows:
        return Answer(empty_frame(dict.fromkeys(question.columns, BIGINT)), Prefix(7))
    schema = [*question.columns, COUNT]
    data = pl.DataFrame([(*row, n) for row, n in rows.items()], schema=schema, orient="row")
    return Answer(Frame(data), Prefix(7))


def is_right(questions: Sequence[Wanted], held: Counter[Row]) -> bool:
    """Whether each gets all rows that its keys ask for, with their counts."""
    shared = Shared(questions)
    asked = [q for q in shared.questions if isinstance(q, Query)]
    answers = at_places(shared, [told(question, held) for question in asked])
    return all(
        each.rows.columns == question.columns and _suffices(question, each, held)
        for question, each in zip(questions, snapshots(questions, answers), strict=True)
    )


def at_places(shared: Shared[Frame], answers: Sequence[Answer[Frame]]) -> list[Answer[Frame]]:
    return [answers[place] for place in shared.places]


def snapshots(
    questions: Sequence[Question[Frame]], answers: Sequence[Answer[Frame]]
) -> list[Snapshot[Frame]]:
    """The snapshots of the answers, when nothing else has been received."""
    received = Received[Frame](dict.fromkeys((R, S), FrameLog()), {"one": 7, "two": 7})
    return [snapshot(received, q, a) for q, a in zip(questions, answers, strict=True)]


def _suffices(question: Wanted, answer: Snapshot[Frame], held: Counter[Row]) -> bool:
    """Whether the answer has the requested rows, exactly these if the question has all columns;
    rows that no key asks for are ignored."""
    got, alone = rows_of(answer.rows), rows_of(told(question, held).rows)
    if set(question.columns) < set(NAMES):
        return all(got[row] >= count for row, count in alone.items())
    places = [question.columns.index(name) for name in NAMES]
    wanted = {r for r in got if matches(question, tuple(r[place] for place in places))}
    return Counter({row: got[row] for row in wanted}) == alone


number = st.integers(0, 2)
KEYED = st.one_of(
    st.none(),
    st.fixed_dictionaries({"a": st.lists(st.tuples(number), min_size=1, max_size=3)}),
    st.fixed_dictionaries(
        {
            "a": st.lists(st.tuples(number), min_size=1, max_size=3),
            "bc": st.lists(st.tuples(number, number), min_size=1, max_size=3),
        }
    ),
    st.fixed_dictionaries({"bc": st.lists(st.tuples(number, number), min_size=1, max_size=3)}),
)
QUESTIONS = st.lists(
    st.builds(
        lambda columns, keyed, condition, relation: query(
            columns, keyed, condition=CONDITIONS[condition](), relation=relation
        ),
        st.sampled_from(["abc", "abc", "cab", "ab", "c"]),
        KEYED,
        st.sampled_from([0, 0, 1, 2]),
        st.sampled_from([R, R, R, S]),
    ),
    max_size=5,
)
HELD = st.lists(st.tuples(number, number, number), max_size=12).map(Counter)


@given(QUESTIONS, HELD)
@settings(deadline=None, max_examples=300)
def test_every_question_is_answered_as_if_it_were_asked_alone(
    questions: list[Wanted], held: Counter[Row]
) -> None:
    assert is_right(questions, held)


@given(QUESTIONS)
@settings(deadline=None)
def test_what_is_asked_is_one_question_per_relation_condition_and_combination_of_columns(
    questions: list[Wanted],
) -> None:
    kinds = {
        (q.relation, repr(q.condition), None if q.keys is None else _combinations(q.keys))
        for q in questions
    }
    assert len(Shared(questions).questions) == len(kinds)


def _combinations(keys: Sequence[Frame]) -> frozenset[tuple[str, ...]]:
    return frozenset(each.columns for each in keys)


def _by_intersection(ours: Frame, theirs: Frame) -> Frame:
    return ours.matching(theirs)


def test_control_the_intersection_of_keys_is_caught() -> None:
    """The law above, with a merge that asks only for the keys that both request."""
    with mock.patch.object(Frame, "plus", _by_intersection):
        find(
            st.tuples(QUESTIONS, HELD),
            lambda case: not is_right(*case),
            settings=settings(deadline=None, max_examples=3000, phases=[Phase.generate]),
        )


def test_control_an_answer_with_the_columns_of_another_is_caught() -> None:
    def as_told(_: object, __: object, answer: Answer[Frame]) -> Snapshot[Frame]:
        return Snapshot(answer.rows, 7)

    with mock.patch(f"{__name__}.snapshot", as_told):
        assert not is_right([query("ab", {"a": [(1,)]}), query("bc", {"a": [(1,)]})], Counter())


# ------------------------------------------------------------------------------------ one by one


def asked(*questions: Question[Frame]) -> list[Question[Frame]]:
    return Shared(questions).questions


def test_keys_and_columns_are_united() -> None:
    one, other = query("a", {"a": [(1,), (2,)]}), query("cb", {"a": [(2,), (3,)]})
    (united,) = asked(one, other)
    assert isinstance(united, Query)
    assert united.columns == NAMES
    assert united.keys is not None
    assert [rows_of(each) for each in united.keys] == [Counter([(1,), (2,), (3,)])]


def test_key_sets_are_united_each_with_its_like_whatever_their_order() -> None:
    (united,) = asked(query(keyed={"a": [(1,)], "b": [(5,)]}), query(keyed={"b": [(6,)], "a": []}))
    assert isinstance(united, Query)
    assert united.keys is not None
    found = {each.columns: rows_of(each) for each in united.keys}
    assert found == {("a",): Counter([(1,)]), ("b",): Counter([(5,), (6,)])}


def test_three_questions_become_one_and_each_gets_its_own_columns_back() -> None:
    questions = [query(columns, {"a": [(n,)]}) for n, columns in enumerate(["a", "ba", "c"])]
    shared = Shared(questions)
    held: Counter[Row] = Counter({(0, 7, 8): 1, (1, 7, 9): 2, (2, 5, 6): 1})
    (united,) = shared.questions
    assert isinstance(united, Query)
    found = snapshots(questions, at_places(shared, [told(united, held)]))
    assert [each.rows.columns for each in found] == [("a",), ("b", "a"), ("c",)]
    assert rows_of(found[1].rows) == Counter({(7, 0): 1, (7, 1): 2, (5, 2): 1})


SQL = "SELECT x.a FROM one.r x JOIN one.r y ON x.b = y.b"
VIEW = parsed(SQL, Catalog((R, S)))


@pytest.mark.parametrize(
    "other",
    [
        query(keyed={"a": [(1,)]}, condition=CONDITIONS[1]()),
        query(keyed={"b": [(1,)]}),
        query(keyed={"a": [(1,)], "b": [(1,)]}),
        query(),
        query(keyed={"a": [(1,)]}, relation=S),
        query(keyed={"a": [(1,)]}, page=Page(None, 5)),
        Joint(VIEW, ()),
    ],
    ids=["condition", "key columns", "more key columns", "no keys", "source", "page", "joint"],
)
def test_what_differs_in_more_than_keys_and_columns_is_asked_by_itself(
    other: Question[Frame],
) -> None:
    one = query(keyed={"a": [(1,)]})
    assert asked(one, other) == [one, other]


@pytest.mark.parametrize(
    "alone", [query(page=Page(None, 5)), Joint(VIEW, ())], ids=["page", "joint"]
)
def test_pages_and_joint_questions_are_never_merged(alone: Question[Frame]) -> None:
    assert asked(alone, alone) == [alone, alone]


def test_what_an_answer_says_of_itself_stays() -> None:
    one, other = CONDITIONS[1](), CONDITIONS[2]()
    assert one is not None
    assert other is not None
    parts = ((one, Prefix(3)), (other, Prefix(4)))
    shared = Shared([query("a", {"a": [(1,)]}), query("b", {"a": [(2,)]})])
    (united,) = shared.questions
    assert isinstance(united, Query)
    whole = replace(told(united, Counter([(1, 1, 1)])), parts=parts, bytes_sent=5)
    for answer in at_places(shared, [whole]):
        assert (answer.inclusion, answer.parts, answer.bytes_sent) == (Prefix(7), parts, 5)
