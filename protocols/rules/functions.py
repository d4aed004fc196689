"""The rules as functions and triggers of PostgreSQL.

    begin      before each operation: waits for the turn to change the view, counts the operation
    event T    after it: runs its rules, or collects its rows if other operations are not over
    settle     runs the rules for everything collected
    truncated  after TRUNCATE: computes the view again

The turn is one row, which a transaction updates once and so holds until its end. Two transactions
that change the view's relations follow each other: under READ COMMITTED the second one's rules see
the rows of the first; under REPEATABLE READ and SERIALIZABLE it fails with 40001, and has to be
repeated. The functions run with the rights of their owner, so a client that changes a relation
needs none on the view.
"""

from collections.abc import Iterator, Sequence

from protocols.rules.derivation import Rule, anew, rules
from protocols.rules.names import in_dollars, table
from protocols.rules.transition import (
    CAME,
    EVENTS,
    NEW,
    OLD,
    Event,
    collected,
    collection,
    direct,
    shown,
)
from protocols.rules.view import RuledView
from protocols.views.catalog import Relation

_REFERENCING = {
    "insert": f"REFERENCING NEW TABLE AS {NEW}",
    "delete": f"REFERENCING OLD TABLE AS {OLD}",
    "update": f"REFERENCING OLD TABLE AS {OLD} NEW TABLE AS {NEW}",
}


def statements(view: RuledView) -> Iterator[str]:
    """The statements that create all functions and triggers of a view."""
    yield _begin(view)
    yield _settle(view)
    yield _truncated(view)
    for relation in view.relations:
        for event in EVENTS:
            yield _function(view, relation, event)
            yield from _triggers(view, relation, event)
        yield _trigger(view, relation, "AFTER TRUNCATE", view.names.of("truncated"))


def _begin(view: RuledView) -> str:
    body = f"""
BEGIN
{_take_turn(view)}
  PERFORM set_config({_open(view)}, ({_number_open(view)} + 1)::text, true);
  RETURN NULL;
END
"""
    return _created(view, "begin", "trigger", body)


def _take_turn(view: RuledView) -> str:
    """Waits for the row; after a crash, which empties unlogged tables, it is there no more."""
    turn = view.names.turn
    return f"""  INSERT INTO {turn} AS turn VALUES (true, pg_current_xact_id())
  ON CONFLICT (one) DO UPDATE SET holder = excluded.holder
  WHERE turn.holder <> excluded.holder;"""


def _settle(view: RuledView) -> str:
    cleared = "".join(
        f"  DELETE FROM {collection(view, relation)};\n" for relation in view.relations
    )
    found = "\n".join(_if_followed(view, rule) for rule in rules(collected(view)))
    body = f"""
BEGIN
{found}
{cleared}  PERFORM set_config({_late(view)}, '', true);
END
"""
    return _created(view, "settle", "void", body)


def _truncated(view: RuledView) -> str:
    body = f"""
BEGIN
{_take_turn(view)}
{_run(anew(view, "TRUNCATE has no transition table"))}
  RETURN NULL;
END
"""
    return _created(view, "truncated", "trigger", body)


def _function(view: RuledView, relation: Relation, event: Event) -> str:
    columns, into = shown(view, relation), collection(view, relation)
    sides = [(NEW, "true")] if event != "delete" else []
    sides += [(OLD, "false")] if event != "insert" else []
    collect = "".join(
        f"    INSERT INTO {into} SELECT {came}, {columns} FROM {rows};\n" for rows, came in sides
    )
    body = f"""
DECLARE
  still_open constant integer := {_number_open(view)} - 1;
BEGIN
  PERFORM set_config({_open(view)}, still_open::text, true);
  IF still_open > 0 OR current_setting({_late(view)}, true) = 'yes' THEN
{collect}    IF still_open = 0 THEN
      PERFORM {view.names.of("settle")}();
    ELSIF EXISTS (SELECT FROM {into}) THEN
      PERFORM set_config({_late(view)}, 'yes', true);
    END IF;
    RETURN NULL;
  END IF;
  IF NOT EXISTS ({_rows_changed(view, relation, event)}) THEN
    RETURN NULL;
  END IF;
{_run(rules(direct(view, relation, event)))}
  RETURN NULL;
END
"""
    return _created(view, _part(relation, event), "trigger", body)


def _rows_changed(view: RuledView, relation: Relation, event: Event) -> str:
    changed = direct(view, relation, event).changed[relation]
    return changed.inserted or changed.deleted or ""


def _run(found: Sequence[Rule]) -> str:
    return "\n".join(map(_executed, found))


def _executed(rule: Rule) -> str:
    """A rule, planned for the number of rows that there are now."""
    reason = " ".join(f"{rule.section}, {rule.name}: {rule.because}".split())
    statement = in_dollars("rule", f"\n{rule.statement}\n")
    return f"  -- {reason}\n  EXECUTE {statement};"


def _if_followed(view: RuledView, rule: Rule) -> str:
    """A rule that runs if there are collected rows for it."""
    if rule.follows is None:
        return _executed(rule)
    relation, event = rule.follows
    side = CAME if event == "ins" else f"NOT {CAME}"
    there = f"EXISTS (SELECT FROM {collection(view, relation)} WHERE {side})"
    return f"  IF {there} THEN\n{_executed(rule)}\n  END IF;"


def _created(view: RuledView, part: str, returns: str, body: str) -> str:
    return (
        f"CREATE FUNCTION {view.names.of(part)}() RETURNS {returns} LANGUAGE plpgsql"
        " SECURITY DEFINER SET search_path = pg_catalog, pg_temp"
        f" AS {in_dollars('function', body)}"
    )


def _triggers(view: RuledView, relation: Relation, event: Event) -> Iterator[str]:
    name, operation = _part(relation, event), event.upper()
    yield _trigger(view, relation, f"BEFORE {operation}", view.names.of("begin"))
    yield _trigger(view, relation, f"AFTER {operation}", view.names.of(name), _REFERENCING[event])


def _trigger(
    view: RuledView, relation: Relation, moment: str, function: str, referencing: str = ""
) -> str:
    return (
        f"CREATE TRIGGER {view.names.trigger(moment.lower())} {moment} ON {table(relation)}"
        f" {referencing} FOR EACH STATEMENT EXECUTE FUNCTION {function}()"
    ).replace("  ", " ")


def _part(relation: Relation, event: Event) -> str:
    return f"{event} {relation}"


def _open(view: RuledView) -> str:
    """The setting that counts the operations that have begun and are not over."""
    return view.names.setting("open")


def _number_open(view: RuledView) -> str:
    return f"coalesce(nullif(current_setting({_open(view)}, true), ''), '0')::integer"


def _late(view: RuledView) -> str:
    """The setting that says whether rows have been collected."""
    return view.names.setting("late")
