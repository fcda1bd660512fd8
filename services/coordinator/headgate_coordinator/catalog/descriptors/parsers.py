"""Parsers: how bytes become rows."""

from __future__ import annotations

from dataclasses import dataclass

from headgate_coordinator.catalog.descriptors.options import Option, OptionType

ON_ERROR = Option(
    "on_error",
    OptionType.CHOICE,
    "what happens with a row that cannot be read: `skip` counts it, puts it into the query's topic of error rows and "
    "goes on, `fail` ends the fragment with the row's place",
    default="skip",
    choices=("skip", "fail"),
)
TUPLE_DELIMITER = Option(
    "tuple_delimiter",
    OptionType.TEXT,
    "what stands between two rows",
    default="\n",
    synonyms=("row_delimiter", "record_delimiter"),
    max_length=8,
)


@dataclass(frozen=True, slots=True)
class ParserDescriptor:
    """A parser. `of_streams` are options that make sense only where rows follow each other in a stream of bytes, not
    where each record is a row; `nested` says whether it can carry ARRAY, MAP and STRUCT."""

    name: str
    meaning: str
    options: tuple[Option, ...]
    of_streams: tuple[Option, ...]
    nested: bool
    extensions: tuple[str, ...] = ()

    def options_for(self, records: bool) -> tuple[Option, ...]:
        return self.options if records else self.options + self.of_streams


CSV = ParserDescriptor(
    "CSV",
    "Text with one value a column, in the order of the schema. Timestamps are ISO 8601, BINARY is base64.",
    (
        Option(
            "field_delimiter",
            OptionType.TEXT,
            "what stands between two values",
            default=",",
            synonyms=("delimiter", "separator"),
            max_length=8,
        ),
        Option(
            "quote",
            OptionType.TEXT,
            "what a value with a delimiter in it is wrapped in; empty for nothing",
            default='"',
            synonyms=("quote_character",),
            min_length=0,
            max_length=1,
        ),
        Option(
            "null_string",
            OptionType.TEXT,
            "the text that stands for NULL where it is not quoted",
            default="",
            synonyms=("null", "null_value"),
            min_length=0,
            max_length=64,
        ),
        ON_ERROR,
    ),
    (
        TUPLE_DELIMITER,
        Option(
            "header",
            OptionType.BOOL,
            "whether the first row has the names of the columns, which then decide the order",
            default="false",
        ),
    ),
    nested=False,
    extensions=(".csv", ".tsv", ".txt"),
)
JSON = ParserDescriptor(
    "JSON",
    "One JSON object a row, with values by column name; missing ones are NULL. BINARY is base64.",
    (ON_ERROR,),
    (TUPLE_DELIMITER,),
    nested=True,
    extensions=(".json", ".jsonl", ".ndjson"),
)
PARQUET = ParserDescriptor(
    "PARQUET", "Apache Parquet files; columns are found by name.", (), (), nested=True, extensions=(".parquet",)
)
ARROW = ParserDescriptor(
    "ARROW",
    "Apache Arrow IPC: a stream of record batches; in a topic each record is one.",
    (),
    (),
    nested=True,
    extensions=(".arrow", ".arrows"),
)

PARSERS: dict[str, ParserDescriptor] = {parser.name: parser for parser in (CSV, JSON, PARQUET, ARROW)}


def parser_of_path(path: str) -> ParserDescriptor | None:
    """The parser that a file's name speaks for."""
    lowered = path.lower()
    return next((p for p in PARSERS.values() if lowered.endswith(p.extensions)), None) if lowered else None
