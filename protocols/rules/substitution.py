"""A branch's SELECT over other tables: with changed rows in one place, a condition turned around.

Nothing is written into the SELECT as it was read; each result is a copy.
"""

from collections.abc import Collection, Mapping, Sequence

from sqlglot import exp

from protocols.algebra import expressions as ex
from protocols.analysis.references import Subquery
from protocols.rules.names import identifier
from protocols.rules.view import Branch, Column
from protocols.views.catalog import Relation

#: The alias of a row in question. No alias of a user's text is in the way of it.
ROW = "viewsweep_row"


def over(
    branch: Branch,
    columns: Sequence[Column],
    tables: Mapping[int, str],
    turned: Subquery | None = None,
    left_out: Collection[Subquery] = (),
) -> exp.Select:
    """The SELECT with its items named as the view's columns.

    `tables` maps the identity of a table's node to the name of another table. The condition of
    `turned` holds where it did not; those of `left_out` are dropped.
    """
    nodes = list(branch.node.walk())
    select = branch.node.copy()
    copies = dict(zip(map(id, nodes), select.walk(), strict=True))
    for node in nodes:
        if id(node) in tables:
            _rename(copies[id(node)], tables[id(node)])
    # A subquery in another one's place is gone with it, so replacing comes last.
    for subquery in branch.select.subqueries:
        there = copies[id(subquery.node)]
        if subquery is turned:
            there.replace(_turned(there.copy()))
        elif subquery in left_out:
            there.replace(exp.true())
    values = item_values(branch)
    named = zip(values, columns, strict=True)
    select.set("expressions", [exp.alias_(v, identifier(c.name)) for v, c in named])
    return select


def restricted(select: exp.Select, further: exp.Expr) -> exp.Select:
    """The SELECT with one more condition in WHERE."""
    where = select.args.get("where")
    conditions = [further] if where is None else [where.this, further]
    parts = [exp.paren(each) if isinstance(each, exp.Or) else each for each in conditions]
    select.set("where", exp.Where(this=exp.and_(*parts, copy=False)))
    return select


def item_values(branch: Branch) -> list[exp.Expr]:
    """The values that the branch shows, without `*`."""
    aliases = {
        reference.name: node.alias_or_name
        for reference, node in zip(branch.select.references, branch.select.places, strict=True)
    }
    return [_value(item.at, item.value, aliases) for item in branch.select.items]


def _value(at: exp.Expr, value: ex.Expression, aliases: Mapping[str, str]) -> exp.Expr:
    if not at.unalias().is_star:
        return at.unalias().copy()
    assert isinstance(value, ex.Column)
    alias, _, column = value.name.rpartition(".")
    return exp.column(identifier(column), table=identifier(aliases[alias]))


def used_columns(query: exp.Expr, relation: Relation, nodes: Collection[exp.Expr]) -> list[str]:
    """The columns of a relation that the text can mean, at one of these places of it.

    A column without the name of a table counts for all of them; so no column is missing.
    """
    aliases = {node.alias_or_name.lower() for node in nodes}
    named = {
        column.name.lower()
        for column in query.find_all(exp.Column)
        if not column.table or column.table.lower() in aliases
    }
    for join in query.find_all(exp.Join):
        named |= {each.name.lower() for each in join.args.get("using") or ()}
    names = relation.column_names
    if any(_shows(star) for star in query.find_all(exp.Star)):
        return list(names)
    return [name for name in names if name.lower() in named] or list(names[:1])


def _shows(star: exp.Star) -> bool:
    """Whether columns are shown by it; the items of EXISTS (SELECT * …) do not matter."""
    select = star.find_ancestor(exp.Select)
    return not isinstance(select and select.parent, exp.Exists)


def _turned(condition: exp.Expr) -> exp.Expr:
    """The condition that a negative condition is not true: it may also be unknown."""
    if isinstance(condition, exp.Not) and isinstance(condition.this, exp.Exists):
        return condition.this
    return exp.not_(exp.Is(this=exp.paren(condition), expression=exp.true()))


def _rename(table: exp.Expr, name: str) -> None:
    """Puts another table under the same alias."""
    assert isinstance(table, exp.Table)
    alias = table.args.get("alias") or exp.TableAlias(this=table.this.copy())
    table.set("this", identifier(name))
    table.set("db", None)
    table.set("alias", alias)
