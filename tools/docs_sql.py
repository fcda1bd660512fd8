"""Writes docs/sql/types.md and docs/sql/options.md from the tables of the code, or checks that they are up to date."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path

from headgate_common.durations import show_duration
from headgate_coordinator.catalog.descriptors import PARSERS, SINKS, SOURCES, Option, OptionType
from headgate_coordinator.catalog.descriptors.edges import EDGE_OPTIONS
from headgate_coordinator.catalog.descriptors.generator import MAKERS
from headgate_coordinator.sql.parse.query import QUERY_OPTIONS
from headgate_coordinator.sql.types import TYPES, DataType, Kind, widens

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "sql"
MADE = "Made by `tools/docs_sql.py` from the code; change it there."


def types_page() -> Iterator[str]:
    yield "# Types"
    yield ""
    yield MADE
    yield ""
    yield (
        "Columns are nullable unless declared `NOT NULL`. Case does not matter, synonyms become the canonical type, "
        "and answers always carry the canonical spelling. Elements of arrays and values of maps are nullable; a field "
        "of a struct may be `NOT NULL`. Types nest up to 32 deep."
    )
    yield ""
    yield "| type | synonyms | values | Spark | Arrow | Arrow of Spark |"
    yield "|---|---|---|---|---|---|"
    for row in TYPES.values():
        synonyms = ", ".join(f"`{name}`" for name in row.synonyms)
        forms = f"`{row.spark}` | `{row.arrow}` | `{row.spark_arrow}`"
        yield f"| `{row.declared_as}` | {synonyms} | {row.meaning} | {forms} |"
    yield ""
    yield (
        "Spark has no unsigned integers: they are held by the next larger signed type, `UINT64` by `decimal(20,0)`. "
        "Nothing is lost on the way there and back. `Arrow of Spark` is the Arrow type in which Spark takes and gives "
        "a column."
    )
    yield ""
    yield "## What may be stored where"
    yield ""
    yield (
        "A sink takes a column whose type is its own, or widens to it: every value of the one is a value of the other. "
        "Anything else needs a `CAST`."
    )
    yield ""
    yield "| from | to |"
    yield "|---|---|"
    plain = [
        DataType(kind) for kind in TYPES if kind not in (Kind.DECIMAL, Kind.CHAR, Kind.ARRAY, Kind.MAP, Kind.STRUCT)
    ]
    for source in plain:
        wider = [str(target) for target in plain if target != source and widens(source, target)]
        digits = TYPES[source.kind].digits
        if digits:
            wider.append(f"DECIMAL(p,s) with p - s ≥ {digits}")
        if wider:
            yield f"| `{source}` | {', '.join(f'`{name}`' if '(' not in name else name for name in wider)} |"
    yield "| `DECIMAL(p,s)` | `DECIMAL(q,t)` with t ≥ s and q - t ≥ p - s |"
    yield "| `CHAR(n)`, `VARCHAR(n)` | `CHAR(m)`, `VARCHAR(m)` with m ≥ n, `VARCHAR` |"
    yield "| `ARRAY`, `MAP`, `STRUCT` | the same with wider elements, keys, values or fields (of the same names) |"


def options_page() -> Iterator[str]:
    yield "# Options"
    yield ""
    yield MADE
    yield ""
    yield (
        "Options are written `SET('value' AS SOURCE.NAME, ...)` or `WITH (source.name = 'value', ...)`. The words "
        "before the dot are `SOURCE` and `PARSER` for sources, `SINK` for sinks; without one, an option is of the "
        "source or sink itself. Case does not matter. Durations are written `5 SEC`, `'250 ms'`, `1m`; in strings, "
        "`\\n` is a newline and `\\t` a tab. An option that is unknown, missing, out of range or without effect is "
        "refused, and all such problems are reported together. Secrets are stored, sent to the agents that need them, "
        "and answered as "
        "`[redacted]`."
    )
    for source in SOURCES.values():
        yield from section(f"{source.name} source", source.meaning, source.options)
        yield ""
        yield source_notes(source.name)
        if source.name == "GENERATOR":
            yield from makers()
    yield ""
    yield "# Parsers"
    for parser in PARSERS.values():
        yield from section(f"{parser.name} parser", parser.meaning, parser.options + parser.of_streams)
        if parser.of_streams:
            names = ", ".join(f"`{option.name}`" for option in parser.of_streams)
            yield ""
            yield f"Where each record is a row (KAFKA, TOPIC), {names} cannot be given."
    yield ""
    yield "# Sinks"
    for sink in SINKS.values():
        yield from section(f"{sink.name} sink", sink.meaning, sink.options)
        yield ""
        updates = {
            "FILE": "It takes no updates: an aggregation needs a window.",
            "KAFKA": "It takes updates where it has a `key_column`.",
            "TOPIC": "It takes updates where it has a `key_column`.",
        }.get(sink.name, "It takes updates.")
        place = "It is written by one agent, which `ON` names." if sink.node_local else "It needs no agent."
        yield f"{place} {updates}"
    yield ""
    yield "# Queries"
    yield ""
    yield "`WITH (...)` at the end of a query:"
    yield ""
    yield "| option | meaning |"
    yield "|---|---|"
    for name, meaning in QUERY_OPTIONS.items():
        yield f"| `{name}` | {meaning} |"
    how = "With `edges = 'kafka'` ([modes.md](../modes.md#edges-on-kafka)):"
    yield from section("Edges on Kafka", how, EDGE_OPTIONS)


def source_notes(name: str) -> str:
    source = next(source for source in SOURCES.values() if source.name == name)
    place = "It is read on one agent, which `ON` names." if source.node_local else "It needs no agent."
    parsers = f"Parsers: {', '.join(source.parsers)}" if source.parsers else "It takes no parser"
    default = f"; {source.default_parser} if none is named." if source.default_parser else "."
    return f"{place} {parsers}{default}"


def makers() -> Iterator[str]:
    yield ""
    yield "How values are made (`field.<column>`); a column of which nothing is said gets something that fits its type:"
    yield ""
    yield "| call | makes |"
    yield "|---|---|"
    for maker in MAKERS.values():
        yield f"| `{maker.name}({maker.arguments})` | {maker.meaning} |"


def section(title: str, meaning: str, options: tuple[Option, ...]) -> Iterator[str]:
    yield ""
    yield f"## {title}"
    yield ""
    yield meaning
    if not options:
        return
    yield ""
    yield "| option | synonyms | value | default | meaning |"
    yield "|---|---|---|---|---|"
    for option in options:
        synonyms = ", ".join(f"`{name}`" for name in option.synonyms)
        yield f"| `{option.name}` | {synonyms} | {value_of(option)} | {default_of(option)} | {option.meaning} |"


def value_of(option: Option) -> str:
    if option.type is OptionType.CHOICE:
        return ", ".join(f"`{choice}`" for choice in option.choices)
    show: Callable[[float], str] = lambda n: f"{n:,g}" if abs(n) < 1e6 else f"{n:.3g}"  # noqa: E731
    if option.type is OptionType.DURATION:
        show = lambda n: show_duration(int(n))  # noqa: E731
    text = f"{option.type}, secret" if option.secret else str(option.type)
    if option.low is not None and option.high is not None:
        return f"{text}, {show(option.low)} to {show(option.high)}"
    return text


def default_of(option: Option) -> str:
    if option.required:
        return "required"
    return f"`{json.dumps(option.default)}`" if option.default is not None else ""


PAGES: dict[str, Callable[[], Iterator[str]]] = {"types.md": types_page, "options.md": options_page}


def page(name: str) -> str:
    return "\n".join(PAGES[name]()) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if a page differs")
    check = parser.parse_args().check
    stale = [name for name in PAGES if not (FOLDER / name).exists() or (FOLDER / name).read_text() != page(name)]
    for name in stale:
        if check:
            print(f"out of date: docs/sql/{name}; run tools/docs_sql.py")
        else:
            FOLDER.mkdir(parents=True, exist_ok=True)
            (FOLDER / name).write_text(page(name))
            print(f"wrote docs/sql/{name}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
