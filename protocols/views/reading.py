"""Another name for `sql.py`, until nobody uses it."""

from protocols.views.sql import parse_view

__all__ = ["parse_view"]
