"""Measurements; nothing of it is needed to keep a view."""
