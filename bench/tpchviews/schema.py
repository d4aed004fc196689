"""The eight relations of TPC-H at three sources, with the keys and foreign keys of its schema."""

from typing import Any

from protocols.views.catalog import Catalog, catalog_from_json

_MONEY = "DECIMAL(15,2)"


def _relation(
    key: list[str], *foreign_keys: tuple[list[str], str], **columns: str
) -> dict[str, Any]:
    references = [{"columns": own, "references": other} for own, other in foreign_keys]
    return {"columns": columns, "key": key, "foreign_keys": references}


SOURCES: dict[str, Any] = {
    "geo": {
        "relations": {
            "region": _relation(["r_regionkey"], r_regionkey="BIGINT", r_name="VARCHAR"),
            "nation": _relation(
                ["n_nationkey"],
                (["n_regionkey"], "region"),
                n_nationkey="BIGINT",
                n_name="VARCHAR",
                n_regionkey="BIGINT",
            ),
        }
    },
    "stock": {
        "relations": {
            "part": _relation(
                ["p_partkey"],
                p_partkey="BIGINT",
                p_name="VARCHAR",
                p_mfgr="VARCHAR",
                p_brand="VARCHAR",
                p_type="VARCHAR",
                p_size="BIGINT",
                p_container="VARCHAR",
                p_retailprice=_MONEY,
            ),
            "supplier": _relation(
                ["s_suppkey"],
                s_suppkey="BIGINT",
                s_name="VARCHAR",
                s_address="VARCHAR",
                s_nationkey="BIGINT",
                s_phone="VARCHAR",
                s_acctbal=_MONEY,
                s_comment="VARCHAR",
            ),
            "partsupp": _relation(
                ["ps_partkey", "ps_suppkey"],
                (["ps_partkey"], "part"),
                (["ps_suppkey"], "supplier"),
                ps_partkey="BIGINT",
                ps_suppkey="BIGINT",
                ps_availqty="BIGINT",
                ps_supplycost=_MONEY,
            ),
        }
    },
    "sales": {
        "relations": {
            "customer": _relation(
                ["c_custkey"],
                c_custkey="BIGINT",
                c_name="VARCHAR",
                c_address="VARCHAR",
                c_nationkey="BIGINT",
                c_phone="VARCHAR",
                c_acctbal=_MONEY,
                c_mktsegment="VARCHAR",
                c_comment="VARCHAR",
            ),
            "orders": _relation(
                ["o_orderkey"],
                (["o_custkey"], "customer"),
                o_orderkey="BIGINT",
                o_custkey="BIGINT",
                o_orderstatus="VARCHAR",
                o_totalprice=_MONEY,
                o_orderdate="DATE",
                o_orderpriority="VARCHAR",
                o_shippriority="BIGINT",
                o_comment="VARCHAR",
            ),
            "lineitem": _relation(
                ["l_orderkey", "l_linenumber"],
                (["l_orderkey"], "orders"),
                l_orderkey="BIGINT",
                l_partkey="BIGINT",
                l_suppkey="BIGINT",
                l_linenumber="BIGINT",
                l_quantity=_MONEY,
                l_extendedprice=_MONEY,
                l_discount=_MONEY,
                l_tax=_MONEY,
                l_returnflag="VARCHAR",
                l_linestatus="VARCHAR",
                l_shipdate="DATE",
                l_commitdate="DATE",
                l_receiptdate="DATE",
                l_shipinstruct="VARCHAR",
                l_shipmode="VARCHAR",
            ),
        }
    },
}
CATALOG: Catalog = catalog_from_json(SOURCES)
