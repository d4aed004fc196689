"""From the text of a view to a checked `View`, or a refusal that points at the place.

What is kept so far: SELECT of columns FROM relations written `source.relation`, joined by comma,
JOIN … ON, JOIN … USING or CROSS JOIN, and WHERE with any condition that `scalars.py` reads. For
inner joins the conjuncts of ON and WHERE mean the same: one pot.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NoReturn

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError

from protocols.algebra import expressions as ex
from protocols.algebra.types import ColumnType
from protocols.errors import ViewRefused
from protocols.views.catalog import Catalog, Relation
from protocols.views.scalars import Scalars
from protocols.views.view import Atom, Link, Output, View

_KEPT_CLAUSES = {"expressions", "from_", "joins", "where"}
_CLAUSE_NAMES = {"with_": "WITH", "group": "GROUP BY", "order": "ORDER BY", "laterals": "LATERAL"}


def parse_view(name: str, sql: str, catalog: Catalog) -> View:
    """The view that this SQL means over these relations."""
    return _Parser(name, sql, catalog).view()


def sources_named_in(sql: str) -> set[str]:
    """The sources that a text seems to speak of, in lower case; empty if it is not SQL at all."""
    try:
        statements = sqlglot.parse(sql, read="duckdb")
    except SqlglotError:
        return set()
    tables = (table for s in statements if s is not None for table in s.find_all(exp.Table))
    return {table.db.lower() for table in tables if table.db}


@dataclass
class _Parser:
    """The state of one parse; every refusal knows the text it speaks of."""

    name: str
    sql: str
    catalog: Catalog
    #: FROM so far: alias → (place in FROM, relation).
    atoms: dict[str, tuple[int, Relation]] = field(default_factory=dict)
    #: Columns that USING made one: lower-case name → the alias whose column stands for both.
    merged: dict[str, str] = field(default_factory=dict)
    #: Conjuncts over columns named (alias, column), with the SQL they came from.
    conjuncts: list[tuple[ex.Condition, exp.Expr]] = field(default_factory=list)

    def view(self) -> View:
        select = self._only_statement()
        self._refuse_other_clauses(select)
        self._read_from(select)
        where = select.args.get("where")
        if where is not None:
            self._add_conjuncts(where.this)
        outputs = tuple(self._outputs(select))
        self._refuse_equal_names(outputs, select)
        return self._assembled(outputs, select)

    # -- the statement ------------------------------------------------------------------------

    def _only_statement(self) -> exp.Select:
        try:
            statements = [s for s in sqlglot.parse(self.sql, read="duckdb") if s is not None]
        except ParseError as error:
            first = error.errors[0]
            # sqlglot's description names its own classes; what stands at the place says more.
            near = first.get("highlight") or "the end"
            raise ViewRefused(
                f"this is not SQL: something is missing or misplaced near {near!r}",
                first.get("line") or 1,
                first.get("col") or 1,
            ) from None
        except SqlglotError:
            raise ViewRefused(
                "this is not SQL: a quote or a comment is not closed", *self._end()
            ) from None
        if not statements:
            raise ViewRefused("there is no SELECT in it")
        if len(statements) > 1:
            self._refuse(statements[1], "a view is one SELECT; here a second statement begins")
        if not isinstance(statements[0], exp.Select):
            words = self.sql.split(None, 1)[0]
            kind = "UNION, INTERSECT and EXCEPT are not supported yet"
            what = kind if isinstance(statements[0], exp.SetOperation) else f"this is {words} …"
            self._refuse(statements[0], f"a view is one SELECT; {what}")
        return statements[0]

    def _refuse_other_clauses(self, select: exp.Select) -> None:
        for clause, value in select.args.items():
            if value and clause not in _KEPT_CLAUSES:
                name = _CLAUSE_NAMES.get(clause, clause.strip("_").upper())
                place = value[0] if isinstance(value, list) else value
                self._refuse(place, f"{name} is not supported yet")
        if not select.args.get("from_"):
            self._refuse(select, "the view names no relation: FROM source.relation is missing")

    # -- FROM ---------------------------------------------------------------------------------

    def _read_from(self, select: exp.Select) -> None:
        self._add_table(select.args["from_"].this)
        for join in select.args.get("joins") or ():
            self._add_join(join)

    def _add_join(self, join: exp.Join) -> None:
        side, kind, method = join.side.upper(), join.kind.upper(), join.method.upper()
        if side or kind not in ("", "INNER", "CROSS") or method:
            words = " ".join(word for word in (method, side, kind) if word)
            self._refuse(join, f"{words} JOIN is not supported yet, only inner joins are")
        before = list(self.atoms)
        alias = self._add_table(join.this)
        for column in join.args.get("using") or ():
            self._merge(column, before, alias)
        if join.args.get("on") is not None:
            self._add_conjuncts(join.args["on"])

    def _add_table(self, table: exp.Expr) -> str:
        if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
            self._refuse(table, "only relations can stand in FROM so far, no subqueries")
        if not table.db or table.catalog:
            self._refuse(table, f"write relations as source.relation, not {table.sql()!r}")
        relation = self._relation(table)
        alias = table.alias or relation.name
        if any(alias.lower() == other.lower() for other in self.atoms):
            self._refuse(table, f"the name {alias!r} occurs twice in FROM; give one an alias")
        if table.args.get("joins") or table.args.get("pivots") or table.args.get("sample"):
            self._refuse(table, "nested joins, PIVOT and TABLESAMPLE are not supported")
        self.atoms[alias] = (len(self.atoms), relation)
        return alias

    def _relation(self, table: exp.Table) -> Relation:
        wanted = (table.db.lower(), table.name.lower())
        for relation in self.catalog:
            if (relation.source.lower(), relation.name.lower()) == wanted:
                return relation
        known = ", ".join(map(str, self.catalog.relations)) or "none at all"
        self._refuse(table, f"there is no relation {table.db}.{table.name}; there are: {known}")

    def _merge(self, column: exp.Identifier, before: list[str], alias: str) -> None:
        """USING (c): c of the new table equals c of the ones before, and is called just c."""
        left = [a for a in before if self._own_column(a, column.name) is not None]
        name = column.name.lower()
        if name in self.merged:
            left = [self.merged[name]]
        if len(left) != 1 or self._own_column(alias, column.name) is None:
            self._refuse(column, f"USING ({column.name}): each side must have it exactly once")
        ends = [ex.Column(self._qualified(a, column.name)) for a in (left[0], alias)]
        self._check_comparable(self._type(ends[0]), self._type(ends[1]), column)
        self.merged[name] = left[0]
        self.conjuncts.append((ex.Comparison(ends[0], "=", ends[1]), column))

    # -- columns ------------------------------------------------------------------------------

    def _own_column(self, alias: str, name: str) -> str | None:
        """How the relation itself spells this column, if it has it."""
        columns = self.atoms[alias][1].column_names
        return next((c for c in columns if c.lower() == name.lower()), None)

    def _qualified(self, alias: str, name: str) -> str:
        return f"{alias}.{self._own_column(alias, name)}"

    def _column(self, column: exp.Column) -> ex.Column:
        if column.args.get("db"):
            self._refuse(column, f"write columns as alias.column, not {column.sql()!r}")
        if column.table:
            return ex.Column(self._qualified(self._alias(column), column.name))
        owners = [alias for alias in self.atoms if self._own_column(alias, column.name)]
        if column.name.lower() in self.merged:
            owners = [self.merged[column.name.lower()]]
        if len(owners) > 1:
            choices = " or ".join(f"{alias}.{column.name}" for alias in owners)
            self._refuse(column, f"{column.name!r} is ambiguous: write {choices}")
        if not owners:
            self._refuse(column, f"no relation in FROM has a column {column.name!r}")
        return ex.Column(self._qualified(owners[0], column.name))

    def _alias(self, column: exp.Column) -> str:
        for alias, (_, relation) in self.atoms.items():
            if alias.lower() == column.table.lower():
                starred = isinstance(column.this, exp.Star)
                if not starred and not self._own_column(alias, column.name):
                    known = f"it has: {', '.join(relation.column_names)}"
                    self._refuse(column, f"{relation} has no column {column.name!r}; {known}")
                return alias
        self._refuse(column, f"{column.table!r} is not in FROM; there are: {', '.join(self.atoms)}")

    def _type(self, column: ex.Column) -> ColumnType:
        alias, _, name = column.name.rpartition(".")
        return self.atoms[alias][1].type_of(name)

    # -- conditions ---------------------------------------------------------------------------

    def _add_conjuncts(self, node: exp.Expr) -> None:
        for part in node.flatten() if isinstance(node, exp.And) else (node,):
            if isinstance(part.unnest(), exp.And):
                self._add_conjuncts(part.unnest())
            else:
                self.conjuncts.append((self._scalars.condition(part), part))

    @cached_property
    def _scalars(self) -> Scalars:
        def column(node: exp.Column) -> tuple[str, ColumnType]:
            found = self._column(node)
            return found.name, self._type(found)

        return Scalars(column, self._refuse, special=lambda _node: None)

    def _check_comparable(self, left: ColumnType, right: ColumnType, at: exp.Expr) -> None:
        if left != right:
            self._refuse(at, f"columns of two types are compared: {left.name} and {right.name}")

    # -- SELECT -------------------------------------------------------------------------------

    def _outputs(self, select: exp.Select) -> Iterator[Output]:
        for item in select.expressions:
            inner = item.this if isinstance(item, exp.Alias) else item
            if isinstance(inner, exp.Star):
                if self.merged:
                    self._refuse(inner, "with USING, list the columns instead of *")
                self._refuse_star_options(inner)
                yield from self._all_columns(self.atoms)
            elif isinstance(inner, exp.Column) and isinstance(inner.this, exp.Star):
                self._refuse_star_options(inner.this)
                yield from self._all_columns([self._alias(inner)])
            elif isinstance(inner, exp.Column):
                column = self._column(inner)
                yield Output(item.alias or inner.name, column.name, self._type(column))
            else:
                self._refuse(item, f"only columns can be selected so far, not {item.sql('duckdb')}")

    def _refuse_star_options(self, star: exp.Star) -> None:
        if any(star.args.values()):
            self._refuse(star, "* EXCLUDE and * REPLACE are not supported; list the columns")

    def _all_columns(self, aliases: Iterable[str]) -> Iterator[Output]:
        for alias in aliases:
            for name, type_ in self.atoms[alias][1].columns:
                yield Output(name, f"{alias}.{name}", type_)

    def _refuse_equal_names(self, outputs: tuple[Output, ...], select: exp.Select) -> None:
        seen: set[str] = set()
        for output in outputs:
            if output.name.lower() in seen:
                self._refuse(select, f"two columns are called {output.name!r}; give one an alias")
            if output.name.startswith("_"):
                self._refuse(select, f"{output.name!r}: names with a leading _ are reserved")
            seen.add(output.name.lower())

    # -- putting it together ------------------------------------------------------------------

    def _assembled(self, outputs: tuple[Output, ...], select: exp.Select) -> View:
        links, residuals = [], []
        own: dict[str, list[ex.Condition]] = {alias: [] for alias in self.atoms}
        for condition, node in self.conjuncts:
            aliases = {name.rpartition(".")[0] for name in ex.columns_of(condition)}
            if len(aliases) <= 1:
                # A condition on constants is true or false for every row of the first relation.
                alias = next(iter(aliases or own))
                own[alias].append(ex.renamed(condition, _unqualified))
            elif (link := self._link(condition)) is not None:
                links.append(link)
            else:
                residuals.append((condition, node))
        self._refuse_unlinked(links, select)
        used = {o.column for o in outputs}.union(*(ex.columns_of(c) for c, _ in residuals))
        atoms = tuple(
            Atom(i, alias, relation, self._used(alias, used, links), _all(own[alias]))
            for alias, (i, relation) in self.atoms.items()
        )
        conditions = tuple(condition for condition, _ in residuals)
        return View(self.name, self.sql, atoms, tuple(links), conditions, outputs)

    def _link(self, condition: ex.Condition) -> Link | None:
        match condition:
            case ex.Comparison(ex.Column(left), "=", ex.Column(right)):
                return Link(self._end_of(left), self._end_of(right))
        return None

    def _end_of(self, column: str) -> tuple[int, str]:
        alias, _, name = column.rpartition(".")
        return self.atoms[alias][0], name

    def _used(self, alias: str, used: set[str], links: list[Link]) -> tuple[str, ...]:
        index, relation = self.atoms[alias]
        linked = {c for link in links for i, c in (link.left, link.right) if i == index}
        return tuple(c for c in relation.column_names if f"{alias}.{c}" in used or c in linked)

    def _refuse_unlinked(self, links: list[Link], select: exp.Select) -> None:
        """Without an equality there is no key to ask for: whole relations would have to travel."""
        reached = {0}
        for _ in self.atoms:
            for link in links:
                ends = {link.left[0], link.right[0]}
                reached |= ends if ends & reached else set()
        tables = [select.args["from_"].this, *(j.this for j in select.args.get("joins") or ())]
        for alias, (index, _) in self.atoms.items():
            if index not in reached:
                self._refuse(
                    tables[index],
                    f"{alias!r} is not linked to the relations before it by an equality of columns,"
                    " so whole relations would have to be read; add one",
                )

    # -- places -------------------------------------------------------------------------------

    def _refuse(self, node: Any, reason: str) -> NoReturn:
        while isinstance(node, exp.Expr):
            starts = [n.meta["start"] for n in node.walk() if "start" in n.meta]
            if starts:
                raise ViewRefused(reason, *self._place(min(starts)))
            # NULL, for one, does not know where it stands; what it stands in does.
            node = None if isinstance(node.parent, exp.Query) else node.parent
        raise ViewRefused(reason)

    def _place(self, offset: int) -> tuple[int, int]:
        before = self.sql[:offset]
        return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1

    def _end(self) -> tuple[int, int]:
        return self._place(len(self.sql.rstrip()))


def _unqualified(name: str) -> str:
    return name.rpartition(".")[2]


def _all(conditions: list[ex.Condition]) -> ex.Condition | None:
    return ex.conjunction(tuple(conditions))
