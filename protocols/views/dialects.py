"""The dialect that a view speaks, where DuckDB and PostgreSQL differ about numbers.

Without a dialect a view has only what both agree on; the rest is refused. With one it is kept just
as that database evaluates it:

                      duckdb                       postgres
    7 / 2             3.5, a DOUBLE                3
    7.0 / 2           3.5, a DOUBLE                3.5000000000000000, a DECIMAL(38,20)
    AVG of exact      a DOUBLE                     like SUM / COUNT, a DECIMAL(38,20)
    SUM of INTEGER    a DECIMAL(38,0)              a BIGINT
    ROUND of DOUBLE   half away from zero          half to even, no digits
    EXTRACT           a BIGINT                     a DECIMAL(19,0)
    1e3               a DOUBLE                     a DECIMAL
    IN, BETWEEN       all as DOUBLE if one is      pair by pair

PostgreSQL's quotients have no fixed number of digits; here they are stored with 20 after the point.
"""

from typing import Literal, TypeAlias

from protocols.errors import WrongUse

Dialect: TypeAlias = Literal["duckdb", "postgres"]
#: What a message says if a dialect would do.
SAY_WHICH = 'say which one the view means: dialect = "duckdb" or "postgres"'


def dialect_named(name: object) -> Dialect | None:
    """The dialect of this name, None for none; WrongUse if there is no such dialect."""
    if name is None or name == "duckdb" or name == "postgres":
        return name
    raise WrongUse(f'a dialect is "duckdb" or "postgres", not {name!r}')
