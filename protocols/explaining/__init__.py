"""What keeping a view costs, said before it is kept: `viewsweep explain`.

asked        questions without rows: whom, by which columns, what waits for what
following    an update on its way through a view's tree, and the questions that it leads to
costs        these for every relation and kind of update, and for a batch of any size
picture      the tree as text for a terminal, and as a drawing
kept         what the operators remember, and of which order that is
advice       what would make it cheaper
explanation  all that is known of one view, the analysis of its text included
page         … as a page that a person reads
constructs   the constructs of SQL with an example each, for the table in the README
"""
