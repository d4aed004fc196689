"""The knobs of a run: everything that determines it besides scenario and protocol."""

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Literal, NoReturn, get_args

from protocols.errors import WrongUse
from protocols.exchange.inclusion import Reads
from protocols.forms import refuse_unknown_fields
from protocols.maintenance.registry import PROTOCOLS, Entry
from protocols.simulation.algebras import ALGEBRAS
from protocols.views.catalog import Relation

#: The events of sources and of messages from them.
KINDS = ("commit", "arrive", "deliver", "evaluate", "hand over")
#: Kind of event → source → its weight among all possible events.
Delays = Mapping[str, Mapping[str, int]]
Redelivery = Literal["same", "other"]
#: Relations with copies; for "some" the seed decides which.
Copies = Literal["none", "some", "all"]
_SPEEDS = (1, 4, 16)
#: The knobs of a run in which answers come in order with updates.
_IN_TURN = {"stale": False, "partitions": 1, "reads": "versions", "copies": "none"}


@dataclass(frozen=True)
class Schedule:
    """The knobs. Same scenario, same protocol, same knobs: same run."""

    seed: int
    algebra: str = "frame"
    #: Whether answers may be evaluated at older versions (a replica that lags behind).
    stale: bool = False
    #: Whether the sources have already committed updates when the view gets its first state.
    late_start: bool = False
    #: Rows per page of the first state.
    page: int = 2
    #: The number of parts of a relation, each of which is read at its own moment.
    partitions: int = 1
    #: What answers of the sources contain (exchange/inclusion.py).
    reads: Reads = "versions"
    #: The relations of which the warehouse keeps a copy that answers instead of the source.
    copies: Copies = "none"
    #: The most slices of a batch that may be swept elsewhere; 1: none is swept elsewhere.
    slices: int = 1
    #: How often the warehouse loses everything that it has not installed.
    crashes: int = 0
    #: Whether updates that a crash undid are delivered again in the same order, or in any other.
    redelivery: Redelivery = "same"
    #: How fast each channel is; None draws it from the seed.
    delays: Delays | None = None
    #: The choices made, in their order; None draws them from the seed.
    choices: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.algebra not in ALGEBRAS:
            raise WrongUse(f"no algebra {self.algebra!r}; choose one of: {', '.join(ALGEBRAS)}")
        if self.redelivery not in ("same", "other"):
            raise WrongUse(f"redelivery has to be same or other, not {self.redelivery!r}")
        _refuse_unknown(self.reads)
        if self.copies not in ("none", "some", "all"):
            raise WrongUse(f"copies has to be none, some or all, not {self.copies!r}")
        if min(self.page, self.partitions, self.slices) < 1 or self.crashes < 0:
            raise WrongUse(
                "page, partitions and slices have to be at least 1, and crashes at least 0"
            )
        speeds = (speed for each in (self.delays or {}).values() for speed in each.values())
        if any(not isinstance(speed, int) or speed < 1 for speed in speeds):
            raise WrongUse(
                "delays must be whole numbers of at least 1, given per kind of event and source"
            )

    def copied(self, relation: Relation) -> bool:
        """Whether the warehouse keeps a copy of a relation."""
        if self.copies == "some":
            return Random(f"copy {relation} {self.seed}").random() < 0.5
        return self.copies == "all"

    def settled(self, sources: Iterable[str]) -> "Schedule":
        """The same schedule with drawn delays: then only the choices are left to draw."""
        if self.delays is not None:
            return self
        rng = Random(f"delays {self.seed}")
        # Some runs are nearly sequential, in others everything piles up; within a run the
        # channels of one source may be much slower than those of another.
        usual = {kind: rng.choice(_SPEEDS) for kind in KINDS}
        delays = {
            kind: {source: usual[kind] * rng.choice((1, 1, 4)) for source in sources}
            for kind in KINDS
        }
        return dataclasses.replace(self, delays=delays)

    def to_json(self) -> dict[str, Any]:
        form = {**dataclasses.asdict(self)}
        form["choices"] = None if self.choices is None else list(self.choices)
        return form

    def in_words(self) -> str:
        """All knobs on a line or two, for the top of a report."""
        knobs = [f"seed {self.seed}", f"algebra {self.algebra}", f"page {self.page}"]
        knobs += [f"stale {_yes(self.stale)}", f"late start {_yes(self.late_start)}"]
        knobs += [f"reads {self.reads}", f"partitions {self.partitions}", f"crashes {self.crashes}"]
        knobs += [f"redelivery {self.redelivery}", f"copies {self.copies}"]
        knobs += [f"slices {self.slices}"]
        for kind, speeds in (self.delays or {}).items():
            each = " ".join(f"{source}:{speed}" for source, speed in speeds.items())
            knobs.append(f"{kind} {each}")
        if self.choices is not None:
            knobs.append(f"{len(self.choices)} choices given")
        return ", ".join(knobs)


def schedule_from_json(form: Any) -> Schedule:
    """Reads the knobs of a written run; raises WrongUse for anything else."""
    known = [field.name for field in dataclasses.fields(Schedule)]
    if not isinstance(form, dict) or "seed" not in form:
        raise WrongUse(f"a schedule needs a seed, and may have: {', '.join(known)}")
    refuse_unknown_fields("the schedule", form, known)
    choices = form.get("choices")
    try:
        given = None if choices is None else tuple(int(choice) for choice in choices)
        return Schedule(**{**form, "choices": given})
    except (TypeError, ValueError, AttributeError) as error:
        raise WrongUse(f"the schedule cannot be read: {error}") from None


def drawn_schedule(seed: int, entry: Entry, given: Mapping[str, Any]) -> Schedule:
    """Draws the knobs of a seed that are not given.

    A protocol over FIFO channels has no replicas, partitions, holes, windows or copies; only some
    protocols have slices.
    """
    rng = Random(f"knobs {seed}")
    drawn: dict[str, Any] = {
        "algebra": "bag",
        "stale": rng.random() < 0.4,
        "late_start": rng.random() < 0.4,
        "page": rng.choice((1, 2, 3, 20)),
        "partitions": rng.choice((1, 1, 1, 2, 3)),
        "crashes": rng.choice((0, 0, 0, 1, 2)),
        "redelivery": rng.choice(("same", "other")),
        "reads": rng.choice(("versions", "versions", "versions", "holes", "windows")),
        "copies": rng.choice(("none", "none", "none", "some", "all")),
        "slices": rng.choice((1, 1, 2, 4)),
    }
    if entry.stretch is None:
        drawn.update(slices=1)
        if given.get("slices", 1) > 1:
            able = ", ".join(name for name, each in PROTOCOLS.items() if each.stretch is not None)
            raise WrongUse(
                f"protocol {entry.name} has no batches that can be cut into slices; protocols that"
                f" have: {able}"
            )
    if entry.fifo:
        drawn |= _IN_TURN
        refuse_reads(entry, given.get("reads", "versions"))
        if any(given.get(knob, usual) != usual for knob, usual in _IN_TURN.items()):
            _refuse_for_fifo(entry)
    return Schedule(seed, **{**drawn, **given})


def refuse_reads(entry: Entry, reads: Reads) -> None:
    """Raises WrongUse if the protocol cannot keep views over sources that read in this way."""
    _refuse_unknown(reads)
    if entry.fifo and reads != "versions":
        _refuse_for_fifo(entry)


def _refuse_unknown(reads: Reads) -> None:
    if reads not in get_args(Reads):
        raise WrongUse(f"reads has to be versions, holes or windows, not {reads!r}")


def _refuse_for_fifo(entry: Entry) -> NoReturn:
    raise WrongUse(
        f"protocol {entry.name} needs FIFO channels: with them an answer always shows its source's"
        " current version, so stale reads, partitions, holes, windows and copies cannot be"
        " simulated"
    )


def _yes(truth: bool) -> str:
    return "yes" if truth else "no"
