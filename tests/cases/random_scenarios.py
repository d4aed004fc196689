"""Scenarios drawn from a seed, as the product draws them (protocols/simulation/drawn.py)."""

from protocols.simulation.drawn import COLUMNS, LINKED, Shaped, random_scenario

__all__ = ["COLUMNS", "LINKED", "SHAPES", "Shaped", "random_scenario"]

#: The shapes of scenarios for single families of protocols (keyed, one source).
SHAPES = ("chain", "star", "triangle", "self-join", "self-join in a chain")
