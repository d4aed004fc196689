"""The normal form of a view's tree: what sources can be asked gathered at the leaves.

The rules, in their order: conditions go down as far as they may (`filters.py`), and outer joins
whose padded rows a condition never lets through become inner ones; inner joins of relations become
one leaf each (`innerjoins.py`), and what is joined on values gets columns for them (`links.py`);
columns that nobody reads are left out (`columns.py`).
"""
