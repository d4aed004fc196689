"""Views of inner joins alone, which most protocols are about."""

from protocols.views.catalog import Catalog
from protocols.views.sql import parse_view
from protocols.views.tree import AnyView
from protocols.views.view import View


def parsed(sql: str, catalog: Catalog) -> View:
    """The view of a text that joins inner only."""
    return inner(parse_view("v", sql, catalog))


def inner(view: AnyView) -> View:
    """The same view, which joins inner only."""
    assert isinstance(view, View)
    return view
