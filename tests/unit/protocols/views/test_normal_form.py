"""The normal form of a view's tree."""

from protocols.algebra.expressions import Call, parts_of
from protocols.views import tree
from protocols.views.catalog import catalog_from_json
from protocols.views.sql import parse_view

CATALOG = catalog_from_json(
    {"s": {"relations": {"l": {"columns": {"k": "BIGINT", "v": "BIGINT"}, "key": ["k"]}}}}
)
COMPUTED = "SELECT c FROM (SELECT coalesce(count(*) * 2, 1) AS c FROM s.l) AS t"


def _calls(sql: str) -> int:
    """The number of calls to compute anywhere in the tree."""
    view = parse_view("v", sql, CATALOG)
    assert isinstance(view, tree.TreeView)
    todo: list[object] = []
    for node in tree.nodes(view.root):
        if isinstance(node, tree.Compute):
            todo += [value for _, value, _ in node.values]
        elif isinstance(node, tree.Filter):
            todo.append(node.condition)
    found = 0
    while todo:
        what = todo.pop()
        found += isinstance(what, Call)
        todo += parts_of(what)  # type: ignore[arg-type]
    return found


def test_what_a_condition_reads_is_not_worked_out_again_for_it() -> None:
    """Copies of copies once took all memory."""
    condition = "WHERE c IS NOT DISTINCT FROM coalesce(c, c)"
    assert _calls(f"{COMPUTED} {condition}") == _calls(COMPUTED)


def test_what_is_read_twice_is_not_worked_out_twice() -> None:
    twice = f"SELECT c + c AS d, c AS e FROM ({COMPUTED}) AS u"
    assert _calls(twice) == _calls(COMPUTED) + 1
