"""The leaves of a view's tree: the rows that they use of answers with more than was requested.

Answers have more where several views or atoms share a question about one relation
(exchange/sharing.py), and rows that were not requested are not corrected either.
"""

import polars as pl

from protocols.algebra.delta import COUNT
from protocols.algebra.frame import Frame
from protocols.algebra.framelog import FrameLog
from protocols.exchange.mailbox import Mailbox
from protocols.exchange.questions import Maintenance
from protocols.exchange.together import finish
from protocols.operators.cores import CoreOperator
from protocols.operators.keys import These
from protocols.operators.operator import Span
from protocols.views.catalog import catalog_from_json
from protocols.views.sql import parse_view
from protocols.views.view import Atom, View

CATALOG = catalog_from_json(
    {"s": {"relations": {"r": {"columns": {"k": "BIGINT", "v": "BIGINT"}}}}}
)


def test_rows_that_were_not_asked_for_are_left_out() -> None:
    def generous(
        _mailbox: Mailbox[Frame], atom: Atom, _keys: Frame | None, _cut: int, _position: int
    ) -> Maintenance[Frame, Frame]:
        k, v = atom.qualified_columns
        yield []
        return Frame(pl.DataFrame({k: [1, 2, None], v: [10, 99, 5], COUNT: [1, 1, 1]}))

    view = parse_view("view", "SELECT k, v FROM s.r", CATALOG)
    assert isinstance(view, View)
    [relation] = view.relations
    mailbox = Mailbox[Frame]({relation: FrameLog()}, {"s": 0})
    core = CoreOperator(view, mailbox, lambda _first, _last: iter(()), generous)  # type: ignore[arg-type, return-value]
    asked = These(pl.DataFrame({"k": [1, 7]}))
    rows = finish(core.before(Span(1, 1), asked), lambda _: [])
    assert rows.rows(named=True) == [{"k": 1, "v": 10, COUNT: 1}]
