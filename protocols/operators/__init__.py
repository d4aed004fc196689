"""The operators above the inner joins of a view: how a change of their inputs changes their rows.

`operator.py` says what each of them does, `placed.py` has what most of them are made of.
"""
