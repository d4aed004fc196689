"""Measurements; keeping a view needs none of this."""
