"""The normal form of a view's tree: everything that sources can be asked is gathered at the leaves.

The rules, in their order: conditions go down as far as they may (`filters.py`), and outer joins
whose padded rows never pass a condition become inner ones; inner joins of relations become one leaf
each (`innerjoins.py`), and joins on computed values get columns for these (`links.py`); columns
that nothing reads are left out (`columns.py`).
"""
