"""The catalogue of operators and functions: what each takes, gives, and is in SQL.

A function is here if DuckDB and PostgreSQL agree about it: on its values, on what NULL makes of it,
and on which arguments it refuses. Where DuckDB gives a value for which PostgreSQL raises an error
(a DOUBLE divided by zero), it is DuckDB's. The types of the results are DuckDB's too.

The Python value is the reference. `column` is the same for whole columns, and may leave a case to
the reference by returning None; most often since something might overflow, so that only the
reference has to know what happens then.
"""

from collections.abc import Sequence

from protocols.algebra.function import Function, Unfit
from protocols.algebra.functions_casts import CAST, cast_refusal
from protocols.algebra.functions_dates import DATES
from protocols.algebra.functions_numbers import NUMBERS
from protocols.algebra.functions_order import ORDER
from protocols.algebra.functions_texts import TEXTS
from protocols.algebra.types import ColumnType

FUNCTIONS: dict[str, Function] = {
    each.name: each for each in (CAST, *NUMBERS, *TEXTS, *DATES, *ORDER)
}


def check_call(name: str, arguments: Sequence[ColumnType], result: ColumnType) -> None:
    """Raises ValueError unless the function takes exactly these and gives this."""
    if name == CAST.name:
        reason = (
            cast_refusal(arguments[0], result) if len(arguments) == 1 else "CAST takes one value"
        )
        if reason is not None:
            raise Unfit(reason)
        return
    signature = FUNCTIONS[name].signature(arguments)
    if signature.arguments != tuple(arguments) or signature.result != result:
        given = ", ".join(argument.name for argument in arguments)
        raise Unfit(f"{name}({given}) gives no {result.name}")
