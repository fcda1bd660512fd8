"""Functions of text, bytes, regular expressions and JSON."""

from __future__ import annotations

from collections.abc import Sequence

from headgate_coordinator.sql.algebra import Expr, Literal
from headgate_coordinator.sql.functions.formats import FormatFault, check_format
from headgate_coordinator.sql.functions.regular import RegularFault, check_regular, check_replacement
from headgate_coordinator.sql.functions.signature import (
    ANY,
    BYTES,
    COMPARABLE,
    INTEGER,
    NESTED,
    NUMBER,
    SMALL,
    SMALL_LITERAL,
    TEXT,
    TEXT_LITERAL,
    TEXT_OR_BYTES,
    ArgumentFault,
    Function,
    Param,
    as_computed,
    literal_int,
    literal_text,
)
from headgate_coordinator.sql.types import (
    BINARY,
    BOOL,
    INT32,
    INT64,
    VARCHAR,
    DataType,
    Kind,
    TypeSyntaxError,
    array,
    parse_type,
)


def _groups(args: Sequence[Expr]) -> int:
    """The number of groups of a regular expression, which is the second argument."""
    pattern = literal_text(args, 1)
    if len(pattern) > 10_000:
        raise ArgumentFault(1, "is longer than 10,000 characters")
    try:
        return check_regular(pattern)
    except RegularFault as fault:
        raise ArgumentFault(1, f"is no regular expression: it {fault.message}", fault.suggestion) from None


def _regexp(result: DataType) -> object:
    def check(args: Sequence[Expr]) -> DataType:
        _groups(args)
        return result

    return check


def _extracted(result: DataType) -> object:
    """A group of a regular expression: the first, or the one that the third argument counts."""

    def check(args: Sequence[Expr]) -> DataType:
        groups = _groups(args)
        if len(args) == 2:
            if not groups:
                raise ArgumentFault(1, "has no group", "bracket what is meant, or ask for group 0, the whole match")
            return result
        asked = args[2].value if isinstance(args[2], Literal) else None
        if isinstance(asked, int) and not 0 <= asked <= groups:
            raise ArgumentFault(2, f"asks for group {asked}", f"the pattern has {groups}; 0 is the whole match")
        return result

    return check


def _replaced(args: Sequence[Expr]) -> DataType:
    groups = _groups(args)
    if isinstance(args[2], Literal) and isinstance(args[2].value, str):
        try:
            check_replacement(args[2].value, groups)
        except RegularFault as fault:
            raise ArgumentFault(2, fault.message, fault.suggestion) from None
    return VARCHAR


def _formatted(args: Sequence[Expr]) -> DataType:
    try:
        check_format(literal_text(args, 0), [arg.type for arg in args[1:]])
    except FormatFault as fault:
        raise ArgumentFault(fault.index, fault.message, fault.suggestion) from None
    return VARCHAR


def _path(args: Sequence[Expr]) -> DataType:
    if not literal_text(args, 1).startswith("$"):
        raise ArgumentFault(1, "is no JSON path", "a path begins with $, such as '$.a.b[0]'")
    return VARCHAR


def _from_json(args: Sequence[Expr]) -> DataType:
    text = literal_text(args, 1)
    try:
        type_ = parse_type(text)
    except TypeSyntaxError:
        try:
            type_ = parse_type(f"STRUCT<{text}>")
        except TypeSyntaxError as error:
            ended = error.offset >= len("STRUCT<") + len(text)
            fault = "it ends where a type must follow" if ended else error.message
            raise ArgumentFault(1, f"is no type: {fault}", "write 'STRUCT<a: INT32, b: VARCHAR>'") from None
    if type_.kind not in (Kind.STRUCT, Kind.ARRAY, Kind.MAP):
        raise ArgumentFault(1, "must be a STRUCT, ARRAY or MAP")
    return type_


def _sha2_bits(args: Sequence[Expr]) -> DataType:
    if literal_int(args, 1, 256) not in (0, 224, 256, 384, 512):
        raise ArgumentFault(1, "must be 224, 256, 384 or 512")
    return VARCHAR


_CHARSETS = ("UTF-8", "US-ASCII", "ISO-8859-1", "UTF-16", "UTF-16BE", "UTF-16LE", "UTF-32")


def _charset(result: DataType) -> object:
    def check(args: Sequence[Expr]) -> DataType:
        if literal_text(args, 1).upper() not in _CHARSETS:
            raise ArgumentFault(1, "is no known character set", "one of " + ", ".join(_CHARSETS))
        return result

    return check


def _f(name: str, params: Sequence[Param], result: object, **more: object) -> Function:
    return Function(name, tuple(params), result, group="Text", **more)  # type: ignore[arg-type]


TEXT_FUNCTIONS = (
    _f("upper", [TEXT], VARCHAR, synonyms=("ucase",)),
    _f("lower", [TEXT], VARCHAR, synonyms=("lcase",)),
    _f("initcap", [TEXT], VARCHAR),
    _f("length", [TEXT_OR_BYTES], INT32, synonyms=("char_length", "character_length", "len")),
    _f("octet_length", [TEXT_OR_BYTES], INT32),
    _f("bit_length", [TEXT_OR_BYTES], INT32),
    _f("trim", [TEXT], VARCHAR, optional=(TEXT,), spark="trim(BOTH {1} FROM {0})"),
    _f("ltrim", [TEXT], VARCHAR, optional=(TEXT,), spark="trim(LEADING {1} FROM {0})"),
    _f("rtrim", [TEXT], VARCHAR, optional=(TEXT,), spark="trim(TRAILING {1} FROM {0})"),
    _f("substring", [TEXT_OR_BYTES, SMALL], as_computed(), optional=(SMALL,), synonyms=("substr",)),
    _f("left", [TEXT, SMALL], VARCHAR),
    _f("right", [TEXT, SMALL], VARCHAR),
    _f("lpad", [TEXT, SMALL, TEXT], VARCHAR),
    _f("rpad", [TEXT, SMALL, TEXT], VARCHAR),
    _f("repeat", [TEXT, SMALL], VARCHAR),
    _f("replace", [TEXT, TEXT], VARCHAR, optional=(TEXT,)),
    _f("translate", [TEXT, TEXT, TEXT], VARCHAR),
    _f("overlay", [TEXT, TEXT, SMALL], VARCHAR, optional=(SMALL,)),
    _f("concat_ws", [TEXT, TEXT], VARCHAR, variadic=TEXT),
    _f("split", [TEXT, TEXT_LITERAL], _regexp(array(VARCHAR)), optional=(SMALL,)),
    _f("split_part", [TEXT, TEXT, SMALL], VARCHAR),
    _f("instr", [TEXT, TEXT], INT32),
    _f("locate", [TEXT, TEXT], INT32, optional=(SMALL,)),
    _f("position", [TEXT, TEXT], INT32),
    _f("startswith", [TEXT, TEXT], BOOL),
    _f("endswith", [TEXT, TEXT], BOOL),
    _f("contains", [TEXT, TEXT], BOOL),
    _f("ascii", [TEXT], INT32),
    _f("chr", [INTEGER], VARCHAR, synonyms=("char",)),
    _f("space", [SMALL], VARCHAR),
    _f("levenshtein", [TEXT, TEXT], INT32),
    _f("soundex", [TEXT], VARCHAR),
    _f("format_string", [TEXT_LITERAL], _formatted, variadic=ANY, synonyms=("printf",)),
    _f("format_number", [NUMBER, SMALL_LITERAL], VARCHAR),
    _f("base64", [TEXT_OR_BYTES], VARCHAR),
    _f("unbase64", [TEXT], BINARY),
    _f("encode", [TEXT, TEXT_LITERAL], _charset(BINARY)),
    _f("decode", [BYTES, TEXT_LITERAL], _charset(VARCHAR)),
    _f("md5", [TEXT_OR_BYTES], VARCHAR),
    _f("sha1", [TEXT_OR_BYTES], VARCHAR, synonyms=("sha",)),
    _f("sha2", [TEXT_OR_BYTES, SMALL_LITERAL], _sha2_bits),
    _f("crc32", [TEXT_OR_BYTES], INT64),
    _f("hex", [TEXT_OR_BYTES], VARCHAR),
    _f("unhex", [TEXT], BINARY, null_if="always"),
    _f("hash", [COMPARABLE], INT32, variadic=COMPARABLE, null_if="never"),
    _f("xxhash64", [COMPARABLE], INT64, variadic=COMPARABLE, null_if="never"),
    _f("regexp_like", [TEXT, TEXT_LITERAL], _regexp(BOOL), synonyms=("rlike", "regexp")),
    _f("regexp_extract", [TEXT, TEXT_LITERAL], _extracted(VARCHAR), optional=(SMALL,)),
    _f("regexp_extract_all", [TEXT, TEXT_LITERAL], _extracted(array(VARCHAR)), optional=(SMALL,)),
    _f("regexp_replace", [TEXT, TEXT_LITERAL, TEXT], _replaced),
    _f("regexp_count", [TEXT, TEXT_LITERAL], _regexp(INT32)),
    _f("regexp_instr", [TEXT, TEXT_LITERAL], _regexp(INT32)),
    _f("regexp_substr", [TEXT, TEXT_LITERAL], _regexp(VARCHAR), null_if="always"),
)


def _j(name: str, params: Sequence[Param], result: object) -> Function:
    return Function(name, tuple(params), result, null_if="always", group="JSON")  # type: ignore[arg-type]


JSON_FUNCTIONS = (
    _j("get_json_object", [TEXT, TEXT_LITERAL], _path),
    _j("from_json", [TEXT, TEXT_LITERAL], _from_json),
    _j("to_json", [NESTED], VARCHAR),
    _j("json_array_length", [TEXT], INT32),
    _j("json_object_keys", [TEXT], array(VARCHAR)),
)
