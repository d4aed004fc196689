"""A job's status, read back from its JSON form: for whoever is not in the job's process."""

import datetime
from collections.abc import Mapping
from typing import Any

from streaming.figures.answers import AnswerFigures
from streaming.figures.audited import audited_from
from streaming.figures.heldback import HeldBack, Waiting
from streaming.figures.measuring import Behind
from streaming.figures.status import JobStatus, SourceStatus, ViewStatus, Wait

#: Figures that the JSON form adds for its readers.
_DERIVED = ("position", "positions", "updates_per_s", "view_rows", "behind", "held_back")


def status_from(form: Mapping[str, Any]) -> JobStatus:
    """The status whose `to_json` this is; some of its times are rounded there."""
    known = {name: value for name, value in form.items() if name not in _DERIVED}
    return JobStatus(
        **{
            **known,
            "waits": tuple(Wait(**wait) for wait in form["waits"]),
            "sources": tuple(_source(name, each) for name, each in form["sources"].items()),
            "views": tuple(_view(name, each) for name, each in form["views"].items()),
            "executor_batches": tuple(form["executor_batches"]),
        }
    )


def _source(name: str, form: Mapping[str, Any]) -> SourceStatus:
    behind = None if form["behind"] is None else Behind(**form["behind"])
    latencies = tuple(form["answers"]["latencies"])
    answers = AnswerFigures(**{**form["answers"], "latencies": latencies})
    return SourceStatus(**{**form, "name": name, "behind": behind, "answers": answers})


def _view(name: str, form: Mapping[str, Any]) -> ViewStatus:
    held = None if form["held_back"] is None else _held_back(form["held_back"])
    audit = None if form["audit"] is None else audited_from(form["audit"])
    return ViewStatus(**{**form, "name": name, "held_back": held, "audit": audit})


def _held_back(form: Mapping[str, Any]) -> HeldBack:
    waiting = (
        Waiting(
            each["global"],
            datetime.datetime.fromisoformat(each["since"]),
            each["here"],
            tuple(each["missing"]),
        )
        for each in form["transactions"]
    )
    spans = {source: (span[0], span[1]) for source, span in form["versions"].items()}
    return HeldBack(form["view"], tuple(waiting), spans)
