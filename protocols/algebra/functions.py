"""The catalogue of operators and functions: arguments, result and SQL text of each.

A function is here if DuckDB and PostgreSQL agree about it (on its values, on its result for NULL,
and on the arguments that it refuses), or for views in the dialect of one (functions_dialects.py).
Where PostgreSQL raises an error and DuckDB has a value (a
DOUBLE divided by zero), DuckDB's value is used. The types of the results are DuckDB's too.

The Python value is the reference. `column` is the same for whole columns. It may return None to
leave a case to the reference, most often because something might overflow; so only the reference
has to know what happens then.
"""

from collections.abc import Sequence

from protocols.algebra.function import Function, Unfit
from protocols.algebra.functions_casts import CAST, cast_refusal
from protocols.algebra.functions_dates import DATES
from protocols.algebra.functions_dialects import DIALECTS
from protocols.algebra.functions_numbers import NUMBERS
from protocols.algebra.functions_order import ORDER
from protocols.algebra.functions_texts import TEXTS
from protocols.algebra.types import ColumnType

FUNCTIONS: dict[str, Function] = {
    each.name: each for each in (CAST, *NUMBERS, *DIALECTS, *TEXTS, *DATES, *ORDER)
}


def check_call(name: str, arguments: Sequence[ColumnType], result: ColumnType) -> None:
    """Raises ValueError unless the function takes exactly these types and returns this one."""
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
        raise Unfit(f"{name}({given}) does not return a {result.name}")
