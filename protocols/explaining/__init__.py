"""What keeping a view costs, said before it is kept: `viewsweep explain`.

asked       questions without rows: whom, by which columns, what waits for what
following   an update on its way through a view's tree, and the questions that it leads to
costs       these for every relation and kind of update, and for a batch of any size
kept        what the operators remember, and of which order that is
sentences   the parts of the page that are sentences
advice      what would make it cheaper
picture     the tree as text for a terminal, and as a drawing
explanation all of it about one view
page        … as a page that a person reads
constructs  the constructs of SQL with an example each, for the table in the README
"""
