"""The views of the papers on outer joins and on production rules, over relations of one source.

The outer-join paper names its tables r, s, t, u without columns; here each join of two of them has
its own pair of columns, each named after the other table.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from protocols.analysis.block import NamedBlock, block_of
from protocols.views.catalog import Catalog, ForeignKey, Relation, catalog_from_json
from protocols.views.constraints import Reference
from protocols.views.sql import parse_view
from protocols.views.tree import Core, Node, TreeView


def sources(source: str, relations: Mapping[str, str]) -> dict[str, Any]:
    """The sources of a catalog of BIGINT columns, in JSON.

    Each relation is `name: "KEY other columns"`; key columns are in capitals.
    """
    form: dict[str, Any] = {}
    for name, columns in relations.items():
        names = columns.split()
        key = [column.lower() for column in names if column.isupper()]
        form[name] = {"columns": {c.lower(): "BIGINT" for c in names}, "key": key}
    return {source: {"relations": form}}


def with_keys(
    forms: dict[str, Any],
    keys: Mapping[str, Sequence[Sequence[str]]] | None = None,
    foreign_keys: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
) -> dict[str, Any]:
    """The same sources with further keys and foreign keys declared."""
    further = {"keys": keys or {}, "foreign_keys": foreign_keys or {}}
    return {
        source: {
            "relations": {
                name: {**form, **{field: of[name] for field, of in further.items() if name in of}}
                for name, form in body["relations"].items()
            }
        }
        for source, body in forms.items()
    }


#: The running example: R, S, T and U.
LETTERS_SOURCES = sources(
    "db",
    {
        "r": "ID s t x",
        "s": "ID r x",
        "t": "ID r u x",
        "u": "ID t x",
    },
)
LETTERS = catalog_from_json(LETTERS_SOURCES)
#: The part of TPC-H that the views of the paper need.
TPCH_SOURCES = sources(
    "tpch",
    {
        "part": "P_PARTKEY p_name p_retailprice",
        "orders": "O_ORDERKEY o_custkey o_orderdate",
        "lineitem": "L_ORDERKEY L_LINENUMBER l_partkey l_quantity",
        "customer": "C_CUSTKEY c_nationkey",
    },
)
TPCH = catalog_from_json(TPCH_SOURCES)

#: V1 of Example 2: (R fo S) lo (T fo U).
V1 = """
SELECT r.id AS r, s.id AS s, t.id AS t, u.id AS u
FROM (db.r r FULL JOIN db.s s ON r.s = s.r)
LEFT JOIN (db.t t FULL JOIN db.u u ON t.u = u.t) ON r.t = t.r
"""
#: V1 of Example 10, in which T and U are joined on a key of T.
V1_WITH_KEY = V1.replace("t.u = u.t", "t.id = u.t")
#: V2 of Example 11: C fo (O fo L), with selections on C and O.
V2 = """
SELECT c.c_custkey, o.o_orderkey, l.l_orderkey, l.l_linenumber
FROM (SELECT * FROM tpch.customer WHERE c_nationkey = 1) c
FULL JOIN ((SELECT * FROM tpch.orders WHERE o_orderdate > 3) o
           FULL JOIN tpch.lineitem l ON o.o_orderkey = l.l_orderkey)
ON c.c_custkey = o.o_custkey
"""
#: V3 of Section 7.
V3 = """
SELECT l.l_orderkey, l.l_linenumber, o.o_orderkey, c.c_custkey, p.p_partkey
FROM ((SELECT * FROM tpch.lineitem, tpch.orders
       WHERE l_orderkey = o_orderkey AND o_orderdate BETWEEN 3 AND 9) lo
      RIGHT JOIN tpch.customer c ON c.c_custkey = lo.o_custkey)
FULL JOIN tpch.part p ON lo.l_partkey = p.p_partkey AND p.p_retailprice < 2000
""".replace("l.l_", "lo.l_").replace("o.o_orderkey,", "lo.o_orderkey,")
#: oj_view of Example 1.
OJ_VIEW = """
SELECT p_partkey, p_name, p_retailprice, o_orderkey, o_custkey, l_linenumber, l_quantity
FROM tpch.part p FULL JOIN (tpch.orders o LEFT JOIN tpch.lineitem l ON l_orderkey = o_orderkey)
ON p_partkey = l_partkey
"""


def relation(catalog: Catalog, name: str) -> Relation:
    return next(relation for relation in catalog if relation.name == name)


def foreign_key(
    catalog: Catalog, child: str, column: str, parent: str, *, mandatory: bool = True
) -> ForeignKey:
    """A foreign key of one column."""
    declared = replace(
        relation(catalog, child), references=(Reference((column,), parent, (), mandatory),)
    )
    parents = relation(catalog, parent)
    return ForeignKey(declared, (column,), parents, parents.key)


LINEITEM_TO_PART = foreign_key(TPCH, "lineitem", "l_partkey", "part")
LINEITEM_TO_ORDERS = foreign_key(TPCH, "lineitem", "l_orderkey", "orders")
ORDERS_TO_CUSTOMER = foreign_key(TPCH, "orders", "o_custkey", "customer")
U_TO_T = foreign_key(LETTERS, "u", "t", "t", mandatory=False)


def root(sql: str, relations: Catalog) -> Node:
    """The tree of a view."""
    view = parse_view("v", sql, relations)
    return view.root if isinstance(view, TreeView) else Core(view)


def block(sql: str, relations: Catalog) -> NamedBlock:
    """The outer-join block of a view."""
    return block_of(root(sql, relations))
