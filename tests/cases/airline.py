"""The airline of Ceri and Widom (Section 5.5): relations, all their keys, and the four views."""

from protocols.views.catalog import catalog_from_json
from tests.cases.paper_views import sources, with_keys

#: The sources with primary keys only.
WITHOUT_FURTHER_KEYS = sources(
    "air",
    {
        "flight": "FLIGHT_ID flight_no day",
        "res": "RES_ID psgr_id flight_id seat",
        "psgr": "PSGR_ID name phone meal ffn",
        "ff": "FFN miles",
    },
)
#: The same with the further keys. `day` is the paper's `date`.
SOURCES = with_keys(
    WITHOUT_FURTHER_KEYS,
    {
        "flight": [["flight_no", "day"]],
        "res": [["psgr_id", "flight_id"], ["flight_id", "seat"]],
        "psgr": [["ffn"]],
    },
)
AIRLINE = catalog_from_json(SOURCES)
#: Section 5.5; the flight FID is 7, and the paper's `!= null` is IS NOT NULL in SQL.
SPECIAL_MEALS = """
SELECT res.seat, psgr.meal FROM air.res, air.psgr
WHERE res.flight_id = 7 AND res.psgr_id = psgr.psgr_id AND psgr.meal IS NOT NULL
"""
#: Section 5.5, before and after the user has added DISTINCT.
FF_RES = "SELECT psgr.ffn FROM air.psgr, air.res WHERE psgr.psgr_id = res.psgr_id"
FF_RES_DISTINCT = FF_RES.replace("SELECT", "SELECT DISTINCT")
#: Section 6.4.
MANY_MILES = """
SELECT psgr_id FROM air.psgr
WHERE psgr.ffn IN (SELECT ffn FROM air.ff WHERE miles > 50000)
"""
#: Section 7.3.
BAD_FLIGHT = """
SELECT res_id FROM air.res
WHERE NOT EXISTS (SELECT * FROM air.flight WHERE flight.flight_id = res.flight_id)
"""
