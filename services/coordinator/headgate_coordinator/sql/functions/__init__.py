"""The functions that a query may call: nothing else reaches Spark.

Each is listed once, with what it takes and gives; names are compared without case.
"""

from collections.abc import Iterable

from headgate_coordinator.sql.functions.aggregates import AGGREGATE_FUNCTIONS
from headgate_coordinator.sql.functions.nested import NESTED_FUNCTIONS
from headgate_coordinator.sql.functions.number import CHOICE_FUNCTIONS, NUMBER_FUNCTIONS
from headgate_coordinator.sql.functions.signature import ArgumentFault, Function, Param
from headgate_coordinator.sql.functions.text import JSON_FUNCTIONS, TEXT_FUNCTIONS
from headgate_coordinator.sql.functions.time import COUNTED_UNITS, EXTRACTED, TIME_FUNCTIONS


def _by_name(functions: Iterable[Function]) -> dict[str, Function]:
    table: dict[str, Function] = {}
    for function in functions:
        for name in (function.name, *function.synonyms):
            if name in table:
                raise ValueError(f"the function {name} is listed twice")
            table[name] = function
    return table


SCALAR_FUNCTIONS = (
    *TEXT_FUNCTIONS,
    *JSON_FUNCTIONS,
    *NUMBER_FUNCTIONS,
    *CHOICE_FUNCTIONS,
    *TIME_FUNCTIONS,
    *NESTED_FUNCTIONS,
)
SCALARS = _by_name(SCALAR_FUNCTIONS)
AGGREGATES = _by_name(AGGREGATE_FUNCTIONS)

# Functions that people will look for and that cannot be had, with what to write instead.
REFUSED = {
    "lag": "a stream has no row before; join the stream with itself within a time range",
    "lead": "a stream has no next row; join the stream with itself within a time range",
    "rank": "use ROW_NUMBER() <= n for the first n rows of a window",
    "dense_rank": "use ROW_NUMBER() <= n for the first n rows of a window",
    "percent_rank": "use percentile_approx within a window",
    "cume_dist": "use percentile_approx within a window",
    "ntile": "use percentile_approx within a window",
    "nth_value": "use ROW_NUMBER() <= n for the first n rows of a window",
    "explode": "one row makes one row; keep the ARRAY, or split it before it reaches the source",
    "explode_outer": "one row makes one row; keep the ARRAY, or split it before it reaches the source",
    "posexplode": "one row makes one row; keep the ARRAY, or split it before it reaches the source",
    "inline": "one row makes one row; keep the ARRAY, or split it before it reaches the source",
    "stack": "one row makes one row; use UNION ALL",
    "listagg": "use array_join(collect_list(x), ',')",
    "string_agg": "use array_join(collect_list(x), ',')",
    "group_concat": "use array_join(collect_list(x), ',')",
    "mode": "use top-n: GROUP BY the value, ORDER BY COUNT(*) DESC LIMIT 1",
    "grouping": "GROUP BY takes plain keys only",
    "grouping_id": "GROUP BY takes plain keys only",
    "monotonically_increasing_id": "rows of a stream have no number; carry one from the source",
    "input_file_name": "carry it as a column of the source",
    "transform": "functions of functions are not taken",
    "filter": "functions of functions are not taken",
    "aggregate": "functions of functions are not taken",
    "reduce": "functions of functions are not taken",
    "iff": "write CASE WHEN c THEN a ELSE b END",
    "json_value": "use get_json_object(x, '$.path')",
    "json_extract": "use get_json_object(x, '$.path')",
    "json_tuple": "use get_json_object(x, '$.path')",
    "to_char": "use date_format or format_number",
    "strftime": "use date_format(ts, 'yyyy-MM-dd')",
    "date_part": "use EXTRACT(unit FROM ts)",
    "len_utf8": "use octet_length",
    "gen_random_uuid": "use uuid() in WITH (mode = 'realtime'), or carry an id from the source",
}

__all__ = [
    "AGGREGATES",
    "AGGREGATE_FUNCTIONS",
    "COUNTED_UNITS",
    "EXTRACTED",
    "REFUSED",
    "SCALARS",
    "SCALAR_FUNCTIONS",
    "ArgumentFault",
    "Function",
    "Param",
]
