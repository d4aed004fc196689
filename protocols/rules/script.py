"""The scripts that install a view with its rules, remove it, and compare it with its query."""

from collections.abc import Iterator

from protocols.rules.functions import statements
from protocols.rules.names import SCHEMA, ViewNames, literal, quoted, table
from protocols.rules.transition import CAME, collection, shown
from protocols.rules.view import Branch, RuledView


def installation(view: RuledView) -> str:
    """Creates the view's table, fills it and keeps it; replaces what there was of that name."""
    relations = ", ".join(map(table, view.relations))
    steps = [
        f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}",
        *_removed(view.names),
        # From here on nothing changes that the view would not follow.
        f"LOCK TABLE {relations} IN SHARE ROW EXCLUSIVE MODE",
        _whole_tables(view),
        *_tables(view),
        *statements(view),
    ]
    return f"{_heading(view)}\nBEGIN;\n\n{_script(steps)}\nCOMMIT;\n"


def removal(names: ViewNames) -> str:
    """Removes the table, the functions and the triggers."""
    return f"BEGIN;\n\n{_script(_removed(names))}\nCOMMIT;\n"


def comparison(view: RuledView) -> str:
    """A query for the differences: rows that the table lacks, and rows that it has too much.

    It is one statement, so both sides are as of one moment.
    """
    query, kept = view.query.sql("postgres", pretty=True), view.names.table
    names = ", ".join(quoted(column.name) for column in view.columns)
    return (
        f"WITH now ({names}) AS (\n{query}\n), kept AS (SELECT {names} FROM {kept})\n"
        "SELECT 'lacks' AS difference, *"
        " FROM (SELECT * FROM now EXCEPT ALL SELECT * FROM kept) AS a\n"
        "UNION ALL\n"
        "SELECT 'has too much', * FROM (SELECT * FROM kept EXCEPT ALL SELECT * FROM now) AS b"
    )


def _script(steps: list[str]) -> str:
    return "".join(f"{step};\n\n" for step in steps).rstrip("\n") + "\n"


def _heading(view: RuledView) -> str:
    lines = [
        f"View {view.names.view}, kept by rules (Ceri and Widom, VLDB 1991).",
        "",
        *view.text.strip().splitlines(),
        "",
        *(line for branch in view.branches for line in _told(branch)),
    ]
    return "".join(f"-- {line}".rstrip() + "\n" for line in lines)


def _told(branch: Branch) -> Iterator[str]:
    yield from str(branch.analysis).splitlines()
    yield from branch.analysis.suggestions


def _removed(names: ViewNames) -> list[str]:
    """Removes functions by their names' beginning, for an older view may have had others."""
    prefix = literal(names.prefix)
    return [
        f"""DO $remove$
DECLARE
  part text;
BEGIN
  FOR part IN
    SELECT format('DROP FUNCTION %s CASCADE', oid::regprocedure)
    FROM pg_proc WHERE pronamespace = to_regnamespace('{SCHEMA}') AND starts_with(proname, {prefix})
    UNION ALL
    SELECT format('DROP TABLE %s', oid::regclass)
    FROM pg_class WHERE relnamespace = to_regnamespace('{SCHEMA}') AND relkind = 'r'
      AND (relname = {literal(names.view)} OR starts_with(relname, {prefix}))
  LOOP
    EXECUTE part;
  END LOOP;
END
$remove$"""
    ]


def _whole_tables(view: RuledView) -> str:
    """Refuses tables whose rows can be changed through another table's name."""
    names = ", ".join(literal(table(relation)) for relation in view.relations)
    return f"""DO $parts$
DECLARE
  part text;
BEGIN
  SELECT oid::regclass::text INTO part FROM pg_class
  WHERE oid = ANY (ARRAY[{names}]::regclass[]) AND (relkind <> 'r' OR EXISTS (
    SELECT FROM pg_inherits WHERE inhparent = pg_class.oid OR inhrelid = pg_class.oid));
  IF part IS NOT NULL THEN
    RAISE EXCEPTION 'view {view.names.view.replace("'", "''").replace("%", "%%")}: % is not a plain'
      ' table: rows that are changed in its parts directly do not call its triggers', part;
  END IF;
END
$parts$"""


def _tables(view: RuledView) -> list[str]:
    names, kept = view.names, view.names.table
    columns = ", ".join(quoted(column.name) for column in view.columns)
    tables = [
        f"CREATE TABLE {kept} ({columns}) AS\n{view.query.sql('postgres', pretty=True)}",
        _key(view),
        # With it the table can be a relation of a viewsweep source.
        f"ALTER TABLE {kept} REPLICA IDENTITY FULL",
        # Unlogged: no publication has it.
        f"CREATE UNLOGGED TABLE {names.turn} (one boolean PRIMARY KEY, holder xid8 NOT NULL)",
    ]
    for relation in view.relations:
        tables.append(
            f"CREATE UNLOGGED TABLE {collection(view, relation)} AS\n"
            f"SELECT true AS {CAME}, {shown(view, relation)} FROM {table(relation)} WITH NO DATA"
        )
    return tables


def _key(view: RuledView) -> str:
    """The primary key; if a column of it may be NULL, an index in which NULLs are equal."""
    known = {column.name: column.never_null for column in view.columns}
    if all(known[name] for name in view.key):
        return (
            f"ALTER TABLE {view.names.table} ADD PRIMARY KEY ({', '.join(map(quoted, view.key))})"
        )
    parts = [quoted(n) if known[n] else f"(ARRAY[{quoted(n)}])" for n in view.key]
    return f"CREATE UNIQUE INDEX ON {view.names.table} ({', '.join(parts)})"
