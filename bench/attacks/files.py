"""Damaged files of a warehouse, and a restart.

A view of three real sources is kept for a while, once. For each case the lake is copied and damaged
as a power cut, a full disk or a person would damage it, the sources go on committing, and a job
starts on the copy. Either the view has to be right, by DuckDB at every position and by the checker
for the trace, and the job has to report the repair; or the job has to refuse with a message that
names the file.

The job is driven without Spark, which takes seconds to start; Spark's own checkpoint is damaged
under the real command.
"""

import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from deltalake import DeltaTable

from bench.attacks import AttackOutcome, AttackSettings
from infra.localbroker import LocalBroker
from protocols.checking.checker import check
from protocols.checking.tracereading import read_trace
from protocols.errors import ViewsweepError
from protocols.maintenance.registry import PROTOCOLS
from streaming.settings.configuration import read_configuration
from streaming.tracing import write_live_trace
from tests.harness.records import cut
from tests.harness.world import OneView, World, start
from warehouse.tables import ViewTables

#: Takes the directory of the view.
Damage = Callable[[Path], object]


@dataclass(frozen=True)
class DamageCase:
    """One kind of damage."""

    attack: str
    damage: Damage
    #: A part of the message about it; empty if no message is needed.
    said: str = ""
    #: Whether the lost data cannot be recreated, so that the job has to refuse.
    refused: bool = False
    #: Whether it happens while the job runs.
    running: bool = False


def newest(log: str) -> Callable[[Path], list[Path]]:
    """The last commit in a table's log."""
    return lambda view: sorted((view / log / "_delta_log").glob(f"{'[0-9]' * 20}.json"))[-1:]


def each(pattern: str) -> Callable[[Path], list[Path]]:
    """All files of a pattern."""
    return lambda view: sorted(view.glob(pattern))


def lost(file: Path) -> None:
    file.unlink()


def emptied(file: Path) -> None:
    file.write_bytes(b"")


def cut_short(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def garbage(file: Path) -> None:
    file.write_bytes(random.Random(1).randbytes(file.stat().st_size))


_WAYS: Sequence[Callable[[Path], None]] = (lost, emptied, cut_short, garbage)


def _done_to(files: Callable[[Path], list[Path]], way: Callable[[Path], None]) -> Damage:
    def damage(view: Path) -> None:
        found = files(view)
        assert found, "there is nothing to damage"
        for file in found:
            way(file)

    return damage


def _gone(*names: str) -> Damage:
    def damage(view: Path) -> None:
        for name in names:
            shutil.rmtree(view / name)

    return damage


def _cases() -> Iterator[DamageCase]:
    for way in _WAYS:
        word = way.__name__.replace("_", " ")
        whole = way is lost
        yield DamageCase(
            f"last log entry of changes {word}", _done_to(newest("changes"), way), "cut back"
        )
        for name in ("progress", "current"):
            entry = newest(name)
            said = "" if whole else "treated as never committed"
            yield DamageCase(f"last log entry of {name} {word}", _done_to(entry, way), said)
            data, said = each(f"{name}/*.parquet"), f"{name} is recreated"
            yield DamageCase(f"files of {name} {word}", _done_to(data, way), said)
        data = each("changes/*.parquet")
        yield DamageCase(f"files of changes {word}", _done_to(data, way), ".parquet", refused=True)
        running = _done_to(each("current/*.parquet"), way)
        said = "current is recreated"
        yield DamageCase(f"files of current {word} under the job", running, said, running=True)
        for name in ("changes", "progress", "current"):
            sums = each(f"{name}/_delta_log/*.checkpoint.parquet")
            said = "" if whole else "the commits are read instead"
            yield DamageCase(f"log checkpoint of {name} {word}", _done_to(sums, way), said)
            hint = each(f"{name}/_delta_log/_last_checkpoint")
            yield DamageCase(f"_last_checkpoint of {name} {word}", _done_to(hint, way))
        if not whole:
            said = "view.json"
            yield DamageCase(
                f"view.json {word}", _done_to(each("view.json"), way), said, refused=True
            )
    yield from _deletions()


def _deletions() -> Iterator[DamageCase]:
    yield DamageCase("changes deleted", _gone("changes"), "recreated from its first state")
    yield DamageCase("changes and current deleted", _gone("changes", "current"), "recreated")
    yield DamageCase("changes and progress deleted", _gone("changes", "progress"), "recreated")
    yield DamageCase("progress deleted", _gone("progress"))
    yield DamageCase("current deleted", _gone("current"))
    yield DamageCase("current deleted under the job", _gone("current"), "recreate", running=True)
    yield DamageCase(
        "changes deleted under the job", _gone("changes"), "was removed", refused=True, running=True
    )
    yield DamageCase(
        "view.json deleted", lambda view: (view / "view.json").unlink(), "", refused=True
    )
    yield DamageCase("everything deleted", lambda view: shutil.rmtree(view))


#: A few of each kind, for `make test`.
_SHORT = {
    "last log entry of changes emptied",
    "files of changes cut short",
    "files of current cut short",
    "log checkpoint of changes cut short",
    "changes deleted",
    "current deleted under the job",
}


def outcomes(settings: AttackSettings, only: Collection[str] = ()) -> Iterator[AttackOutcome]:
    """The outcome of each damage, or of some of them."""
    chosen = only or (_SHORT if settings.short else ())
    with LocalBroker(settings.directory / "broker") as broker:
        place = settings.directory / "world"
        place.mkdir()
        with World(place, broker.bootstrap, "files") as world:
            lake = _Lake(world, settings.seed)
            lake.make()
            for case in _cases():
                if not chosen or case.attack in chosen:
                    yield lake.outcome_of(case)
            if not only:
                yield from lake.outcomes_of_checkpoints(settings.short)


class _Lake:
    """A view that was kept for a while, copied for each case."""

    def __init__(self, world: World, seed: int) -> None:
        self._world = world
        self._dice = random.Random(seed)
        self._kept = world.directory / "kept"
        self._tables = world.directory / "tables"

    def make(self) -> None:
        """Keeps the view over several commits and restarts; then the sources commit more."""
        world = self._world
        world.publish()
        for _ in range(2):
            self._commit(30)
            with world.job(protocol="batched-sweep") as job:
                start(job)
                self._commit(30)
                self._take(job, 4)
                for name in ("changes", "progress", "current"):
                    DeltaTable(self._tables / "v" / name).create_checkpoint()
                self._commit(10)
                self._take(job, 2)
        self._tables.rename(self._kept)
        self._commit(20)

    def _commit(self, transactions: int) -> None:
        self._world.commit_at_random(self._dice, transactions)
        self._world.wait_until_published()

    def _take(self, job: OneView, batches: int) -> None:
        for batch in cut(self._world.records_after(job), self._dice, batches):
            job.take(batch)
            # In handles of its own: those of the job belong to its threads.
            ViewTables(self._tables, job.view).follow()

    @contextmanager
    def _copied(self) -> Iterator[Path]:
        """Copies the lake; yields the directory of its view."""
        shutil.copytree(self._kept, self._tables)
        try:
            yield self._tables / "v"
        finally:
            shutil.rmtree(self._tables, ignore_errors=True)

    def outcome_of(self, case: DamageCase) -> AttackOutcome:
        """Damages a copy and restarts a job on it."""
        self._world.reports.clear()
        with self._copied() as view:
            try:
                result = self._restarted(case, view)
            except ViewsweepError as error:
                result, good = _refused(case, error, view)
            except AssertionError as wrong:
                result, good = f"WRONG: {str(wrong)[:200]}", False
            except BaseException as error:
                result, good = f"TRACEBACK: {type(error).__name__}: {str(error)[:200]}", False
            else:
                said = [line for line in self._world.reports if case.said in line]
                good = (bool(said) or not case.said) and not case.refused
                result += "" if good else f", but nobody said {case.said!r}"
        return AttackOutcome(case.attack, result, good)

    def _restarted(self, case: DamageCase, view: Path) -> str:
        if not case.running:
            case.damage(view)
        with self._world.job(protocol="batched-sweep") as job:
            start(job)
            if case.running:
                case.damage(view)
            self._commit(5)
            job.take(self._world.records_after(job))
            job.running.finish()
            return self._judged(job.tables)

    def _judged(self, tables: ViewTables) -> str:
        """Asserts that the view is right at every position by DuckDB and valid by the checker."""
        positions = self._world.assert_complete(tables)
        assert dict(tables.standing().vector) == self._world.versions, "it is not at the end"
        known = read_configuration(self._world.write_configuration())
        trace = self._world.directory / "trace.jsonl"
        write_live_trace(known, known.view("v").with_protocol("batched-sweep"), trace)
        with trace.open("rb") as lines:
            verdict = check(read_trace(lines), PROTOCOLS["batched-sweep"].level)
        assert verdict.verdict == "valid", verdict.contradiction
        return f"goes on; {positions} positions right, trace valid"

    # -- under the real command ------------------------------------------------------------------

    def outcomes_of_checkpoints(self, short: bool) -> Iterator[AttackOutcome]:
        """Damages Spark's checkpoint between two runs."""
        with self._copied() as view:
            ran = self._ran()
            assert ran.returncode == 0, ran.stderr
            whole = self._world.directory / "checkpoint"
            shutil.copytree(view / "checkpoint", whole)
            ways = [*_checkpoints(self._world.sources["a"].topic)]
            for attack, damage in ways[:1] if short else ways:
                shutil.rmtree(view / "checkpoint", ignore_errors=True)
                shutil.copytree(whole, view / "checkpoint")
                damage(view / "checkpoint")
                self._commit(5)
                yield self._outcome_of_run(f"Spark's checkpoint: {attack}", view)

    def _outcome_of_run(self, attack: str, view: Path) -> AttackOutcome:
        ran = self._ran()
        if ran.returncode or "Traceback" in ran.stderr:
            return AttackOutcome(
                attack, f"exit {ran.returncode}: {ran.stderr.strip()[-300:]}", False
            )
        if "checkpoint cannot be used" not in ran.stderr:
            return AttackOutcome(attack, "goes on, and says nothing", False)
        with self._world.job(protocol="batched-sweep") as job:
            job.check()
            try:
                return AttackOutcome(
                    attack, self._judged(job.tables), (view / "checkpoint.aside").exists()
                )
            except AssertionError as wrong:
                return AttackOutcome(attack, f"WRONG: {str(wrong)[:200]}", False)

    def _ran(self) -> "subprocess.CompletedProcess[str]":
        file = self._world.write_configuration()
        command = [sys.executable, "-m", "cli.main", "run", "--once", "--config"]
        return subprocess.run(
            [*command, str(file)], capture_output=True, text=True, check=False, timeout=300
        )


def _refused(case: DamageCase, error: ViewsweepError, view: Path) -> tuple[str, bool]:
    """The refusal, and whether it was due and names the place and the way out."""
    message = str(error).replace(f"{view.parent}/", "")
    good = case.refused and error.exit_code in (2, 3) and "\n" not in message
    good = good and str(view) in str(error) and case.said in message
    return f"exit {error.exit_code}: {message}", good


def _checkpoints(topic: str) -> Iterator[tuple[str, Damage]]:
    """The kinds of damage to a checkpoint."""

    def last(directory: str) -> Callable[[Path], list[Path]]:
        def found(checkpoint: Path) -> list[Path]:
            files = (checkpoint / directory).iterdir()
            return [max((f for f in files if f.name.isdigit()), key=lambda f: int(f.name))]

        return found

    def renamed(checkpoint: Path) -> None:
        [file] = last("offsets")(checkpoint)
        file.write_text(file.read_text().replace(topic, "another"))
        file.with_name(f".{file.name}.crc").unlink()

    for way in (emptied, cut_short, garbage):
        for name in ("offsets", "commits", "sources/0"):
            yield f"{name} {way.__name__.replace('_', ' ')}", _done_to(last(name), way)
        yield f"metadata {way.__name__.replace('_', ' ')}", _done_to(each("metadata"), way)
    yield "offsets of another topic", renamed
