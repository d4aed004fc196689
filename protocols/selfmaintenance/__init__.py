"""Self-maintenance: what to store beside a view so that keeping it needs no question at all.

D. Quass, A. Gupta, I. S. Mumick and J. Widom, "Making Views Self-Maintainable for Data Warehousing"
(1996). Pure functions of a view and of the catalog; nothing here asks a source or touches a row.
The files, each built on those above it:

    language      the views that the paper is about; others are refused (2)
    equalities    columns that are equal in every row of the view, or constant
    joingraph     G(V): edges from foreign keys to keys, RI, kinds of updates, preserved keys (2, 3)
    dependence    Dep, Dep+; circles of foreign keys become one vertex (3, B.2)
    need          Need_0, Need: the ways on which a changed row is found in the view (3, B.1)
    rules         Rules 4.1 to 4.3: what is left of each kind of change (4)
    selection     the strictest local conditions (3)
    auxiliary     Algorithm 3.1; occurrences of one relation with equal auxiliary views (3, B.3)
    maintaining   the maintenance expressions over V and the auxiliary views (4)

    sqltext       conditions and names as SQL
    statement     the auxiliary views as CREATE VIEW, as the paper prints them
    keptas        ... and as inner joins, which any protocol keeps (5)
    sizes         how many rows they have (Table 1)
    advice        all of this for one view, with reasons; page prints it

Where we differ from the paper:

- A modification never changes the key of a row; the changed row is another one. So a transaction is
  its net effect (Table 4), with one rule more: "delete t, insert t'" with equal keys is an update.
- Conditions that follow from those written count as well (`equalities`, `selection`).
- Referential integrity across sources is not assumed unless they commit together (`joingraph`).
- `need` and `auxiliary` correct four statements of appendix B and say which.
- Deletions from a relation that others reference need not be found in the view, if children are
  deleted first; with ignorable updates, a relation has no need set then (`need.must_be_found`).
- The paper counts rows, and its P is not always the least set of columns. Here a relation that is
  only in need sets keeps what its ways are joined on. Still superfluous in principle are a key that
  is neither shown nor joined on (it makes the auxiliary view easy to keep) and columns that a
  condition makes constant.
"""
