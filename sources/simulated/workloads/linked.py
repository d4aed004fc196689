"""A family of workloads for measurements: n relations at n sources, as a chain, star or tree.

    chain4    parcels -> orders -> contracts -> agents
    star4     parcels -> each of orders, contracts, agents
    tree4     parcels -> orders and contracts, orders -> agents

The relation that links point to is 1.25 times smaller than the one they come from, and links are
spread evenly, so a change of one row changes one to a few rows of the view for any n. `scale` is
the number of base rows of all relations together. Each transaction changes a single row: 70 %
insert, 20 % modify (a quarter of these moves the row to another partner) and 10 % delete.

All data is generated in columns: rows by the million, changes by the thousand. Random numbers are
remainders of the raw output of PCG64, which numpy guarantees: the same on every machine.

Each row carries its `revision`, the version of its source that wrote it. So a row of the view tells
from which versions of each source it can be derived (bench/vectors.py).
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

import numpy as np
import polars as pl

from protocols.algebra.delta import COUNT
from protocols.algebra.framelog import VERSION
from protocols.errors import WrongUse
from protocols.views.catalog import Catalog, Relation, relation_from_json
from sources.simulated.workloads.linkedviews import LINKED_VIEWS, linked_view
from sources.transaction import RowChange, Transaction

#: (source, relation, its name in the links of others).
_PLACES = (
    ("shipping", "parcels", "parcel"),
    ("sales", "orders", "order"),
    ("legal", "contracts", "contract"),
    ("staff", "agents", "agent"),
    ("estate", "offices", "office"),
    ("storage", "depots", "depot"),
    ("fleet", "carriers", "carrier"),
    ("registry", "owners", "owner"),
)
MOST_RELATIONS = len(_PLACES)
_NAME = re.compile(r"(chain|star|tree)([2-8])")
NAMES = "chain2 … chain8, star2 … star8, tree2 … tree8"
#: How many rows link to one row, on average.
_FAN_OUT = 1.25
#: The range of links exceeds the initial rows by this factor: some partners come later, some never.
_TO_COME = 1.02
#: Of ten transactions this many insert, and this many modify; the others delete.
_INSERTS, _MODIFICATIONS = 7, 2
#: One in this many modifications moves the row to another partner.
_MOVES = 4
#: Transactions drawn at once; they touch no row twice.
_CHUNK = 1_000
_WORDS = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heath")


@dataclass(frozen=True)
class Linked:
    """One member of the family; the same interface as `stream.Workload`."""

    name: str
    #: The indexes of the linked relations (from, to).
    links: tuple[tuple[int, int], ...]

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple(source for source, _, _ in _PLACES[: len(self.links) + 1])

    @property
    def catalog(self) -> Catalog:
        return Catalog(tuple(self._relation(index) for index in range(len(self.links) + 1)))

    @property
    def view(self) -> str:
        """Keys, revisions and amounts of all relations."""
        outputs = ", ".join(
            f"{name}.number AS {one}_id, {name}.revision AS {one}_revision,"
            f" {name}.amount AS {one}_amount"
            for _, name, one in _PLACES[: len(self.links) + 1]
        )
        text = f"SELECT {outputs}\nFROM {_PLACES[0][0]}.{_PLACES[0][1]}"
        for of, to in self.links:
            source, name, one = _PLACES[to]
            text += f"\nJOIN {source}.{name} ON {_PLACES[of][1]}.{one}_id = {name}.number"
        return text + "\n"

    def view_named(self, name: str | None) -> str:
        """One of its views; without a name the inner join."""
        if name is None:
            return self.view
        if name not in LINKED_VIEWS:
            raise WrongUse(
                f"workload {self.name} has no view {name!r}; besides its inner join it has"
                f" {', '.join(LINKED_VIEWS)}"
            )
        return linked_view(name, self.view, self.catalog)

    def source(self, source: str, scale: int = 1000, seed: int = 0) -> "LinkedSource":
        """One of its sources; the same scale and seed make the same source again."""
        if source not in self.sources:
            raise WrongUse(
                f"workload {self.name} has no source {source!r}; it has {', '.join(self.sources)}"
            )
        if scale < len(self.sources):
            raise WrongUse(
                f"workload {self.name}: the scale is the total number of base rows; {scale} is too"
                f" small, it must be at least {len(self.sources)}"
            )
        index, sizes = self.sources.index(source), self.sizes(scale)
        bounds = {
            f"{_PLACES[to][2]}_id": int(sizes[to] * _TO_COME) + 1
            for of, to in self.links
            if of == index
        }
        purpose = f"{self.name}/{source}/{scale}/{seed}"
        return LinkedSource(self._relation(index), sizes[index], bounds, purpose)

    def sizes(self, scale: int) -> list[int]:
        """The initial number of rows of each relation; together `scale`."""
        depths = [0] * (len(self.links) + 1)
        for of, to in self.links:
            depths[to] = depths[of] + 1
        shares = [_FAN_OUT**-depth for depth in depths]
        rest = [max(1, int(scale * share / sum(shares))) for share in shares[1:]]
        return [scale - sum(rest), *rest]

    def _relation(self, index: int) -> Relation:
        source, name, _ = _PLACES[index]
        linked = [f"{_PLACES[to][2]}_id" for of, to in self.links if of == index]
        columns = ["number", *linked, "amount", "revision"]
        typed = {**dict.fromkeys(columns, "BIGINT"), "label": "VARCHAR"}
        return relation_from_json(source, name, {"columns": typed, "key": ["number"]})


@lru_cache
def linked(name: str) -> Linked | None:
    """The member of the family with this name, if there is one."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    shape, size = match[1], int(match[2])
    partners = {
        "chain": range(size - 1),
        "star": [0] * (size - 1),
        "tree": [(to - 1) // 2 for to in range(1, size)],
    }
    return Linked(name, tuple(zip(partners[shape], range(1, size), strict=True)))


class LinkedSource:
    """The initial rows and the transactions of one source."""

    def __init__(
        self, relation: Relation, size: int, bounds: Mapping[str, int], purpose: str
    ) -> None:
        self.relation = relation
        self._size = size
        #: Link column → the largest number of a partner, from 1.
        self._bounds = dict(bounds)
        self._purpose = purpose

    @property
    def catalog(self) -> Catalog:
        return Catalog((self.relation,))

    def initial_rows(self) -> dict[str, pl.DataFrame]:
        """The rows of version 0, by relation."""
        return {self.relation.name: self._frame(self._first_rows())}

    def transactions(self) -> Iterator[Transaction]:
        """Endless; each one is valid after those before it, and changes something."""
        names, relation = self.relation.column_names, self.relation.name
        for chunk in self._chunks():
            grouped: dict[int, list[RowChange]] = {}
            for *row, count, version in chunk.select(*names, COUNT, VERSION).iter_rows():
                grouped.setdefault(version, []).append(RowChange(relation, tuple(row), count))
            for changes in grouped.values():
                yield Transaction(tuple(changes))

    def changes(self, transactions: int) -> pl.DataFrame:
        """The same as signed rows: the relation's columns, `_count` and `_version`, in order."""
        frames = list(islice(self._chunks(), -(-transactions // _CHUNK)))
        none = _signed(self._frame(self._first_rows()).clear(), 1, np.empty(0, np.int64))
        return pl.concat([none, *frames]).filter(pl.col(VERSION) <= transactions)

    def _chunks(self) -> Iterator[pl.DataFrame]:
        """The changes of `_CHUNK` transactions at a time, in order."""
        dice = _Dice(self._purpose, "transactions")
        rows, version, next_id = self._first_rows(), 1, self._size + 1
        while True:
            versions = np.arange(version, version + _CHUNK)
            kinds = self._kinds(dice, len(rows["number"]))
            touched = dice.different(len(rows["number"]), int((kinds > 0).sum()))
            old = {name: column[touched] for name, column in rows.items()}
            inserted = self._drawn(dice, next_id + np.arange((kinds == 0).sum()))
            inserted["revision"] = versions[kinds == 0]
            modified = kinds[kinds > 0] == 1
            new = self._modified(dice, {name: column[modified] for name, column in old.items()})
            new["revision"] = versions[kinds == 1]
            yield self._in_order(
                (old, -1, versions[kinds > 0]),
                (new, 1, versions[kinds == 1]),
                (inserted, 1, versions[kinds == 0]),
            )
            for name, column in rows.items():
                column[touched[modified]] = new[name]
                kept = np.delete(column, touched[~modified])
                rows[name] = np.concatenate((kept, inserted[name]))
            version, next_id = version + _CHUNK, next_id + len(inserted["number"])

    def _kinds(self, dice: "_Dice", rows: int) -> np.ndarray:
        """0 inserts, 1 modifies, 2 deletes; at most as many modify or delete as there are rows."""
        drawn = dice.below(10, _CHUNK)
        kinds = (drawn >= _INSERTS).astype(np.int64) + (drawn >= _INSERTS + _MODIFICATIONS)
        kinds[np.cumsum(kinds > 0) > rows // 2] = 0
        return kinds

    def _in_order(self, *parts: tuple[Mapping[str, np.ndarray], int, np.ndarray]) -> pl.DataFrame:
        signed = [_signed(self._frame(rows), count, at) for rows, count, at in parts]
        return pl.concat(signed).sort(VERSION, COUNT)

    def _first_rows(self) -> dict[str, np.ndarray]:
        return self._drawn(_Dice(self._purpose, "rows"), np.arange(1, self._size + 1))

    def _drawn(self, dice: "_Dice", ids: np.ndarray) -> dict[str, np.ndarray]:
        """New rows, not yet written by a version; the label is made of the amount."""
        links = {name: 1 + dice.below(bound, len(ids)) for name, bound in self._bounds.items()}
        amount = dice.below(100_000, len(ids))
        return {"number": ids, **links, "amount": amount, "revision": np.zeros(len(ids), np.int64)}

    def _modified(self, dice: "_Dice", old: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Gives all rows another amount, and some another partner."""
        size = len(old["number"])
        more = {"amount": old["amount"] + 1 + dice.below(500, size)}
        moves = dice.below(_MOVES, size) == 0
        for name, bound in self._bounds.items():
            more[name] = np.where(moves, 1 + dice.below(bound, size), old[name])
        return {**old, **more}

    def _frame(self, rows: Mapping[str, np.ndarray]) -> pl.DataFrame:
        words = pl.Series(_WORDS).gather(rows["amount"] % len(_WORDS))
        frame = pl.DataFrame({name: pl.Series(column) for name, column in rows.items()})
        label = pl.format("{} {}", words, pl.col("number")).alias("label")
        return frame.with_columns(label).select(self.relation.column_names)


class _Dice:
    """Columns of random choices, determined by their purpose."""

    def __init__(self, *purpose: object) -> None:
        text = "/".join(str(part) for part in purpose)
        seed = hashlib.sha256(text.encode()).digest()
        self._raw = np.random.PCG64(int.from_bytes(seed, "big")).random_raw

    def below(self, bound: int, size: int) -> np.ndarray:
        """Any of 0 … bound - 1, with equal probability."""
        return (self._raw(size) % np.uint64(bound)).astype(np.int64)

    def different(self, bound: int, size: int) -> np.ndarray:
        """`size` different numbers below a bound, in any order."""
        found = np.unique(self.below(bound, 2 * size))
        if bound < 8 * size or len(found) < size:
            # With few to choose from, shuffles all of them.
            found = np.arange(bound)
        order = np.argsort(self._raw(len(found)), kind="stable")
        return found[order][:size]


def _signed(rows: pl.DataFrame, count: int, versions: np.ndarray) -> pl.DataFrame:
    at = pl.Series(VERSION, versions, pl.Int64)
    return rows.with_columns(pl.lit(count, pl.Int64).alias(COUNT), at)
