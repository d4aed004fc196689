"""SQL queries drawn at random: their parts are drawn, not taken from a list of views.

Only rules that hold for every accepted view are built in: joins have an equality between columns of
one type, subqueries are linked to the outer query by equalities, both sides of a set operation have
the same types. A query that is refused for other reasons is drawn again (`drawnviews.py`).
"""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from protocols.algebra.expressions import COMPARISONS
from protocols.simulation.drawnscalars import ScalarDice, VisibleColumn
from protocols.simulation.drawntables import (
    Relations,
    TableDice,
    columns_of,
    common_names,
    name_of,
    sum_of_doubles,
    unambiguous,
    windowed,
)

_QUANTIFIED = tuple(COMPARISONS)
#: The name of an item that is more than a column.
_NAME = re.compile(r"(?<=\)|D) AS (c\d+)\b")
#: A column without its table.
_WITHOUT_TABLE = re.compile(r"id|x|y|v|w")


class NoQuery(Exception):
    """The query cannot be completed; another one has to be drawn."""


@dataclass(frozen=True)
class DrawnQuery:
    """The text of a query, and the types of its columns by name."""

    text: str
    columns: Mapping[str, str]


def drawn_query(rng: Random, relations: Relations, room: int, keyed: Sequence[str] = ()) -> str:
    """Draws the text of a query that names at most about `room` relations, some with a key."""
    return _Drawing(rng, relations, room, keyed).whole()


class _Drawing:
    """A query that is being drawn."""

    def __init__(self, rng: Random, relations: Relations, room: int, keyed: Sequence[str]) -> None:
        self._rng = rng
        self._relations = relations
        #: The number of relations that may still be named.
        self._room = room
        self._numbers = itertools.count()
        #: Queries in WITH: name → (columns, the number of relations that they name).
        self._common: dict[str, tuple[Mapping[str, str], int]] = {}
        self._scalars = ScalarDice(rng, self._asked)
        self._tables = TableDice(Random(repr(rng.getstate())), relations)
        self._keyed = keyed
        #: Whether a drawn scalar may contain subqueries.
        self._asks = False

    def whole(self) -> str:
        """Draws the whole text."""
        with_ = []
        while self._room > 2 and self._rng.random() < 0.15:
            before, name = self._room, f"w{next(self._numbers)}"
            query = self._query()
            with_.append(f"{name} AS ({query.text})")
            self._common[name] = query.columns, before - self._room
            self._room += 1
        text = self._query().text
        return self._less_named(f"WITH {', '.join(with_)} {text}" if with_ else text)

    def _less_named(self, text: str) -> str:
        """Leaves out some of the names that nothing uses."""

        def name(found: re.Match[str]) -> str:
            unused = len(re.findall(rf"\b{found[1]}\b", text)) == 1
            return "" if unused and self._tables.happens(0.3) else found[0]

        return _NAME.sub(name, text)

    # -- queries ---------------------------------------------------------------------------------

    def _query(self, types: Sequence[str] | None = None) -> DrawnQuery:
        """Draws a SELECT or a set operation; with these types if any are given."""
        if self._room < 2 or self._rng.random() < 0.8:
            return self._select(types)
        left = self._select(types)
        right = self._query(list(left.columns.values()))
        operation = self._rng.choice(("UNION", "INTERSECT", "EXCEPT"))
        every = self._rng.choice(("", " ALL"))
        return DrawnQuery(f"({left.text}) {operation}{every} ({right.text})", left.columns)

    def _select(self, types: Sequence[str] | None) -> DrawnQuery:
        tables, columns = self._from(self._rng.choice((1, 2, 2, 3, 4)), self._rng.choice((0, 1)))
        where = self._where(columns, 0.6)
        if self._rng.random() < 0.4:
            return self._grouped(tables, columns, where, types)
        items = self._items(columns, types, asks=self._rng.random() < 0.3)
        distinct = self._rng.choice(("", "", "", "DISTINCT "))
        items, qualify = windowed(items, columns)
        return DrawnQuery(
            f"SELECT {distinct}{_listed(items)} FROM {tables}{where}{qualify}", _columns(items)
        )

    def _grouped(
        self, tables: str, columns: Sequence[VisibleColumn], where: str, types: Sequence[str] | None
    ) -> DrawnQuery:
        drawn = [self._key(columns) for _ in range(self._rng.choice((0, 1, 1, 2)))]
        keys = list(dict.fromkeys(drawn))
        aggregates = [self._aggregate(columns) for _ in range(self._rng.choice((1, 1, 2, 3)))]
        seen = [*keys, *aggregates]
        items = self._items(seen, types)
        group = f" GROUP BY {self._tables.sets([key.text for key in keys])}" if keys else ""
        having = ""
        if self._rng.random() < 0.3:
            having = f" HAVING {self._condition(seen, asks=self._rng.random() < 0.2)}"
        shown = f"{_listed(items)}{having}"
        if not keys and not any(aggregate.text in shown for aggregate in aggregates):
            raise NoQuery("neither GROUP BY nor an aggregate")
        text = f"SELECT {_listed(items)} FROM {tables}{where}{group}{having}"
        return DrawnQuery(text, _columns(items))

    def _key(self, columns: Sequence[VisibleColumn]) -> VisibleColumn:
        shown = self._rng.choice(columns)
        if self._rng.random() < 0.8:
            return shown
        return VisibleColumn(self._scalar(shown.type, columns), shown.type)

    def _aggregate(self, columns: Sequence[VisibleColumn]) -> VisibleColumn:
        shown = self._rng.choice(columns)
        if self._tables.happens(0.1):
            return VisibleColumn(self._tables.decision(shown), "BOOLEAN")
        value = shown.text
        if self._rng.random() < 0.2:
            value = self._scalar(shown.type, columns)
        functions = ["count", "min", "max", "count(*)"]
        if shown.type in ("BIGINT", "DECIMAL(6,2)"):
            functions += ["sum", "avg", "sum", "avg"]
        function = self._rng.choice(functions)
        distinct = self._rng.choice(("", "", "DISTINCT "))
        text = "count(*)" if function == "count(*)" else f"{function}({distinct}{value})"
        if self._rng.random() < 0.2:
            text += f" FILTER (WHERE {self._condition(columns)})"
        if (doubles := sum_of_doubles(text, columns)) is not None:
            return VisibleColumn(doubles, "DOUBLE")
        return VisibleColumn(text, self._type_of(function, shown.type))

    def _type_of(self, function: str, type_: str) -> str:
        match function:
            case "min" | "max":
                return type_
            case "avg":
                return "DOUBLE"
            case "sum":
                return "DECIMAL(38,0)" if type_ == "BIGINT" else "DECIMAL(38,2)"
        return "BIGINT"

    def _items(
        self, seen: Sequence[VisibleColumn], types: Sequence[str] | None, asks: bool = False
    ) -> list[tuple[str, str]]:
        """Draws the selected items: (text, type)."""
        if types is None:
            shown = [self._rng.choice(seen) for _ in range(self._rng.choice((1, 1, 2, 3, 4)))]
            types = [each.type for each in shown]
            # Mostly plain columns, or hardly any rows would match.
            texts = [
                each.text if self._rng.random() < 0.75 else self._scalar(each.type, seen, asks)
                for each in shown
            ]
        else:
            texts = [self._scalar(type_, seen, asks) for type_ in types]
        return [
            (f"{text} AS {self._name()}", type_) for text, type_ in zip(texts, types, strict=True)
        ]

    def _scalar(self, type_: str, columns: Sequence[VisibleColumn], asks: bool = False) -> str:
        self._asks = asks
        value = self._scalars.value(type_, columns)
        self._asks = False
        return value

    # -- FROM ------------------------------------------------------------------------------------

    def _from(self, most: int, spare: int = 0) -> tuple[str, list[VisibleColumn]]:
        """Draws joined tables, and their columns; leaves `spare` room for subqueries."""
        text, tables = self._table()
        for _ in range(self._rng.randint(0, most - 1)):
            if self._room <= spare:
                break
            text, tables = self._joined(text, tables)
        return text, [shown for columns in tables.values() for shown in columns]

    def _joined(
        self, text: str, tables: dict[str, list[VisibleColumn]]
    ) -> tuple[str, dict[str, list[VisibleColumn]]]:
        other, new = self._table()
        if self._room > 0 and self._rng.random() < 0.2:
            # Joins in parentheses on the right: not a left-deep tree.
            other, new = self._joined(other, new)
            other, new = self._in_parentheses(other, new)
        both = {**unambiguous(tables, new), **unambiguous(new, tables)}
        kind = self._rng.choice(("JOIN", "LEFT JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"))
        common = common_names(tables, new)
        if common and self._rng.random() < 0.15:
            name = self._rng.choice(common)
            type_ = next(e.type for cs in new.values() for e in cs if name_of(e) == name)
            merged = {f"USING {name}": [VisibleColumn(name, type_)]}
            return f"{text} {kind} {other} USING ({name})", {**both, **merged}
        ours, theirs = ([each for cs in side.values() for each in cs] for side in (tables, new))
        on = " AND ".join(self._equalities(ours, theirs, self._rng.choice((1, 1, 1, 2))))
        on = self._tables.link(on, [*ours, *theirs])
        if self._rng.random() < 0.35:
            on += f" AND {self._condition([*ours, *theirs])}"
        if self._tables.happens(0.05):
            kind = self._rng.choice(("SEMI JOIN", "ANTI JOIN"))
            return f"{text} {kind} {other} ON {on}", tables
        return f"{text} {kind} {other} ON {on}", both

    def _in_parentheses(
        self, text: str, tables: dict[str, list[VisibleColumn]]
    ) -> tuple[str, dict[str, list[VisibleColumn]]]:
        """Joined tables; sometimes under one alias, with other names for all columns."""
        if " USING " in text or self._tables.happens(0.25):
            return f"({text})", tables
        alias = f"t{next(self._numbers)}"
        types = {self._name(): each.type for columns in tables.values() for each in columns}
        return f"({text}) AS {alias}({', '.join(types)})", {alias: columns_of(alias, types)}

    def _equalities(
        self, ours: Sequence[VisibleColumn], theirs: Sequence[VisibleColumn], number: int
    ) -> Iterator[str]:
        pairs = [(a, b) for a in ours for b in theirs if a.type == b.type]
        if not pairs:
            raise NoQuery("nothing to join on")
        for _ in range(number):
            one, other = self._rng.choice(pairs)
            yield f"{one.text} = {other.text}"

    def _table(self) -> tuple[str, dict[str, list[VisibleColumn]]]:
        """Draws a relation, a query of WITH, or a subquery."""
        alias = f"t{next(self._numbers)}"
        if self._common and self._rng.random() < 0.6:
            name = self._rng.choice(list(self._common))
            columns, size = self._common[name]
            self._room -= size
            return f"{name} AS {alias}", {alias: columns_of(alias, columns)}
        if self._room > 1 and self._rng.random() < 0.15:
            query = self._query()
            if self._tables.happens(0.3):
                return f"({query.text})", {alias: columns_of("", query.columns)}
            return f"({query.text}) AS {alias}", {alias: columns_of(alias, query.columns)}
        self._room -= 1
        name = self._rng.choice(list(self._relations))
        if self._room > 0 and self._tables.happens(0.08):
            return self._everything_of(name, alias)
        if self._tables.happens(0.05):
            types = list(self._relations[name].values())[:2]
            constants = {self._name(): type_ for type_ in types}
            return self._tables.constants(constants, alias), {alias: columns_of(alias, constants)}
        return f"{name} AS {alias}", {alias: columns_of(alias, self._relations[name])}

    def _everything_of(self, name: str, alias: str) -> tuple[str, dict[str, list[VisibleColumn]]]:
        """Draws SELECT * over two relations."""
        self._room -= 1
        query, types = self._tables.everything(name, alias)
        columns = {self._name(): type_ for type_ in types}
        return f"({query}) AS {alias}({', '.join(columns)})", {alias: columns_of(alias, columns)}

    # -- conditions ------------------------------------------------------------------------------

    def _where(self, columns: Sequence[VisibleColumn], likely: float) -> str:
        if self._rng.random() >= likely:
            return ""
        parts = [
            self._conjunct(columns)
            if self._rng.random() < 0.4
            else self._condition(columns, asks=self._rng.random() < 0.7)
            for _ in range(self._rng.choice((1, 1, 2)))
        ]
        if (more := self._tables.test(columns)) is not None:
            parts.append(more)
        return f" WHERE {' AND '.join(parts)}"

    def _condition(self, columns: Sequence[VisibleColumn], asks: bool = False) -> str:
        """Draws a condition, with or without subqueries."""
        self._asks = asks
        condition = self._scalars.condition(columns)
        self._asks = False
        return condition

    def _conjunct(self, columns: Sequence[VisibleColumn]) -> str:
        """Draws EXISTS or IN directly below WHERE, where not only equalities may link."""
        if self._room < 1:
            return self._condition(columns)
        form = self._rng.choice(("EXISTS", "NOT EXISTS", "IN", "NOT IN", "NOT IN"))
        others = form != "NOT IN" and self._rng.random() < 0.4
        tables, own, linked = self._linked(columns, others)
        if form.endswith("EXISTS"):
            return f"{form} (SELECT 1 FROM {tables}{linked})"
        ours, item = self._item_like(columns, own)
        if form == "IN" and not linked and self._tables.happens(0.6):
            more = self._item_like(columns, own)
            ours, item = f"({ours}, {more[0]})", f"{item}, {more[1]}"
        return f"{ours} {form} (SELECT {item} FROM {tables}{linked})"

    def _linked(
        self, columns: Sequence[VisibleColumn], others: bool
    ) -> tuple[str, list[VisibleColumn], str]:
        """Draws FROM and WHERE of a subquery; returns its columns too."""
        # Inside, the tables of the subquery have columns of the same names.
        columns = [each for each in columns if not _WITHOUT_TABLE.fullmatch(each.text)]
        asks = self._asks
        tables, own = self._from(self._rng.choice((1, 1, 1, 2)))
        parts: list[str] = []
        if self._rng.random() < 0.8:
            parts += self._equalities(own, columns, self._rng.choice((1, 1, 2)))
        if parts and others:
            parts.append(self._test_of_both(own, columns))
        if self._rng.random() < 0.3:
            parts.append(self._condition(own))
        self._asks = asks
        return tables, own, f" WHERE {' AND '.join(parts)}" if parts else ""

    def _test_of_both(self, own: Sequence[VisibleColumn], columns: Sequence[VisibleColumn]) -> str:
        """Draws a condition, not a plain equality, on columns of a subquery and the outer query."""
        ours, theirs = self._rng.choice(own), self._rng.choice(columns)
        if ours.type != theirs.type:
            return f"({ours.text} IS NULL OR {theirs.text} IS NOT NULL)"
        op = self._rng.choice(_QUANTIFIED)
        return f"({ours.text} {op} {theirs.text} OR {ours.text} IS NULL)"

    def _item_like(
        self, columns: Sequence[VisibleColumn], own: Sequence[VisibleColumn]
    ) -> tuple[str, str]:
        pairs = [(a, b) for a in columns for b in own if a.type == b.type]
        if not pairs:
            raise NoQuery("nothing to compare")
        ours, item = self._rng.choice(pairs)
        return ours.text, item.text

    def _asked(self, columns: Sequence[VisibleColumn], wanted: str) -> str | None:
        """Draws a condition with a subquery, or a subquery as a value of a type."""
        if not self._asks or self._room < 1:
            return None
        if wanted == "a condition":
            return self._subquery_condition(columns)
        return self._single_value(columns, wanted)

    def _subquery_condition(self, columns: Sequence[VisibleColumn]) -> str:
        tables, own, linked = self._linked(columns, others=False)
        if self._rng.random() < 0.25:
            return f"{self._rng.choice(('', 'NOT '))}EXISTS (SELECT 1 FROM {tables}{linked})"
        ours, item = self._item_like(columns, own)
        query = f"(SELECT {item} FROM {tables}{linked})"
        form = self._rng.choice(("IN", "NOT IN", "NOT IN", "ANY", "ALL"))
        if "IN" in form:
            return f"{ours} {form} {query}"
        return f"{ours} {self._rng.choice(_QUANTIFIED)} {form} {query}"

    def _single_value(self, columns: Sequence[VisibleColumn], wanted: str) -> str | None:
        if self._keyed and self._tables.happens(0.3):
            return self._value_by_key(columns, wanted)
        tables, own, linked = self._linked(columns, others=False)
        values = [each.text for each in own if each.type == wanted]
        forms = [f"{function}({value})" for value in values for function in ("min", "max")]
        if wanted == "BIGINT":
            forms += ["count(*)", *(f"count({each.text})" for each in own)]
        if wanted == "DECIMAL(38,0)":
            forms += [f"sum({each.text})" for each in own if each.type == "BIGINT"]
        if wanted == "DOUBLE":
            forms += [f"avg({each.text})" for each in own if each.type == "BIGINT"]
        if not forms:
            return None
        return f"(SELECT {self._rng.choice(forms)} FROM {tables}{linked})"

    def _value_by_key(self, columns: Sequence[VisibleColumn], wanted: str) -> str | None:
        name, alias = self._tables.rng.choice(self._keyed), f"t{next(self._numbers)}"
        own = [column for column, type_ in self._relations[name].items() if type_ == wanted]
        numbers = [c.text for c in columns if c.type == "BIGINT" and "." in c.text]
        if not own or not numbers:
            return None
        self._room -= 1
        item, number = self._tables.rng.choice(own), self._tables.rng.choice(numbers)
        return f"(SELECT {alias}.{item} FROM {name} AS {alias} WHERE {alias}.id = {number})"

    def _name(self) -> str:
        return f"c{next(self._numbers)}"


def _listed(items: Sequence[tuple[str, str]]) -> str:
    return ", ".join(text for text, _ in items)


def _columns(items: Sequence[tuple[str, str]]) -> dict[str, str]:
    return {text.rpartition(" ")[2]: type_ for text, type_ in items}
