"""Rules by which one PostgreSQL database keeps a view itself.

If all relations of a view are in one database whose owner allows triggers, no question has to be
asked: the database follows its own changes. S. Ceri and J. Widom, "Deriving Production Rules for
Incremental View Maintenance" (VLDB 1991), derive the rules from the view's text. Here they become
triggers of PostgreSQL. Pure functions: text of the view in, SQL out. The files, each built on those
above it:

    names         identifiers, and the names of all that is created
    view          the view's branches, columns and key; what cannot be kept is refused
    substitution  the view's SELECT with other tables in some places, or a condition turned around
    transition    the changed rows, and tables as they were before (Section 3)
    membership    whether a row is in the view now, by its set operators (Section 8)
    derivation    the rules of all references (Sections 5, 6 and 7)
    functions     the rules as functions and triggers
    script        all of it as one script; its removal; the comparison with the view's query

A transition is what one statement of a client changes, with all that follows from it: the moment at
which Starburst's rules would run (an assertion point) is the end of the statement. Almost always it
changes one table by one operation, and the rules read the trigger's transition table. But a cascade
of foreign keys, MERGE, INSERT … ON CONFLICT DO UPDATE, a WITH that writes and a user's trigger
change more. So each trigger counts what has begun and not ended; if something is left, it only
collects its rows, and the last one runs the rules for everything collected.

Where the rules differ from the printed ones:

- Deletions from the view look at the other tables with the deleted rows added, not exactly as they
  were: that needs no reading of a whole table. What is deleted too much, the insertions bring back,
  because they run afterwards.
- What is not safe is not computed anew as a whole: only the rows that the change concerns are
  looked for again. The whole view is computed again for relations whose place the paper's criteria
  do not cover, and after TRUNCATE.
- A deletion from a negative subquery is always tested again, even if it is DU-safe: the same
  transaction may have inserted a row that excludes the same rows (Section 7.2 forgets this).
- NULLs are compared as DISTINCT compares them, where the paper has IN.
- EXCEPT is kept, which the paper does not have.
"""
