"""Functions of dates, timestamps and intervals."""

from __future__ import annotations

from collections.abc import Sequence

from headgate_coordinator.sql.algebra import Expr
from headgate_coordinator.sql.coercion import computed
from headgate_coordinator.sql.functions.signature import (
    DAY,
    INSTANT,
    INTEGER,
    NUMBER,
    SMALL,
    TEXT,
    TEXT_LITERAL,
    TIME,
    ArgumentFault,
    Function,
    Param,
    literal_text,
)
from headgate_coordinator.sql.functions.times import TimePatternFault, check_time_pattern
from headgate_coordinator.sql.types import DATE, FLOAT64, INT32, INT64, TIMESTAMP, VARCHAR, DataType, Kind, decimal

TRUNCATION_UNITS = (
    *("YEAR", "YYYY", "YY", "QUARTER", "MONTH", "MM", "MON", "WEEK", "DAY", "DD"),
    *("HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND"),
)
# What EXTRACT takes out of a date or timestamp, and its type.
_WHOLE_PARTS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "DAYOFWEEK", "DOW", "DOY", "HOUR", "MINUTE", "YEAROFWEEK")
EXTRACTED = {**dict.fromkeys(_WHOLE_PARTS, INT32), "SECOND": decimal(8, 6)}
# What TIMESTAMPADD and TIMESTAMPDIFF count.
COUNTED_UNITS = ("MICROSECOND", "MILLISECOND", "SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR")


def _pattern(index: int, result: DataType, reading: bool = False) -> object:
    """Checks a pattern of Spark's, such as 'yyyy-MM-dd HH:mm:ss'; `reading` where times are read with it."""

    def check(args: Sequence[Expr]) -> DataType:
        if index < len(args):
            try:
                check_time_pattern(literal_text(args, index), reading)
            except TimePatternFault as fault:
                raise ArgumentFault(index, fault.message, fault.suggestion) from None
        return result

    return check


def _truncated(args: Sequence[Expr]) -> DataType:
    if literal_text(args, 0).upper() not in TRUNCATION_UNITS:
        raise ArgumentFault(0, "is no unit to cut at", "one of " + ", ".join(TRUNCATION_UNITS))
    return TIMESTAMP


def _whole_or_decimal_seconds(args: Sequence[Expr]) -> DataType:
    if computed(args[0].type).kind is Kind.DECIMAL and computed(args[0].type).scale > 6:
        raise ArgumentFault(0, "has more than 6 digits after the point")
    return TIMESTAMP


_WEEKDAYS = {"MO", "MON", "MONDAY", "TU", "TUE", "TUESDAY", "WE", "WED", "WEDNESDAY", "TH", "THU", "THURSDAY"} | {
    *("FR", "FRI", "FRIDAY", "SA", "SAT", "SATURDAY", "SU", "SUN", "SUNDAY")
}


def _next_day(args: Sequence[Expr]) -> DataType:
    if literal_text(args, 1).upper() not in _WEEKDAYS:
        raise ArgumentFault(1, "is no day of the week", "write 'MONDAY'")
    return DATE


def _f(name: str, params: Sequence[Param], result: object, **more: object) -> Function:
    return Function(name, tuple(params), result, group="Time", **more)  # type: ignore[arg-type]


_PARTS = ("year", "quarter", "month", "day", "dayofweek", "weekday", "dayofyear", "weekofyear")

TIME_FUNCTIONS = (
    *(_f(name, [TIME], INT32) for name in _PARTS),
    _f("dayofmonth", [TIME], INT32),
    *(_f(name, [INSTANT], INT32) for name in ("hour", "minute", "second")),
    # One instant for all rows of a batch, which Spark remembers for when it runs the batch again.
    _f("current_timestamp", [], TIMESTAMP, synonyms=("now",)),
    _f("current_date", [], DATE, synonyms=("curdate",)),
    _f("date_trunc", [TEXT_LITERAL, TIME], _truncated),
    _f("date_format", [TIME, TEXT_LITERAL], _pattern(1, VARCHAR)),
    _f("to_timestamp", [TEXT], _pattern(1, TIMESTAMP, reading=True), optional=(TEXT_LITERAL,)),
    _f("try_to_timestamp", [TEXT], _pattern(1, TIMESTAMP, reading=True), optional=(TEXT_LITERAL,), null_if="always"),
    _f("to_date", [TEXT], _pattern(1, DATE, reading=True), optional=(TEXT_LITERAL,)),
    _f("unix_timestamp", [TIME], INT64),
    _f("unix_seconds", [INSTANT], INT64),
    _f("unix_millis", [INSTANT], INT64),
    _f("unix_micros", [INSTANT], INT64),
    _f("unix_date", [DAY], INT32),
    _f("timestamp_seconds", [NUMBER], _whole_or_decimal_seconds),
    _f("timestamp_millis", [INTEGER], TIMESTAMP),
    _f("timestamp_micros", [INTEGER], TIMESTAMP),
    _f("date_from_unix_date", [SMALL], DATE),
    _f("from_unixtime", [INTEGER], _pattern(1, VARCHAR), optional=(TEXT_LITERAL,)),
    _f("from_utc_timestamp", [TIME, TEXT_LITERAL], TIMESTAMP),
    _f("to_utc_timestamp", [TIME, TEXT_LITERAL], TIMESTAMP),
    _f("date_add", [DAY, SMALL], DATE),
    _f("date_sub", [DAY, SMALL], DATE),
    _f("datediff", [DAY, DAY], INT32, synonyms=("date_diff",)),
    _f("add_months", [DAY, SMALL], DATE),
    _f("months_between", [TIME, TIME], FLOAT64),
    _f("last_day", [DAY], DATE),
    _f("next_day", [DAY, TEXT_LITERAL], _next_day),
    _f("make_date", [SMALL, SMALL, SMALL], DATE),
    _f("make_timestamp", [SMALL, SMALL, SMALL, SMALL, SMALL, NUMBER], TIMESTAMP),
)
