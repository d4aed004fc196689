"""A source that is down says so, and one that is closed leaves nothing behind."""

import threading
from collections.abc import Callable, Iterator

from protocols.errors import Unreachable
from protocols.exchange.questions import Query
from sources.history import UNKNOWN
from tests.conformance.adapter import Database
from tests.conformance.stage import Stage
from tests.conformance.story import Life
from tests.harness.waiting import eventually

_TIMEOUT = 2.0


def _calls(database: Database) -> dict[str, Callable[[], object]]:
    """All that needs an answer."""
    source, shop = database.source, database.story.catalog.relations[0]
    return {
        "describe": lambda: source.describe(_TIMEOUT),
        "statistics": lambda: source.statistics(_TIMEOUT),
        "digests": lambda: source.digests([0], _TIMEOUT),
        "ask": lambda: source.ask(Query(shop, ("id",))),
    }


def down(stage: Stage) -> Iterator[str]:
    """Unreachable, naming the source; when it is up again it answers with what it has."""
    with stage.adapter.made(stage.adapter.story) as database:
        calls = _calls(database)
        if database.source.digests([0]) == {0: UNKNOWN}:
            # It keeps none, and so need not ask for any.
            del calls["digests"]
        for call in calls.values():
            call()
        database.stop_answering()
        database.commit(Life(database.story, 1).transaction())
        for name, call in calls.items():
            try:
                yield f"{name} of a source that is down: {call()}"
            except Unreachable as error:
                if database.source.name not in str(error):
                    yield f"{name} does not name the source: {error}"
        database.answer()
        for name, call in calls.items():
            eventually(lambda call=call: _answers(call), f"{name} answers")  # type: ignore[misc]
        if (version := database.source.describe().version) != 1:
            yield f"it is up again, and its version is {version}, not 1"


def _answers(call: Callable[[], object]) -> bool:
    try:
        call()
    except Unreachable:
        return False
    return True


def closed(stage: Stage) -> Iterator[str]:
    """No thread, whatever it was used for."""
    before = set(threading.enumerate())
    with stage.adapter.made(stage.adapter.story) as database:
        for call in _calls(database).values():
            call()
    left = [each.name for each in threading.enumerate() if each not in before]
    if left:
        yield f"threads are left: {left}"
