"""Rewrites the view's SQL over other tables than it names.

The checker never parses a view into an algebra of its own. It takes the SQL text, replaces the
relations by other tables, and lets DuckDB evaluate it:

    SELECT R.x FROM a.r R JOIN b.s ON …     -- as written
    SELECT R.x FROM (SELECT …) AS R JOIN (SELECT …) AS s ON …                    -- `over`
    SELECT R.x, R_count * s_count, …                                             -- `tagged`
    FROM (SELECT …, _count AS _count_0 FROM history_0) AS R JOIN (…) AS s ON …

The second form carries the counts and tags of the rows through the join. It is right only for
select-project-join views, where each result row is one combination of rows, one per atom. A view is
one only if all its parts are on a list, so that anything unknown takes the first form.

Items of SELECT without a name get theirs (`views/naming.py`), the only thing here that the reader
of views also uses.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from protocols.checking.argumenttypes import Arguments
from protocols.checking.doublesums import with_exact_sums
from protocols.checking.postgresnumbers import with_postgres_numbers
from protocols.errors import WrongUse
from protocols.views.catalog import Catalog, Relation
from protocols.views.dialects import Dialect
from protocols.views.naming import item_names

_SPJ: tuple[type[exp.Expr], ...] = (
    exp.Select,
    exp.From,
    exp.Join,
    exp.Where,
    exp.Table,
    exp.TableAlias,
    exp.Column,
    exp.Identifier,
    exp.Star,
    exp.Alias,
    exp.Literal,
    exp.Null,
    exp.Boolean,
    exp.Paren,
    exp.And,
    exp.Or,
    exp.Not,
    exp.EQ,
    exp.NEQ,
    exp.LT,
    exp.LTE,
    exp.GT,
    exp.GTE,
    exp.Is,
    exp.NullSafeEQ,
    exp.NullSafeNEQ,
    exp.In,
    exp.Between,
    exp.Like,
    exp.ILike,
    exp.Add,
    exp.Sub,
    exp.Mul,
    exp.Div,
    exp.IntDiv,
    exp.Mod,
    exp.Neg,
    exp.DPipe,
    exp.Cast,
    exp.DataType,
    exp.DataTypeParam,
    exp.Case,
    exp.If,
    exp.Coalesce,
    exp.Abs,
    exp.Upper,
    exp.Lower,
    exp.Interval,
    exp.Var,
)
_SELECT_PARTS = {"expressions", "from_", "joins", "where"}


@dataclass(frozen=True)
class RelationInText:
    """One occurrence of a relation: its number, its name in the text, and the relation."""

    number: int
    alias: str
    relation: Relation


@dataclass(frozen=True)
class ViewText:
    """A view's SQL, with its atoms in the order of the text."""

    query: exp.Expr
    atoms: tuple[RelationInText, ...]
    is_spj: bool
    #: Whether it calls the functions of `pythonfunctions.py`.
    calls_python: bool = False

    @property
    def fits_lateral(self) -> bool:
        """Whether DuckDB can evaluate it for the rows of a table, as LATERAL.

        DuckDB 2.0 loses the row of an aggregate over nothing there, below DISTINCT and UNION.
        """
        selects = list(self.query.find_all(exp.Select))
        if self.query.find(exp.Window):
            return False
        distinct = any(select.args.get("distinct") for select in selects)
        lonely = any(not s.args.get("group") and s.find(exp.AggFunc) for s in selects)
        return not (lonely and (distinct or self.query.find(exp.SetOperation)))

    @property
    def relations(self) -> tuple[Relation, ...]:
        return tuple(dict.fromkeys(atom.relation for atom in self.atoms))

    def over(self, table: Callable[[Relation], str]) -> str:
        """The view's SQL with `table(relation)`, a name or a subquery, for every relation."""
        return _over(self.query.copy(), self.atoms, table)

    def tagged(
        self,
        table: Callable[[Relation], str],
        tags: Sequence[str],
        extra: Sequence[str],
        conditions: Sequence[str] = (),
    ) -> str:
        """The view's SQL over tables that have the columns `tags` besides the relation's own.

        Inside, tag t of atom i is called t_i; `extra` are further output columns made of tags.
        """
        query = self.query.copy()
        for node, atom in zip(_relation_nodes(query), self.atoms, strict=True):
            other = _tagged_atom(atom, table(atom.relation), tags)
            _rename_columns(other, node)
            node.replace(other)
        columns = [_without(column, self.atoms, tags) for column in query.expressions]
        query.set("expressions", columns)
        for expression in extra:
            query.append("expressions", sqlglot.parse_one(expression, dialect="duckdb"))
        assert isinstance(query, exp.Select)
        return query.where(*conditions, dialect="duckdb").sql("duckdb")


def view_text(sql: str, catalog: Catalog, dialect: Dialect | None = None) -> ViewText:
    """Reads a view's SQL; WrongUse says why it cannot be read."""
    try:
        statements = sqlglot.parse(sql, dialect="duckdb")
    except (SqlglotError, RecursionError) as error:
        raise WrongUse(f"the view's SQL cannot be read: {error}") from None
    query = statements[0] if len(statements) == 1 else None
    if not isinstance(query, exp.Query):
        raise WrongUse("the view has to be one SELECT")
    _name_items(query, sql)
    nodes = _relation_nodes(query)
    relations = [_relation(node, catalog) for node in nodes]
    aliases = _aliases(nodes)
    _strip_sources(query, {_key(n): a for n, a in zip(nodes, aliases, strict=True) if not n.alias})
    atoms = tuple(
        RelationInText(i, alias, relation)
        for i, (alias, relation) in enumerate(zip(aliases, relations, strict=True))
    )
    for number, node in enumerate(nodes):
        node.meta["atom"] = number
    is_spj = _is_spj(query)
    taken = Arguments(lambda marked: _over(marked, atoms, _nothing))
    like_postgres = dialect == "postgres" and with_postgres_numbers(query, taken)
    adds_doubles = with_exact_sums(query, taken)
    return ViewText(query, atoms, is_spj, like_postgres or adds_doubles)


def _over(
    query: exp.Expr, atoms: Sequence[RelationInText], table: Callable[[Relation], str]
) -> str:
    """Puts `table(relation)` in the place of every relation; the SQL then."""
    for node in _relation_nodes(query):
        # A rewritten part may stand there twice.
        atom = atoms[node.meta["atom"]]
        other = _member(f"{table(atom.relation)} AS {_quoted(atom.alias)}")
        _rename_columns(other, node)
        # Joins in parentheses belong to the table that they begin with.
        other.set("joins", node.args.get("joins"))
        node.replace(other)
    return query.sql("duckdb")


def _nothing(relation: Relation) -> str:
    """A relation without rows."""
    columns = (f"NULL::{type_.name} AS {_quoted(name)}" for name, type_ in relation.columns)
    return f"(SELECT {', '.join(columns)} WHERE false)"


def _name_items(query: exp.Query, sql: str) -> None:
    """Gives items of SELECT their names, for a query around may use them; DuckDB has others."""
    for select in list(query.find_all(exp.Select)):
        names = item_names(select.expressions, sql)
        items = zip(select.expressions, names, strict=True)
        select.set("expressions", [_named(item, name) for item, name in items])


def _named(item: exp.Expr, name: str) -> exp.Expr:
    if item.is_star or isinstance(item, exp.Alias | exp.Column):
        return item
    return exp.alias_(item, name, quoted=True, copy=False)


def _relation_nodes(query: exp.Expr) -> list[exp.Table]:
    return [node for node in query.find_all(exp.Table, bfs=False) if node.args.get("db")]


def _key(node: exp.Table) -> tuple[str, str]:
    return node.db.lower(), node.name.lower()


def _relation(node: exp.Table, catalog: Catalog) -> Relation:
    exact = catalog.find(node.db, node.name)
    folded = (r for r in catalog if (r.source.lower(), r.name.lower()) == _key(node))
    relation = exact or next(folded, None)
    if relation is None:
        raise WrongUse(f"the view names {node.db}.{node.name}, which the sources do not have")
    return relation


def _aliases(nodes: Sequence[exp.Table]) -> list[str]:
    """The names of the atoms; two with the same bare name get the name of their source in front."""
    bare = [node.name.lower() for node in nodes if not node.alias]
    return [
        node.alias
        or (node.name if bare.count(node.name.lower()) == 1 else f"{node.db}_{node.name}")
        for node in nodes
    ]


def _strip_sources(query: exp.Expr, aliases: dict[tuple[str, str], str]) -> None:
    """`a.r.x` becomes `r.x`: the tables that stand in for the relations have no schema."""
    for column in query.find_all(exp.Column):
        if column.args.get("db"):
            alias = aliases.get((column.db.lower(), column.table.lower()), column.table)
            column.set("db", None)
            column.set("table", exp.to_identifier(alias, quoted=True))


def _is_spj(query: exp.Expr) -> bool:
    """Is each row of the result one combination of rows, one per atom?"""
    if not isinstance(query, exp.Select) or len(_relation_nodes(query)) != len(_from(query)):
        return False
    parts = {name for name, value in query.args.items() if value}
    inner = all(not join.side and join.kind in ("", "INNER", "CROSS") for join in _joins(query))
    selects = sum(1 for _ in query.find_all(exp.Select))
    known = all(isinstance(node, _SPJ) for node in query.walk())
    plain = not any(any(star.args.values()) for star in query.find_all(exp.Star))
    return parts <= _SELECT_PARTS and inner and selects == 1 and known and plain


def _joins(query: exp.Select) -> list[exp.Join]:
    return list(query.args.get("joins") or ())


def _from(query: exp.Select) -> list[exp.Expr]:
    """The direct members of FROM."""
    first = query.args.get("from_")
    return ([first.this] if first else []) + [join.this for join in _joins(query)]


def _member(sql: str) -> exp.Expr:
    """One member of FROM."""
    query = sqlglot.parse_one(f"SELECT * FROM {sql}", dialect="duckdb")
    assert isinstance(query, exp.Select)
    return _from(query)[0]


def _rename_columns(other: exp.Expr, instead_of: exp.Expr) -> None:
    """Gives a table the names for its columns that stand after the alias of another one."""
    alias = instead_of.args.get("alias")
    if alias is not None and alias.columns:
        name = exp.to_identifier(other.alias, quoted=True)
        other.set("alias", exp.TableAlias(this=name, columns=alias.columns))


def _quoted(name: str) -> str:
    return exp.to_identifier(name, quoted=True).sql("duckdb")


def _tagged_atom(atom: RelationInText, table: str, tags: Sequence[str]) -> exp.Expr:
    columns = [_quoted(column) for column in atom.relation.column_names]
    columns += [f"{tag} AS {tag}_{atom.number}" for tag in tags]
    inner = sqlglot.parse_one(f"SELECT {', '.join(columns)} FROM {table}", dialect="duckdb")
    assert isinstance(inner, exp.Select)
    return inner.subquery(exp.to_identifier(atom.alias, quoted=True))


def _without(column: exp.Expr, atoms: Sequence[RelationInText], tags: Sequence[str]) -> exp.Expr:
    """The output column; a star leaves out the tags."""
    if isinstance(column, exp.Column) and isinstance(column.this, exp.Star):
        atoms = [atom for atom in atoms if atom.alias.lower() == column.table.lower()]
    elif not isinstance(column, exp.Star):
        return column
    hidden = ", ".join(f"{tag}_{atom.number}" for atom in atoms for tag in tags)
    text = f"SELECT {column.sql('duckdb')} EXCLUDE ({hidden})"
    query = sqlglot.parse_one(text, dialect="duckdb")
    assert isinstance(query, exp.Select)
    return query.selects[0]
