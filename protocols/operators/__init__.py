"""The operators above the inner joins of a view: how changes of their inputs change their rows.

`operator.py` says what every operator does; `placed.py` holds the parts most of them are made of.
"""
