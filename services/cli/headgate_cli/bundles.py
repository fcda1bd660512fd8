"""Bundles: many statements or requests of which all happen or none.

A bundle file is SQL, or JSON in the form of ApplyBundleRequest (`{"items": [...]}`), which is what `export` can write
too. Problems are told with their place in the file, although every statement is an item of its own.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from google.protobuf import json_format

from headgate.catalog import v1 as catalog
from headgate_cli.connection import Connection
from headgate_cli.failures import ExitCode, Failure
from headgate_cli.statements import Bundle as StatementBundle
from headgate_cli.statements import Piece, group, split
from headgate_common.errors import HeadgateError

MOST_ITEMS = 1000


@dataclass(frozen=True, slots=True)
class BundleText:
    """The items of a bundle, and for those that are statements, where they stand in the text."""

    items: tuple[catalog.BundleItem, ...]
    places: tuple[Piece | None, ...]


def read_bundle(text: str, name: str) -> BundleText:
    """The bundle that a file holds. Where the whole of it stands between BEGIN and COMMIT, that is the bundle too."""
    if name.endswith(".json") or text.lstrip().startswith("{"):
        return _read_json(text, name)
    pieces = split(text)
    grouped = group(pieces)
    flat = [p for entry in grouped for p in (entry.pieces if isinstance(entry, StatementBundle) else (entry,))]
    if not flat:
        raise Failure(ExitCode.USAGE, f"{name} has no statement in it")
    return of_pieces(flat)


def of_pieces(pieces: Sequence[Piece]) -> BundleText:
    return BundleText(tuple(catalog.BundleItem(statement=piece.text) for piece in pieces), tuple(pieces))


def _read_json(text: str, name: str) -> BundleText:
    try:
        read = json.loads(text)
        if not isinstance(read, dict):
            raise Failure(ExitCode.USAGE, f'{name} is not a bundle: expected {{"items": [...]}}')
        request = json_format.ParseDict(read, catalog.ApplyBundleRequest())
    except (json.JSONDecodeError, json_format.ParseError, RecursionError) as error:
        raise Failure(ExitCode.USAGE, f"{name} is not a bundle: {error}") from error
    if not request.items:
        raise Failure(ExitCode.USAGE, f"{name} has no items")
    return BundleText(tuple(request.items), tuple(None for _ in request.items))


async def apply(connection: Connection, bundle: BundleText, *, validate_only: bool) -> catalog.ApplyBundleResponse:
    """Applies a bundle. A HeadgateError points into the text that the bundle was read from."""
    request = catalog.ApplyBundleRequest(
        items=bundle.items, validate_only=validate_only, request_id="" if validate_only else connection.request_id()
    )
    try:
        answer: catalog.ApplyBundleResponse = await connection.call("StatementService.ApplyBundle", request)
    except HeadgateError as error:
        raise _placed(error, bundle) from error
    return answer


def _placed(error: HeadgateError, bundle: BundleText) -> HeadgateError:
    """The same error, with problems counted from the beginning of the file."""
    failure = next((detail for detail in error.details if isinstance(detail, catalog.StatementFailure)), None)
    if failure is None or failure.index >= len(bundle.places):
        return error
    piece = bundle.places[failure.index]
    count = f"{failure.index + 1} of {len(bundle.places)}"
    if piece is None:
        message = f"item {count}: {failure.message}"
        return HeadgateError(error.reason, message, metadata=error.metadata, details=error.details)
    details = [
        moved(detail, piece) if isinstance(detail, catalog.StatementProblem) else detail for detail in error.details
    ]
    message = f"statement {count} (line {piece.line}): {failure.message}"
    return HeadgateError(error.reason, message, metadata=error.metadata, details=details)


def moved(problem: catalog.StatementProblem, piece: Piece) -> catalog.StatementProblem:
    """A problem whose place is counted in the text that the statement was cut out of."""
    result = catalog.StatementProblem()
    result.CopyFrom(problem)
    if problem.line == 1:
        result.column = problem.column + piece.column - 1
    if problem.line:
        result.line = problem.line + piece.line - 1
    return result
