"""The views that rules keep beside those that pg_ivm takes.

Rules: each view is installed and judged after each of some random statements. pg_ivm: the server is
asked to create the view, if it has the extension; else the answer is what pg_ivm 1.9 and later do,
by their documentation and their check of views, marked with *.
"""

from random import Random

import psycopg
from psycopg import sql
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bench.rules.campaign import SETTINGS
from infra.localpostgres import LocalPostgres
from protocols.errors import ViewRefused
from tests.cases.ruledviews import CATALOG, TABLES
from tests.harness.ruled import Ran, RuledDatabase, stories

_STATEMENTS = 60
_ONLY_EXISTS = "refused*: of subqueries only EXISTS, under AND"
_NO_SETS = "refused*: no set operators"
#: Construct → the view, and what pg_ivm does.
VIEWS = {
    "inner join": (
        "SELECT t.id, t.x, u.id AS u FROM a.t AS t, a.u AS u WHERE u.t = t.id",
        "kept*",
    ),
    "DISTINCT": ("SELECT DISTINCT t.x FROM a.t AS t, a.u AS u WHERE u.t = t.id", "kept*"),
    "duplicates": ("SELECT t.x FROM a.t AS t", "kept*"),
    "groups, aggregates": ("SELECT x, count(*) AS n FROM a.t GROUP BY x", "kept*"),
    "EXISTS": (
        "SELECT t.id FROM a.t AS t WHERE EXISTS (SELECT 1 FROM a.u AS u WHERE u.t = t.id)",
        "kept*",
    ),
    "NOT EXISTS": (
        "SELECT t.id FROM a.t AS t WHERE NOT EXISTS (SELECT 1 FROM a.u AS u WHERE u.t = t.id)",
        _ONLY_EXISTS,
    ),
    "IN (SELECT …)": (
        "SELECT t.id FROM a.t AS t WHERE t.x IN (SELECT u.y FROM a.u AS u)",
        _ONLY_EXISTS,
    ),
    "(x, y) IN (SELECT …)": (
        "SELECT t.id FROM a.t AS t WHERE (t.x, t.y) IN (SELECT u.x, u.y FROM a.u AS u)",
        _ONLY_EXISTS,
    ),
    "NOT IN (SELECT …)": (
        "SELECT t.id FROM a.t AS t WHERE t.x NOT IN (SELECT u.y FROM a.u AS u)",
        _ONLY_EXISTS,
    ),
    "> ANY": (
        "SELECT t.id FROM a.t AS t WHERE t.x > ANY (SELECT u.y FROM a.u AS u)",
        _ONLY_EXISTS,
    ),
    "> ALL": (
        "SELECT t.id FROM a.t AS t WHERE t.x > ALL (SELECT u.y FROM a.u AS u)",
        _ONLY_EXISTS,
    ),
    "EXISTS … OR …": (
        "SELECT t.id FROM a.t AS t"
        " WHERE t.x = 1 OR EXISTS (SELECT 1 FROM a.u AS u WHERE u.t = t.id)",
        _ONLY_EXISTS,
    ),
    "UNION": ("SELECT t.x FROM a.t AS t UNION SELECT u.x FROM a.u AS u", _NO_SETS),
    "INTERSECT": ("SELECT t.x FROM a.t AS t INTERSECT SELECT u.x FROM a.u AS u", _NO_SETS),
    "EXCEPT": ("SELECT t.x FROM a.t AS t EXCEPT SELECT u.x FROM a.u AS u", _NO_SETS),
}


def language() -> None:
    """Print which views rules keep and which pg_ivm takes."""
    table = Table("view", "rules", "pg_ivm", box=None)
    with LocalPostgres(SETTINGS) as server:
        for number, (construct, (text, documented)) in enumerate(VIEWS.items()):
            database = RuledDatabase(server, f"language_{number}", TABLES, CATALOG)
            by_rules = _by_rules(database, text)
            cells = (construct, by_rules, _by_pg_ivm(database, text) or documented)
            table.add_row(*map(escape, cells))
            database.close()
    Console(width=120).print(table)


def _by_rules(database: RuledDatabase, text: str) -> str:
    try:
        database.install("v", text)
    except ViewRefused as error:
        return f"refused: {error.reason.partition(':')[0]}"
    ran = Ran()
    for story in stories(Random(1), _STATEMENTS):
        if database.told(story, ran):
            return f"WRONG after {ran.last}"
    return f"kept: right after each of {ran.done} statements"


def _by_pg_ivm(database: RuledDatabase, text: str) -> str | None:
    """The answer of the extension; None without it."""
    if not database.connection.execute(
        "SELECT FROM pg_available_extensions WHERE name = 'pg_ivm'"
    ).fetchone():
        return None
    try:
        database.execute("CREATE EXTENSION IF NOT EXISTS pg_ivm")
        database.connection.execute(sql.SQL("SELECT pgivm.create_immv('immv', %s)"), (text,))
    except psycopg.Error as error:
        return f"refused: {error.diag.message_hint or error.diag.message_primary}"
    return "kept"
