"""Every scalar function and operator of the reference, beside its meaning in DuckDB's SQL or in Python.

One query for each group of functions, over all rows of `kinds`. A Python function takes columns by their names; it is
NULL where one of them is, unless it is marked `total`.
"""

# Columns are found by the names of the parameters, which a function named alone has not.
# ruff: noqa: PLW0108
from __future__ import annotations

import base64
import binascii
import hashlib
import inspect
import json
import math
import re
import zlib
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal
from typing import Any
from zoneinfo import ZoneInfo

import duckdb

from tests.integration.planner_spark.oracle.case import Row, tables

Meaning = str | Callable[..., Any]


def total(meaning: Callable[..., Any]) -> Callable[..., Any]:
    """For a function that has something to say about NULL."""
    meaning.__dict__["total"] = True
    return meaning


def expected(group: Mapping[str, Meaning], connection: duckdb.DuckDBPyConnection) -> list[Row]:
    """Row number and the value of every expression of a group, for every row."""
    rows = tables()["kinds"]
    texts = [meaning for meaning in group.values() if isinstance(meaning, str)]
    listed = ", ".join(f"({text}) AS c{place}" for place, text in enumerate(texts))
    answered = connection.cursor().execute(f"SELECT n{', ' if texts else ''}{listed} FROM kinds").fetchall()
    by_number = {row[0]: iter(row[1:]) for row in answered}
    found = []
    for row in rows:
        theirs = by_number[row["n"]]
        found.append(
            (
                row["n"],
                *(next(theirs) if isinstance(one, str) else _called(one, row) for one in group.values()),
            )
        )
    return found


def _called(meaning: Callable[..., Any], row: Mapping[str, Any]) -> Any:
    values = [row[name] for name in inspect.signature(meaning).parameters]
    # Maps come out of Arrow as pairs.
    if any(value is None for value in values) and not meaning.__dict__.get("total"):
        return None
    return meaning(*values)


def query(group: Mapping[str, Meaning]) -> str:
    listed = ", ".join(f"{text} AS c{place}" for place, text in enumerate(group))
    return f"SELECT n, {listed} FROM kinds"


def _levenshtein(one: str, other: str) -> int:
    before = list(range(len(other) + 1))
    for place, left in enumerate(one, start=1):
        row = [place]
        for index, right in enumerate(other, start=1):
            row.append(min(row[-1] + 1, before[index] + 1, before[index - 1] + (left != right)))
        before = row
    return before[-1]


_SOUNDS = {"Robert": "R163", "Rupert": "R163", "Ashcraft": "A261", "Tymczak": "T522", "Honeyman": "H555"}
_SOUNDS |= {"kitten": "K350", "sitting": "S352"}


def _signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def _turned(value: int, by: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return ((value << by) | (value >> (bits - by))) & ((1 << bits) - 1)


def _murmur3(value: int | None) -> int:
    """Murmur3 of one 32-bit number, with the seed 42; that of NULL is the seed."""
    if value is None:
        return 42
    mixed = _turned((value & 0xFFFFFFFF) * 0xCC9E2D51, 15, 32) * 0x1B873593
    state = (_turned(42 ^ (mixed & 0xFFFFFFFF), 13, 32) * 5 + 0xE6546B64) & 0xFFFFFFFF
    state ^= 4
    state = ((state ^ (state >> 16)) * 0x85EBCA6B) & 0xFFFFFFFF
    state = ((state ^ (state >> 13)) * 0xC2B2AE35) & 0xFFFFFFFF
    return _signed(state ^ (state >> 16), 32)


def _xxhash64(value: int | None) -> int:
    """xxHash64 of one 64-bit number, with the seed 42; that of NULL is the seed."""
    first, second, third, fourth, fifth = (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
    if value is None:
        return 42
    state = (42 + fifth + 8) ^ (_turned((value & (2**64 - 1)) * second, 31, 64) * first)
    state = (_turned(state, 27, 64) * first + fourth) & (2**64 - 1)
    state = ((state ^ (state >> 33)) * second) & (2**64 - 1)
    state = ((state ^ (state >> 29)) * third) & (2**64 - 1)
    return _signed(state ^ (state >> 32), 64)


def _hex_or_null(text: str) -> bytes | None:
    try:
        return binascii.unhexlify(text if len(text) % 2 == 0 else f"0{text}")
    except (binascii.Error, ValueError):
        return None


def _words_capital(text: str) -> str:
    return " ".join(word[:1].upper() + word[1:].lower() for word in text.split(" "))


def _padded(text: str, length: int, fill: str, *, left: bool) -> str:
    if len(text) >= length or not fill:
        return text[:length]
    more = (fill * length)[: length - len(text)]
    return more + text if left else text + more


def _translated(text: str) -> str:
    return text.replace("c", "").translate(str.maketrans("ab", "AB"))


def _part(text: str, separator: str, place: int) -> str:
    parts = text.split(separator)
    return parts[place - 1] if place <= len(parts) else ""


TEXT: dict[str, Meaning] = {
    "upper(s)": "upper(s)",
    "ucase(t)": "upper(t)",
    "lower(s)": "lower(s)",
    "lcase(t)": "lower(t)",
    "initcap(s)": lambda s: _words_capital(s),
    "length(s)": "length(s)",
    "length(bin)": "octet_length(bin)",
    "char_length(s)": "length(s)",
    "character_length(s)": "length(s)",
    "len(s)": "length(s)",
    "octet_length(s)": "strlen(s)",
    "bit_length(s)": "bit_length(s)",
    "trim(s)": lambda s: s.strip(" "),
    "TRIM(' a' FROM s)": lambda s: s.strip(" a"),
    "ltrim(s)": lambda s: s.lstrip(" "),
    "rtrim(s)": lambda s: s.rstrip(" "),
    "TRIM(LEADING 'a' FROM s)": "ltrim(s, 'a')",
    "TRIM(TRAILING 'c' FROM s)": "rtrim(s, 'c')",
    "TRIM(BOTH 'a' FROM s)": "trim(s, 'a')",
    "substring(s, 2, 3)": "substring(s, 2, 3)",
    "substr(s, 2)": "substring(s, 2)",
    "SUBSTRING(s FROM 1 FOR 2)": "substring(s, 1, 2)",
    "substring(bin, 1, 1)": lambda bin: bin[:1],
    "substring(s, -2, 1)": lambda s: s[-2:-1] if len(s) >= 2 else "",
    "left(s, 3)": "left(s, 3)",
    "right(s, 3)": "right(s, 3)",
    "lpad(s, 5, t)": lambda s, t: _padded(s, 5, t, left=True),
    "rpad(s, 5, t)": lambda s, t: _padded(s, 5, t, left=False),
    "repeat(s, small)": lambda s, small: s * small,
    "replace(s, t, '-')": "replace(s, t, '-')",
    "replace(s, 'a')": "replace(s, 'a', '')",
    "translate(s, 'abc', 'AB')": lambda s: _translated(s),
    "overlay(s, '__', 2)": lambda s: s[:1] + "__" + s[3:],
    "overlay(s, 'Z', 2, 0)": lambda s: s[:1] + "Z" + s[1:],
    "concat_ws('/', s, t, 'e')": "concat_ws('/', s, t, 'e')",
    "s || t": "s || t",
    "concat(s, '-', t)": lambda s, t: f"{s}-{t}",
    "split(s, ',')": lambda s: s.split(","),
    "split(s, '[Xb]', 2)": lambda s: re.split("[Xb]", s, maxsplit=1),
    "split_part(s, ',', 2)": lambda s: _part(s, ",", 2),
    "instr(s, t)": "instr(s, t)",
    "locate(t, s)": "instr(s, t)",
    "locate('a', s, 2)": lambda s: s.find("a", 1) + 1,
    "position(t, s)": "instr(s, t)",
    "POSITION(t IN s)": "position(t IN s)",
    "startswith(s, t)": "starts_with(s, t)",
    "endswith(s, t)": "ends_with(s, t)",
    "contains(s, t)": "contains(s, t)",
    "ascii(s)": lambda s: ord(s[0]) if s else 0,
    "chr(j + 64)": "chr(j + 64)",
    "char(j + 96)": "chr(j + 96)",
    "space(small)": lambda small: " " * small,
    "levenshtein(s, t)": lambda s, t: _levenshtein(s, t),
    "levenshtein(word, 'sitting')": lambda word: _levenshtein(word, "sitting"),
    "soundex(word)": lambda word: _SOUNDS[word],
    "format_string('%d is %s', i, s)": total(lambda i, s: f"{_or_null(i)} is {_or_null(s)}"),
    "printf('%05.1f|%x', y, 255)": total(lambda y: _formatted(y)),
    "format_number(d, 1)": lambda d: f"{d.quantize(Decimal('0.1'), ROUND_HALF_EVEN):,}",
    "format_number(big, 0)": lambda big: f"{big:,}",
    "base64(bin)": lambda bin: base64.b64encode(bin).decode(),
    "unbase64(base64(s))": lambda s: s.encode(),
    "encode(s, 'UTF-16BE')": lambda s: s.encode("utf-16-be"),
    "decode(encode(s, 'UTF-8'), 'UTF-8')": "s",
    "md5(s)": "md5(s)",
    "sha1(s)": lambda s: hashlib.sha1(s.encode()).hexdigest(),
    "sha(bin)": lambda bin: hashlib.sha1(bin).hexdigest(),
    "sha2(s, 256)": "sha256(s)",
    "sha2(s, 512)": lambda s: hashlib.sha512(s.encode()).hexdigest(),
    "crc32(s)": lambda s: zlib.crc32(s.encode()),
    "hex(bin)": "hex(bin)",
    "hex(s)": "hex(s)",
    "unhex(number)": lambda number: _hex_or_null(number),
    "hash(i)": total(lambda i: _murmur3(i)),
    "xxhash64(big)": total(lambda big: _xxhash64(big)),
    "regexp_like(s, '^[a-z]+$')": lambda s: re.search(r"^[a-z]+\Z", s) is not None,
    "rlike(s, 'X')": "contains(s, 'X')",
    "regexp(s, 'a|b')": "regexp_matches(s, 'a|b')",
    "s RLIKE '[0-9]'": "regexp_matches(s, '[0-9]')",
    "regexp_extract(s, '([a-z]+)([0-9]*)', 2)": "regexp_extract(s, '([a-z]+)([0-9]*)', 2)",
    "regexp_extract_all(s, '([a-z])', 1)": lambda s: re.findall("[a-z]", s),
    "regexp_replace(s, '([aeiou])', '<$1>')": lambda s: re.sub("([aeiou])", r"<\1>", s),
    "regexp_count(s, 'a')": lambda s: len(re.findall("a", s)),
    "regexp_instr(s, '[A-Z]')": lambda s: found.start() + 1 if (found := re.search("[A-Z]", s)) else 0,
    "regexp_substr(s, '[A-Z]+')": lambda s: found[0] if (found := re.search("[A-Z]+", s)) else None,
    "s LIKE '%b_'": "s LIKE '%b_'",
    "s LIKE '10!%' ESCAPE '!'": "s LIKE '10!%' ESCAPE '!'",
    "s NOT LIKE 'a%'": "s NOT LIKE 'a%'",
    "s ILIKE 'ABC%'": "s ILIKE 'ABC%'",
    "s < t": "s < t",
}


def _or_null(value: Any) -> Any:
    return "null" if value is None else value


def _formatted(value: float | None) -> str:
    return "    n|ff" if value is None else f"{_half_up(value, 1):05.1f}|ff"


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _member(text: str, *path: str) -> Any:
    value = _json(text)
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _read(text: str) -> Row | None:
    """What FROM_JSON makes of a document: a struct of nothing where it is no object."""
    value = _json(text)
    if text == "":
        return None
    value = value if isinstance(value, dict) else {}
    return (value.get("x"), value.get("y"))


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _without_nulls(value: Any) -> Any:
    return (
        {key: _without_nulls(item) for key, item in value.items() if item is not None}
        if isinstance(value, dict)
        else value
    )


JSON: dict[str, Meaning] = {
    "get_json_object(doc, '$.a.b')": lambda doc: _member(doc, "a", "b"),
    "get_json_object(doc, '$.x')": lambda doc: None if (x := _member(doc, "x")) is None else str(x),
    "get_json_object(doc, '$.y')": lambda doc: None if (y := _member(doc, "y")) is None else _compact(y),
    "from_json(doc, 'STRUCT<x: INT32, y: ARRAY<VARCHAR>>')": lambda doc: _read(doc),
    "to_json(place)": lambda place: _compact(_without_nulls(place)),
    "to_json(names)": lambda names: _compact(names),
    "json_array_length(list)": lambda list: len(value) if isinstance(value := _json(list), type([])) else None,
    "json_object_keys(doc)": lambda doc: [*value] if isinstance(value := _json(doc), dict) else None,
}


def _half_even(value: float, digits: int = 0) -> float:
    return float(Decimal(repr(value)).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_EVEN))


def _half_up(value: float, digits: int = 0) -> float:
    return float(Decimal(repr(value)).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP))


def _logarithm(function: Callable[[float], float]) -> Callable[[float], float | None]:
    """NULL where it is not defined."""

    def meaning(y: float) -> float | None:
        try:
            return function(y)
        except ValueError:
            return None

    return meaning


def _not_a_number(function: Callable[[float], float]) -> Callable[[float], float]:
    def meaning(y: float) -> float:
        try:
            return function(y)
        except ValueError:
            return math.nan

    return meaning


def _whole(big: int) -> int | None:
    return big if -(2**63) <= big < 2**63 else None


def _cut(value: float) -> int:
    return int(value)


def _remainder(left: int, right: int) -> int:
    return int(math.fmod(left, right))


NUMBERS: dict[str, Meaning] = {
    "i + j": "i + j",
    "i - j": "i - j",
    "i * j": "i * j",
    "i / j": "i / j",
    "i DIV j": lambda i, j: int(i / j),
    "i % j": lambda i, j: _remainder(i, j),
    "-d": "-d",
    "d + 1": "d + 1",
    "d * d": "d * d",
    "d / j": lambda d, j: (d / j).quantize(Decimal("1e-13"), ROUND_HALF_UP),
    "u8 + 1": "u8::INTEGER + 1",
    "u64 + 1": lambda u64: u64 + 1,
    "x = x": "x = x",
    "x > y": "x > y",
    "i BETWEEN -1 AND 5": "i BETWEEN -1 AND 5",
    "i IN (1, 2, NULL)": "i IN (1, 2, NULL)",
    "i IS DISTINCT FROM j": "i IS DISTINCT FROM j",
    "x IS NOT DISTINCT FROM y": "x IS NOT DISTINCT FROM y",
    "i <=> j": "i IS NOT DISTINCT FROM j",
    "flag AND other": "flag AND other",
    "flag OR other": "flag OR other",
    "NOT flag": "NOT flag",
    "flag IS TRUE": "flag IS TRUE",
    "sqrt(y)": _not_a_number(math.sqrt),
    "cbrt(y)": "cbrt(y)",
    "exp(unit)": "exp(unit)",
    "expm1(unit)": lambda unit: math.expm1(unit),
    "sin(y)": "sin(y)",
    "cos(y)": "cos(y)",
    "tan(y)": "tan(y)",
    "cot(y + 20)": lambda y: 1 / math.tan(y + 20),
    "asin(unit)": "asin(unit)",
    "acos(unit)": "acos(unit)",
    "atan(y)": "atan(y)",
    "sinh(y)": "sinh(y)",
    "cosh(y)": "cosh(y)",
    "tanh(y)": "tanh(y)",
    "asinh(y)": "asinh(y)",
    "acosh(y)": _not_a_number(math.acosh),
    "atanh(unit / 2)": "atanh(unit / 2)",
    "degrees(y)": "degrees(y)",
    "radians(y)": "radians(y)",
    "rint(y)": lambda y: float(round(y)),
    "ln(y)": _logarithm(math.log),
    "log10(y)": _logarithm(math.log10),
    "log2(y)": _logarithm(math.log2),
    "log1p(y)": _logarithm(math.log1p),
    "log(y)": _logarithm(math.log),
    "log(2, y)": _logarithm(math.log2),
    "power(y, 2)": "power(y, 2)",
    "pow(small, small)": "pow(small, small)",
    "atan2(y, unit)": "atan2(y, unit)",
    "hypot(y, unit)": lambda y, unit: math.hypot(y, unit),
    "pi()": "pi()",
    "e()": total(lambda: math.e),
    "abs(i)": "abs(i)",
    "abs(x)": "abs(x)",
    "sign(y)": "sign(y)",
    "signum(d)": "sign(d)",
    "negative(d)": "-d",
    "positive(i)": "i",
    "ceil(y)": "ceil(y)",
    "ceiling(d)": "ceil(d)",
    "ceil(d, 1)": lambda d: math.ceil(d * 10) / Decimal(10),
    "floor(y)": "floor(y)",
    "floor(d)": "floor(d)",
    "round(y)": lambda y: _half_up(y),
    "round(d, 1)": "round(d, 1)",
    "round(i, -1)": lambda i: int(Decimal(i).quantize(Decimal("1e1"), ROUND_HALF_UP)),
    "bround(y)": lambda y: _half_even(y),
    "bround(d, 1)": lambda d: d.quantize(Decimal("0.1"), ROUND_HALF_EVEN),
    "mod(i, j)": lambda i, j: _remainder(i, j),
    "pmod(i, j)": lambda i, j: i % j,
    "try_add(big, 1)": lambda big: _whole(big + 1),
    "try_subtract(big, 1)": lambda big: _whole(big - 1),
    "try_multiply(big, 2)": lambda big: _whole(big * 2),
    "try_divide(i, small)": lambda i, small: i / small if small else None,
    "factorial(small)": "factorial(small)",
    "width_bucket(y, 0, 10, 5)": lambda y: 0 if y < 0 else 6 if y >= 10 else int(y / 2) + 1,
    "isnan(x)": total(lambda x: x is not None and math.isnan(x)),
    "nanvl(x, y)": total(lambda x, y: None if x is None else y if math.isnan(x) else x),
    "bin(i)": lambda i: f"{i & (2**64 - 1):b}",
    "bit_count(i)": lambda i: (i & (2**64 - 1)).bit_count(),
    "shiftleft(i, small)": lambda i, small: i << small,
    "shiftright(i, small)": lambda i, small: i >> small,
}

CHOICES: dict[str, Meaning] = {
    "coalesce(i, j, 0)": "coalesce(i, j, 0)",
    "ifnull(s, 'none')": "ifnull(s, 'none')",
    "nvl(d, 0)": "coalesce(d, 0)",
    "nvl2(s, i, j)": "CASE WHEN s IS NOT NULL THEN i ELSE j END",
    "nullif(i, 0)": "nullif(i, 0)",
    "nullif(x, y)": "nullif(x, y)",
    "greatest(i, j, 3)": "greatest(i, j, 3)",
    "greatest(x, y)": "greatest(x, y)",
    "least(x, y)": "least(x, y)",
    "isnull(s)": "s IS NULL",
    "isnotnull(s)": "s IS NOT NULL",
    "CASE WHEN i > 1 THEN 'big' WHEN flag THEN 'yes' ELSE s END": ""
    "CASE WHEN i > 1 THEN 'big' WHEN flag THEN 'yes' ELSE s END",
    "CASE j WHEN 1 THEN 'one' WHEN 2 THEN 'two' END": "CASE j WHEN 1 THEN 'one' WHEN 2 THEN 'two' END",
    "IF(flag, i, j)": "if(flag, i, j)",
    "CAST(y AS INT64)": lambda y: _cut(y),
    "CAST(d AS INT32)": lambda d: int(d),
    "CAST(i AS VARCHAR)": "i::VARCHAR",
    "CAST(d AS VARCHAR)": "d::VARCHAR",
    "CAST(flag AS INT32)": "flag::INTEGER",
    "CAST(moment AS DATE)": "moment::DATE",
    "CAST(day AS TIMESTAMP)": "day::TIMESTAMP",
    "i::FLOAT64": "i::DOUBLE",
    "FLOAT32(y)": "y::FLOAT",
    "TRY_CAST(number AS INT32)": lambda number: _int32(number),
    "TRY_CAST(number AS FLOAT64)": lambda number: _float(number),
    "TRY_CAST(number AS DECIMAL(4,1))": lambda number: _decimal(number),
    "TRY_CAST(i AS UINT8)": lambda i: i if 0 <= i <= 255 else None,
    "TRY_CAST(big AS INT32)": "TRY_CAST(big AS INTEGER)",
    "TRY_CAST(stamp AS TIMESTAMP)": "TRY_CAST(stamp AS TIMESTAMP)",
}


def _int32(text: str) -> int | None:
    try:
        value = int(Decimal(text.strip()))
    except ArithmeticError:
        return None
    # A text with a fraction is no integer.
    return value if abs(value) < 2**31 and "." not in text else None


def _float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _decimal(text: str) -> Decimal | None:
    try:
        value = Decimal(text.strip()).quantize(Decimal("0.1"), ROUND_HALF_UP)
    except ArithmeticError:
        return None
    return value if abs(value) < 1000 else None


def _stamp(text: str) -> datetime | None:
    try:
        return datetime.strptime(text, "%Y-%m-%d %H:%M:%S")
    except ValueError:
        return None


def _utc(at: datetime) -> datetime:
    return at.replace(tzinfo=ZoneInfo("UTC"))


EPOCH = datetime(1970, 1, 1)
_US = timedelta(microseconds=1)


def _micros(at: datetime) -> int:
    return (at - EPOCH) // _US


def _month_end(day: date) -> date:
    return (day.replace(day=28) + timedelta(days=4)).replace(day=1) - timedelta(days=1)


def _months_between(at: datetime, day: date) -> float:
    """Whole months where both are the same day of the month or both the last; else days count as 31sts."""
    months = (at.year - day.year) * 12 + at.month - day.month
    if at.day == day.day or (at.date() == _month_end(at.date()) and day == _month_end(day)):
        return float(months)
    seconds = (at - datetime(at.year, at.month, at.day)).total_seconds() // 1
    return round(months + (at.day - day.day + seconds / 86400) / 31, 8)


def _after(day: date, months: int) -> date:
    month = day.month - 1 + months
    first = date(day.year + month // 12, month % 12 + 1, 1)
    return first.replace(day=min(day.day, _month_end(first).day))


TIME: dict[str, Meaning] = {
    **{
        f"{part}(moment)": f"{part}(moment)"
        for part in ("year", "quarter", "month", "day", "dayofyear", "hour", "minute")
    },
    "dayofweek(moment)": "dayofweek(moment) + 1",
    "weekday(moment)": lambda moment: moment.weekday(),
    "weekofyear(moment)": "weekofyear(moment)",
    "dayofmonth(day)": "dayofmonth(day)",
    "second(moment)": "second(moment)",
    "date_trunc('HOUR', moment)": "date_trunc('hour', moment)",
    "date_trunc('WEEK', moment)": "date_trunc('week', moment)::TIMESTAMP",
    "date_trunc('MONTH', day)": "date_trunc('month', day)::TIMESTAMP",
    "date_format(moment, 'yyyy-MM-dd HH:mm:ss.SSS')": lambda moment: (
        f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03d}"
    ),
    "date_format(day, 'E dd MMM')": "strftime(day, '%a %d %b')",
    "to_timestamp('2026-01-31 01:02:03.5')": "TIMESTAMP '2026-01-31 01:02:03.5'",
    "to_timestamp(CASE WHEN i > 0 THEN '31/12/2025' END, 'dd/MM/yyyy')": ""
    "CASE WHEN i > 0 THEN TIMESTAMP '2025-12-31' END",
    "try_to_timestamp(stamp, 'yyyy-MM-dd HH:mm:ss')": lambda stamp: _stamp(stamp),
    "to_date(CASE WHEN i > 0 THEN '2024-02-29' END)": "CASE WHEN i > 0 THEN DATE '2024-02-29' END",
    "to_date('290224', 'ddMMyy')": "DATE '2024-02-29'",
    # Towards zero, other than UNIX_SECONDS.
    "unix_timestamp(moment)": lambda moment: int(_micros(moment) / 1_000_000),
    "unix_seconds(moment)": lambda moment: _micros(moment) // 1_000_000,
    "unix_millis(moment)": lambda moment: _micros(moment) // 1000,
    "unix_micros(moment)": "epoch_us(moment)",
    "unix_date(day)": "day - DATE '1970-01-01'",
    "timestamp_seconds(i)": lambda i: EPOCH + timedelta(seconds=i),
    "timestamp_seconds(d)": lambda d: EPOCH + timedelta(microseconds=int(d * 1_000_000)),
    "timestamp_millis(i)": lambda i: EPOCH + timedelta(milliseconds=i),
    "timestamp_micros(i)": "make_timestamp(i::BIGINT)",
    "date_from_unix_date(i)": "DATE '1970-01-01' + i",
    "from_unixtime(i)": lambda i: f"{EPOCH + timedelta(seconds=i):%Y-%m-%d %H:%M:%S}",
    "from_unixtime(i, 'HH:mm')": lambda i: f"{EPOCH + timedelta(seconds=i):%H:%M}",
    "from_utc_timestamp(moment, 'Europe/Berlin')": lambda moment: (
        _utc(moment).astimezone(ZoneInfo("Europe/Berlin")).replace(tzinfo=None)
    ),
    "to_utc_timestamp(day, 'Europe/Berlin')": lambda day: datetime(
        day.year, day.month, day.day, tzinfo=ZoneInfo("Europe/Berlin")
    ).astimezone(ZoneInfo("UTC")),
    "date_add(day, small)": "day + small",
    "date_sub(day, small)": "day - small",
    "day + 3": "day + 3",
    "datediff(day, '2026-01-01')": "day - DATE '2026-01-01'",
    "date_diff('2026-01-01', day)": "DATE '2026-01-01' - day",
    "add_months(day, i)": lambda day, i: _after(day, i),
    "months_between(moment, day)": lambda moment, day: _months_between(moment, day),
    "last_day(day)": "last_day(day)",
    "next_day(day, 'MONDAY')": lambda day: day + timedelta(days=7 - day.weekday()),
    "make_date(2024, j, 28)": "make_date(2024, j, 28)",
    "make_timestamp(2024, j, 1, 2, 3, 4.5)": "make_timestamp(2024, j, 1, 2, 3, 4.5)",
    "EXTRACT(HOUR FROM moment)": "extract(hour FROM moment)",
    "EXTRACT(YEAR FROM day)": "extract(year FROM day)",
    "EXTRACT(SECOND FROM moment)": lambda moment: moment.second + Decimal(moment.microsecond).scaleb(-6),
    "TIMESTAMPADD(MINUTE, i, moment)": "moment + i * INTERVAL '1 minute'",
    "TIMESTAMPDIFF(SECOND, ts, moment)": lambda ts, moment: int((moment - ts) / timedelta(seconds=1)),
    "moment + INTERVAL 5 MINUTES": "moment + INTERVAL 5 MINUTES",
    "moment - INTERVAL '1' DAY": "moment - INTERVAL '1' DAY",
    "day + INTERVAL 1 MONTH": lambda day: _after(day, 1),
    "moment > '2024-02-29 12:00:00'": "moment > TIMESTAMP '2024-02-29 12:00:00'",
    "day <= '2024-02-29'": "day <= DATE '2024-02-29'",
}


def _sorted(values: list[Any], *, rising: bool = True) -> list[Any]:
    """NULL is the least."""
    return sorted(values, key=lambda value: (value is not None, value or 0), reverse=not rising)


def _unique(values: list[Any]) -> list[Any]:
    return list(dict.fromkeys(values))


def _overlap(one: list[Any], other: list[Any]) -> bool | None:
    """NULL where only a NULL could be in both, and both have something."""
    if (set(one) & set(other)) - {None}:
        return True
    return None if one and other and None in {*one, *other} else False


def _holds(values: list[Any], value: Any) -> bool | None:
    return True if value in values else None if None in values else False


NESTED: dict[str, Meaning] = {
    "try_element_at(ints, 1)": lambda ints: ints[0] if ints else None,
    "CASE WHEN size(ints) > 0 THEN ints[0] END": lambda ints: ints[0] if ints else None,
    "CASE WHEN size(ints) > 0 THEN element_at(ints, -1) END": lambda ints: ints[-1] if ints else None,
    "tags['k']": lambda tags: tags.get("k"),
    "element_at(tags, 'z')": lambda tags: tags.get("z"),
    "place.city": lambda place: place["city"],
    "place.at.x": lambda place: (place["at"] or {}).get("x"),
    "ARRAY(i, j, 5)": total(lambda i, j: [i, j, 5]),
    "MAP('a', i, 'b', j)": total(lambda i, j: {"a": i, "b": j}),
    "STRUCT(i AS p, s)": total(lambda i, s: (i, s)),
    "concat(ints, more)": lambda ints, more: ints + more,
    "reverse(ints)": lambda ints: ints[::-1],
    "reverse(s)": lambda s: s[::-1],
    "size(names)": lambda names: len(names),
    "cardinality(tags)": lambda tags: len(tags),
    "array_contains(ints, 1)": lambda ints: _holds(ints, 1),
    "array_position(ints, 7)": lambda ints: ints.index(7) + 1 if 7 in ints else 0,
    "array_remove(ints, 7)": lambda ints: [value for value in ints if value != 7],
    "array_append(ints, 9)": lambda ints: [*ints, 9],
    "array_prepend(ints, 9)": lambda ints: [9, *ints],
    "array_distinct(ints)": lambda ints: _unique(ints),
    "array_min(ints)": "list_min(ints)",
    "array_max(ints)": "list_max(ints)",
    "array_join(names, ',')": lambda names: ",".join(name for name in names if name is not None),
    "array_join(names, '|', '?')": lambda names: "|".join("?" if name is None else name for name in names),
    "array_union(ints, more)": lambda ints, more: _unique(ints + more),
    "array_intersect(ints, more)": lambda ints, more: _unique([value for value in ints if value in more]),
    "array_except(ints, more)": lambda ints, more: _unique([value for value in ints if value not in more]),
    "arrays_overlap(ints, more)": lambda ints, more: _overlap(ints, more),
    "array_compact(ints)": lambda ints: [value for value in ints if value is not None],
    "sort_array(ints)": lambda ints: _sorted(ints),
    "sort_array(names, FALSE)": lambda names: (
        sorted((n for n in names if n is not None), reverse=True) + [None] * names.count(None)
    ),
    "slice(ints, 2, 2)": lambda ints: ints[1:3],
    "flatten(ARRAY(ints, more))": lambda ints, more: ints + more,
    "map_keys(tags)": lambda tags: [*tags],
    "map_values(tags)": lambda tags: [*tags.values()],
    "map_contains_key(tags, 'k')": lambda tags: "k" in tags,
}

# By the name of the group in the reference.
GROUPS: dict[str, dict[str, Meaning]] = {
    "Text": TEXT,
    "JSON": JSON,
    "Numbers": NUMBERS,
    "Choices": CHOICES,
    "Time": TIME,
    "Arrays, maps and structs": NESTED,
}
