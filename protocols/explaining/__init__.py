"""The costs of keeping a view, known before it is kept: `viewsweep explain`.

asked        questions without rows: whom, by which columns, in which order
following    an update on its way through a view's tree, and the questions that it leads to
costs        these for every relation and kind of update, and for a batch of any size
picture      the tree as text for a terminal, and as a drawing
kept         what the operators remember, and how much that is
advice       changes that would make it cheaper
explanation  everything known of one view, the analysis of its text included
page         … as a page for a reader
constructs   the constructs of SQL with an example each, for the table in the README
"""
