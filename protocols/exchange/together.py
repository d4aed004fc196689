"""Runs several maintenance tasks side by side, their rounds as one; or a single task."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from protocols.algebra.delta import Delta
from protocols.exchange.questions import Maintenance, Question, Snapshot

D = TypeVar("D", bound=Delta)
T = TypeVar("T")


def together(tasks: Sequence[Maintenance[D, T]]) -> Maintenance[D, list[T]]:
    """Runs the tasks in step; each gets only its own answers. Results are in the tasks' order."""
    results: dict[int, T] = {}
    rounds: dict[int, list[Question[D]]] = {}

    def advance(task: int, answers: list[Snapshot[D]] | None) -> None:
        try:
            rounds[task] = next(tasks[task]) if answers is None else tasks[task].send(answers)
        except StopIteration as stop:
            results[task] = stop.value

    for task in range(len(tasks)):
        advance(task, None)
    while rounds:
        asked, rounds = rounds, {}
        answers = yield [query for queries in asked.values() for query in queries]
        for task, queries in asked.items():
            advance(task, answers[: len(queries)])
            answers = answers[len(queries) :]
    return [results[task] for task in range(len(tasks))]


def finish(task: Maintenance[D, T], ask: Callable[[list[Question[D]]], list[Snapshot[D]]]) -> T:
    """Runs one task to its end; `ask` answers a round."""
    try:
        questions = next(task)
        while True:
            questions = task.send(ask(questions))
    except StopIteration as stop:
        result: T = stop.value
        return result
