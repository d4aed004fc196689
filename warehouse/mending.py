"""Repairs of a view's tables, before a job opens them.

No commit waits for the disk, so a power cut may lose the newest commits of a table, or leave them
empty or cut short; and people delete directories and restore old ones. `changes` is the truth: what
it has lost comes again from the topics, and everything derived from it is cut back or recreated,
here and in `progress.py` and `current.py`:

    the newest commits in a log are not JSON        they count as never made
    a checkpoint is damaged, the commits are there  readers do without it
    the log of `progress` or `current` is damaged   the table is recreated from `changes`
    `changes` is gone                               the view is recreated

What is in the way is renamed (`NAME.aside`), not deleted. Healthy tables are only read.
"""

from collections.abc import Callable
from pathlib import Path

import orjson

from protocols.errors import Unreachable
from protocols.telling import Told
from protocols.views.tree import AnyView
from warehouse import delta
from warehouse.definition import TABLES, is_kept, read_definition, refuse_another_view

Report = Callable[[str], None]
_DERIVED = TABLES[1:]


def mend(root: Path, view: AnyView, report: Report) -> None:
    """Repairs damaged tables of a view and reports it; raises if that cannot be done."""
    directory = root / view.name
    if not is_kept(directory) or read_definition(directory) is None:
        return
    refuse_another_view(directory, view)

    def say(message: str) -> None:
        report(Told(f"view {view.name}: {message}", view=view.name))

    mend_logs(directory, say)
    if delta.table_at(directory / "changes") is None:
        _begin_anew(directory, say)
        return
    for name in _DERIVED:
        try:
            delta.table_at(directory / name)
        except Unreachable as error:
            aside = delta.set_aside(directory / name)
            say(f"{delta.first_line(error)} It is rebuilt from changes; the old one is {aside}")


def mend_logs(directory: Path, say: Report) -> None:
    """Repairs the logs of a view's tables, before anything reads them."""
    for name in TABLES:
        _mend_log(directory / name / "_delta_log", say)


def _begin_anew(directory: Path, say: Report) -> None:
    """Sets the other tables aside: without `changes` nobody knows what they belong to."""
    left = [directory / name for name in _DERIVED if (directory / name).exists()]
    if left:
        asides = " and ".join(str(delta.set_aside(table)) for table in left)
        say(
            f"{directory / 'changes'} is gone, so the view is recreated from its first state on."
            f" What was left of it is kept as {asides}; remove that when you do not need it"
        )


def _mend_log(log: Path, say: Report) -> None:
    for entry in sorted(_entries(log), reverse=True):
        damage = _damage_of_entry(entry)
        if damage is None:
            break
        say(f"{entry} {damage}: treated as never committed, and kept as {delta.set_aside(entry)}")
    for summary in sorted(log.glob("*.checkpoint*.parquet")):
        if not delta.is_parquet(summary) and _says_the_same(log):
            aside = delta.set_aside(summary)
            say(f"{summary} is damaged: the commits are read instead, and it is kept as {aside}")
    hint = log / "_last_checkpoint"
    version = delta.last_checkpoint(log.parent)
    if hint.exists() and not list(log.glob(f"{version:020}.checkpoint*.parquet")):
        delta.set_aside(hint)


def _entries(log: Path) -> list[Path]:
    return list(log.glob(f"{'[0-9]' * 20}.json"))


def _damage_of_entry(entry: Path) -> str | None:
    """The reason why this is not a whole commit; None if it is."""
    lines = entry.read_bytes().splitlines()
    if not lines:
        return "is empty"
    try:
        for line in lines:
            orjson.loads(line)
    except orjson.JSONDecodeError:
        return "is damaged"
    return None


def _says_the_same(log: Path) -> bool:
    """Whether the commits reach from the newest one back to a whole checkpoint or the first."""
    whole = [int(f.name[:20]) for f in log.glob("*.checkpoint*.parquet") if delta.is_parquet(f)]
    there = {int(entry.stem) for entry in _entries(log)}
    return there >= set(range(max(whole, default=-1) + 1, max(there, default=0) + 1))
