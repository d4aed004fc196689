"""The analysis of a view before a single row is read.

Pure functions of a view's tree, of its SQL and of the keys and foreign keys in the catalog; nothing
here asks a source or touches a row. The results are frozen dataclasses that print themselves
(`str`) and that `wording.as_json` turns into JSON. The files, each built on those above it:

    wording           conditions as text, results as JSON
    coalesce          COALESCE, which the reading of SQL writes out

    formula           nodes of a tree in relational algebra, as names of leaves
    block             the outer-join block of a tree, in the names of its aliases
    foreignkeys       joins on foreign keys within one source
    normalform        the block as a minimum union of inner joins
    subsumption       which terms can hide rows of which others, and the net contributions
    maintenancegraph  which terms an update touches, and how
    primarydelta      the terms with the updated relation, as one expression
    leftdeep          the same, joined relation by relation
    secondarydelta    the orphans that come and go: from the view, or from the relations
    outeraggregation  the counts that a group over an outer join needs
    outerjoins        all of this for every block of a view
    drawing           both graphs as text and as Mermaid
    svg               … and as a picture

    dependencies      which columns determine which, from the leaves to the root
    keys              which output columns determine a row of the view

    references        the relations that a SELECT names, at its top and in its subqueries
    boundcolumns      which of their columns the view's columns fix
    dialogue          changes of the text that would make references safe
    safety            duplicates, and which updates can be followed change by change

The middle parts are P.-Å. Larson and J. Zhou, "Efficient Maintenance of Materialized Outer-Join
Views" (ICDE 2007); the last one is S. Ceri and J. Widom, "Deriving Production Rules for Incremental
View Maintenance" (VLDB 1991); its rules are in `protocols/rules`. Where a printed rule is wrong,
the file that holds it says so.
"""
