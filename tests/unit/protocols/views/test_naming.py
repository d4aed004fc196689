"""Names of items without one: each as PostgreSQL 15 answered when it was asked."""

import pytest
import sqlglot
from sqlglot import exp

from protocols.views.naming import item_names

#: Item → its name; in place of PostgreSQL's ?column? stands column1.
POSTGRESQL = {
    "a": "a",
    "((t.a))": "a",
    "a + 1": "column1",
    "-a": "column1",
    "1": "column1",
    "'x'": "column1",
    "true": "column1",
    "not y": "column1",
    "y is null": "column1",
    "a in (1, 2)": "column1",
    "a in (select b from t)": "column1",
    "a between 1 and 2": "column1",
    "a is not distinct from b": "column1",
    "x like 'a'": "column1",
    "x ilike 'a'": "column1",
    "x ~ 'a'": "column1",
    "x || 'b'": "column1",
    "a % 2": "column1",
    "d + interval '1' day": "column1",
    "Sum(a)": "sum",
    "count(*)": "count",
    "count(distinct a)": "count",
    "sum(a) filter (where y)": "sum",
    "bool_and(y)": "bool_and",
    "variance(a)": "variance",
    "var_pop(a)": "var_pop",
    "stddev_samp(a)": "stddev_samp",
    "string_agg(x, ',')": "string_agg",
    "cast(a as bigint)": "a",
    "cast(upper(x) as varchar)": "upper",
    "cast(a + 1 as bigint)": "int8",
    "cast(1 as integer)": "int4",
    "cast('1' as double precision)": "float8",
    "cast('1' as decimal(3,1))": "numeric",
    "cast('x' as varchar)": "varchar",
    "null::date": "date",
    "date '2020-01-01'": "date",
    "cast('2020-01-01' as timestamp)": "timestamp",
    "cast('t' as boolean)": "bool",
    "case when y then 1 else 2 end": "case",
    "case when y then 1 end": "case",
    "case when y then 1 else a end": "a",
    "case when y then x else upper(x) end": "upper",
    "coalesce(a, 1)": "coalesce",
    "nullif(a, 1)": "nullif",
    "greatest(a, b)": "greatest",
    "least(a, b)": "least",
    "exists(select 1)": "exists",
    "(select max(b) from t)": "max",
    "(select max(b) as m from t)": "m",
    "(select max(b) + 1 from t)": "column1",
    "mod(a, 2)": "mod",
    "substr(x, 1, 2)": "substr",
    "substring(x, 1, 2)": "substring",
    "substring(x from 1 for 2)": "substring",
    "trim(x)": "btrim",
    "trim(leading 'a' from x)": "ltrim",
    "trim(trailing 'a' from x)": "rtrim",
    "ltrim(x)": "ltrim",
    "extract(year from d)": "extract",
    "date_part('year', d)": "date_part",
    "date_trunc('month', d)": "date_trunc",
    "position('a' in x)": "position",
    "strpos(x, 'a')": "strpos",
    "char_length(x)": "char_length",
    "ceil(f)": "ceil",
    "ceiling(f)": "ceiling",
    "floor(f)": "floor",
    "round(a, 1)": "round",
    "left(x, 2)": "left",
    "split_part(x, ',', 1)": "split_part",
    "md5(x)": "md5",
}


def _names(items: str) -> list[str]:
    sql = f"SELECT {items} FROM t"
    query = sqlglot.parse_one(sql, dialect="duckdb")
    assert isinstance(query, exp.Select)
    return item_names(query.expressions, sql)


@pytest.mark.parametrize("item", POSTGRESQL)
def test_an_item_is_called_as_in_postgresql(item: str) -> None:
    assert _names(item) == [POSTGRESQL[item]]


def test_an_item_without_any_name_is_numbered_by_its_place() -> None:
    assert _names("a, a * 2, b, b * 2") == ["a", "column2", "b", "column4"]


def test_names_in_the_text_stay_and_others_give_way() -> None:
    assert _names("sum(a), sum(b), c AS sum, max(a) AS x") == ["sum_2", "sum_3", "sum", "x"]
    assert _names("a + 1, b AS Column1") == ["column1_2", "Column1"]
