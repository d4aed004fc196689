"""Views with auxiliary views: the paper's running example, and one for each of its cases."""

from dataclasses import dataclass
from typing import Any

import orjson

from protocols.selfmaintenance.auxiliary import AuxiliaryViews, auxiliary_views
from protocols.selfmaintenance.language import select_project_join
from protocols.views.catalog import Catalog, catalog_from_json
from protocols.views.sql import parse_view
from protocols.views.view import View
from tests.harness.places import ROOT

RUNNING = ROOT / "examples" / "auxiliary"
CAL_TOY_SALES = (RUNNING / "cal_toy_sales.sql").read_text()
DEPARTMENT_STORES: dict[str, Any] = orjson.loads((RUNNING / "department_stores.json").read_bytes())[
    "sources"
]


@dataclass(frozen=True)
class Case:
    """A view over relations with declarations."""

    catalog: Catalog
    sql: str

    @property
    def view(self) -> View:
        return select_project_join(parse_view("v", self.sql, self.catalog))

    @property
    def auxiliary_views(self) -> AuxiliaryViews:
        return auxiliary_views(self.view, self.catalog.foreign_keys)


def relation(columns: str, **declared: Any) -> dict[str, Any]:
    """A relation whose columns are numbers and whose key is the first of them."""
    names = columns.split()
    return {"columns": dict.fromkeys(names, "BIGINT"), "key": names[:1], **declared}


def references(**parents: str) -> list[dict[str, Any]]:
    """Foreign keys of one column each."""
    return [{"columns": [column], "references": parent} for column, parent in parents.items()]


def case(sql: str, **relations: Any) -> Case:
    """A view over relations of the one source `s`."""
    return Case(catalog_from_json({"s": {"relations": relations}}), sql)


def running_example(**updates: list[str] | None) -> Case:
    """The running example; relations may be given other `updates`, None for any column."""
    relations = {}
    for name, form in DEPARTMENT_STORES["shop"]["relations"].items():
        declared = {**form, "updates": updates.get(name, form["updates"])}
        relations[name] = {k: v for k, v in declared.items() if v is not None}
    return Case(catalog_from_json({"shop": {"relations": relations}}), CAL_TOY_SALES)


_STAR: dict[str, Any] = {
    "d": relation("k name grade", updates=["name"]),
    "e": relation("k name", updates=[]),
    "f": relation("k d e n", updates=["n"], foreign_keys=references(d="d", e="e")),
}
_CHAIN: dict[str, Any] = {
    "a": relation("k b n", updates=["n"], foreign_keys=references(b="b")),
    "b": relation("k c n", updates=["n"], foreign_keys=references(c="c")),
    "c": relation("k n", updates=["n"]),
}
_PAIR: dict[str, Any] = {
    "a": relation("k b n", updates=["n"], foreign_keys=references(b="b")),
    "b": relation("k a n", updates=["n"], foreign_keys=references(a="a")),
}
_STAFF = relation("id boss pay", updates=["pay"], foreign_keys=references(boss="staff"))

#: One view for each case of the paper, and for each place where we differ from it.
CASES: dict[str, Case] = {
    "the running example": running_example(),
    "exposed updates of sale": running_example(sale=["year", "store_id", "month"]),
    "exposed updates of item": running_example(item=["category", "item_name"]),
    "exposed updates of all": running_example(store=None, sale=None, line=None, item=None),
    "no updates at all": running_example(store=[], sale=[], line=[], item=[]),
    "a single relation": case("SELECT d.name FROM s.d WHERE d.grade = 1", **_STAR),
    "a star that shows the key of its centre": case(
        "SELECT f.k, d.name, e.name AS e_name FROM s.f, s.d, s.e WHERE f.d = d.k AND f.e = e.k",
        **_STAR,
    ),
    "a star whose points are never updated": case(
        "SELECT f.k, d.name, e.name AS e_name FROM s.f, s.d, s.e"
        " WHERE f.d = d.k AND f.e = e.k AND d.grade = 1",
        **{**_STAR, "d": relation("k name grade", updates=[])},
    ),
    "a star without keys": case(
        "SELECT d.name, e.name AS e_name FROM s.f, s.d, s.e"
        " WHERE f.d = d.k AND f.e = e.k AND d.grade = 1",
        **_STAR,
    ),
    "a chain without keys": case(
        "SELECT a.n, b.n AS bn, c.n AS cn FROM s.a, s.b, s.c WHERE a.b = b.k AND b.c = c.k",
        **_CHAIN,
    ),
    "a chain that shows the key in the middle": case(
        "SELECT b.k, a.n, c.n AS cn FROM s.a, s.b, s.c WHERE a.b = b.k AND b.c = c.k", **_CHAIN
    ),
    "a key that equals a shown column": case(
        "SELECT a.b, a.n, b.n AS bn FROM s.a, s.b WHERE a.b = b.k", **_CHAIN
    ),
    "a key that is constant": case(
        "SELECT a.k, b.n FROM s.a, s.b WHERE a.b = b.k AND b.k = 2", **_CHAIN
    ),
    "a condition that is carried over": case(
        "SELECT a.k, b.n FROM s.a, s.b WHERE a.b = b.k AND a.n < 2 AND a.n = b.n",
        a=relation("k b n", updates=[], foreign_keys=references(b="b")),
        b=relation("k n", updates=[]),
    ),
    "no foreign keys": case(
        "SELECT a.k, b.n FROM s.a, s.b WHERE a.b = b.k AND b.c = 1",
        a=relation("k b n"),
        b=relation("k c n", updates=["n"]),
    ),
    "a join that is not along a key": case(
        "SELECT a.k, b.k AS bk FROM s.a, s.b WHERE a.n = b.n AND a.b < b.c",
        a=relation("k b n", updates=[]),
        b=relation("k c n"),
    ),
    "two trees": case(
        "SELECT a.k, b.n, d.n AS dn FROM s.a, s.b, s.c AS d WHERE a.b = b.k AND a.n = d.n",
        **_CHAIN,
    ),
    "a foreign key that may be NULL": case(
        "SELECT a.k, b.n FROM s.a, s.b WHERE a.b = b.k AND b.c = 1",
        a=relation("k b n", updates=["b", "n"], foreign_keys=references(b="b")),
        b=relation("k c n", updates=["n"]),
    ),
    "keys of two columns": case(
        "SELECT a.k, b.n FROM s.a, s.b WHERE a.x = b.x AND a.y = b.y AND b.n < 2",
        a=relation(
            "k x y n",
            updates=["n"],
            foreign_keys=[{"columns": ["x", "y"], "references": "b"}],
        ),
        b={**relation("x y n", updates=[]), "key": ["x", "y"]},
    ),
    "a further key": case(
        "SELECT a.k, b.n FROM s.a, s.b WHERE a.code = b.code AND b.n = 1",
        a=relation(
            "k code",
            updates=[],
            foreign_keys=[{"columns": ["code"], "references": "b", "to": ["code"]}],
        ),
        b=relation("k code n", updates=[], keys=[["code"]]),
    ),
    "two roots": case(
        "SELECT a.k, d.k AS dk, b.n FROM s.a, s.a AS d, s.b WHERE a.b = b.k AND d.b = b.k",
        **_CHAIN,
    ),
    "two parents": case(
        "SELECT r.k, t.n FROM s.r, s.p, s.q, s.t"
        " WHERE r.p = p.k AND r.q = q.k AND p.t = t.k AND q.t = t.k AND p.n < 3",
        r=relation("k p q", updates=[], foreign_keys=references(p="p", q="q")),
        p=relation("k t n", updates=[], foreign_keys=references(t="t")),
        q=relation("k t n", updates=[], foreign_keys=references(t="t")),
        t=relation("k n", updates=["n"]),
    ),
    "a way round the root": case(
        "SELECT q.k, r.n, t.n AS tn FROM s.r, s.q, s.t WHERE r.k = q.r AND r.t = t.k AND q.t = t.k",
        r=relation("k t n", updates=["n"], foreign_keys=references(t="t")),
        q=relation("k r t", updates=[], foreign_keys=references(r="r", t="t")),
        t=relation("k n", updates=["n"]),
    ),
    "a cycle of three joins": case(
        "SELECT a.k, c.n FROM s.a, s.b, s.c WHERE a.b = b.k AND b.c = c.k AND c.a = a.k",
        a=relation("k b", updates=[], foreign_keys=references(b="b")),
        b=relation("k c", updates=[], foreign_keys=references(c="c")),
        c=relation("k a n", updates=["n"]),
    ),
    "a circle of foreign keys": case(
        "SELECT a.k, a.n, b.k AS bk, b.n AS bn FROM s.a, s.b WHERE a.b = b.k AND b.a = a.k", **_PAIR
    ),
    "a circle of which one key is shown": case(
        "SELECT a.k, b.n FROM s.a, s.b WHERE a.b = b.k AND b.a = a.k AND a.n < 2",
        **{**_PAIR, "a": {**_PAIR["a"], "updates": []}},
    ),
    "a circle without keys": case(
        "SELECT a.n, b.n AS bn FROM s.a, s.b WHERE a.b = b.k AND b.a = a.k", **_PAIR
    ),
    "a circle between others": case(
        "SELECT f.k, a.n, d.n AS dn FROM s.f, s.a, s.b, s.d"
        " WHERE f.b = b.k AND a.b = b.k AND b.a = a.k AND a.d = d.k AND d.n < 2",
        f=relation("k b", updates=[], foreign_keys=references(b="b")),
        a=relation("k b d n", updates=["n"], foreign_keys=references(b="b", d="d")),
        b=relation("k a", updates=[], foreign_keys=references(a="a")),
        d=relation("k n", updates=[]),
    ),
    "a circle with exposed updates": case(
        "SELECT a.k, b.n FROM s.a, s.b WHERE a.b = b.k AND b.a = a.k AND a.n = 1", **_PAIR
    ),
    "a relation joined with itself": case(
        "SELECT e.id, e.pay, m.pay AS boss_pay FROM s.staff e, s.staff m WHERE e.boss = m.id",
        staff=_STAFF,
    ),
    "itself, with other conditions on either": case(
        "SELECT e.id, m.id AS boss FROM s.staff e, s.staff m WHERE e.boss = m.id AND m.pay = 1",
        staff=relation("id boss pay", foreign_keys=references(boss="staff")),
    ),
    "itself, with equal auxiliary views": case(
        "SELECT e.id, m.id AS other FROM s.staff e, s.staff m WHERE e.pay = m.pay", staff=_STAFF
    ),
}
