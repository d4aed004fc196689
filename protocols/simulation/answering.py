"""The answers of simulated sources: the rows that a question asks for, in every way of reading."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from protocols.algebra.bag import Bag, Row, bag
from protocols.algebra.expressions import Condition
from protocols.exchange.correction import widened
from protocols.exchange.inclusion import Inclusion, Prefix, Window
from protocols.exchange.questions import Answer, Joint, Query, Question
from protocols.simulation.algebras import Algebra
from protocols.simulation.source import MemorySource, cut_page, restricted

#: The conditions that cut a relation into parts, each with the inclusion of its part.
Parts: TypeAlias = tuple[tuple[Condition, Prefix], ...]


class Answering:
    """The query servers of all sources; questions and answers are in the protocol's algebra."""

    def __init__(self, algebra: Algebra, sources: Mapping[str, MemorySource]) -> None:
        self._algebra = algebra
        self._sources = sources

    def from_state(self, question: Question[Any], contained: Prefix) -> Answer[Any]:
        """The answer from a state with these transactions."""
        source = self._sources[question.source]
        if isinstance(question, Joint):
            rows = source.joined(self._terms(question), question.view, contained.upto)
            return Answer(self._algebra.delta(question.view.schema, rows), contained)
        rows, last = self._restricted(question, source.shown(question.relation, contained)), None
        if question.page is not None:
            rows, last = cut_page(question.relation, rows, question.page)
        return self._answer(question, rows, contained, last)

    def in_parts(self, query: Query[Any], parts: Parts) -> Answer[Any]:
        """The answer from a relation whose parts (condition, inclusion) are read one by one."""
        source = self._sources[query.source]
        rows = bag(query.relation.column_names, ())
        for condition, contained in parts:
            held = source.shown(query.relation, contained)
            rows = rows.plus(self._restricted(query, held).where(condition))
        newest = max((contained for _, contained in parts), key=lambda prefix: prefix.upto)
        return self._answer(query, rows, newest, None, parts)

    def in_window(
        self, query: Query[Any], window: Window, moments: Callable[[], Sequence[int]]
    ) -> Answer[Any]:
        """The answer from rows that are read one by one, those of each key at the drawn moments."""
        asked = widened(query)
        held = self._sources[query.source].read_in(query.relation, window, moments)
        rows, last = self._restricted(asked, held), None
        if asked.page is not None:
            rows, last = cut_page(asked.relation, rows, asked.page)
        return self._answer(asked, rows, window, last)

    def differs(self, question: Question[Any], answer: Answer[Any], wanted: int) -> bool:
        """Whether the answer differs from what the relation held at the version it is for."""
        if answer.inclusion == Prefix(wanted) and not answer.parts:
            return False
        due = self.from_state(question, Prefix(wanted)).rows
        told = answer.rows.select([(name, name) for name in due.columns])
        return bool(self._algebra.rows(due) != self._algebra.rows(told))

    def keys_of(self, question: Question[Any]) -> int:
        """The number of keys, or rows, that are sent with a question."""
        if isinstance(question, Joint):
            sets = [rows for term in question.terms for rows in term.values()]
        else:
            sets = list(question.keys or ())
        return sum(len(self._algebra.rows(each).counts) for each in sets)

    def _answer(
        self,
        query: Query[Any],
        rows: Bag,
        contained: Inclusion,
        last: Row | None,
        parts: Parts = (),
    ) -> Answer[Any]:
        if rows.columns != query.columns:
            rows = rows.select([(column, column) for column in query.columns])
        delta = self._algebra.delta(dict(query.relation.columns), rows)
        return Answer(delta, contained, last, parts=parts)

    def _restricted(self, query: Query[Any], held: Bag) -> Bag:
        keys = None if query.keys is None else [self._algebra.rows(k) for k in query.keys]
        return restricted(held, query.condition, keys)

    def _terms(self, question: Joint[Any]) -> list[dict[int, Bag]]:
        return [
            {index: self._algebra.rows(rows) for index, rows in term.items()}
            for term in question.terms
        ]
