"""docs/errors.md says what the code says."""

from __future__ import annotations

import docs_errors

from headgate_common.errors import OVERLOADED
from headgate_coordinator.errors import INSUFFICIENT_CAPACITY, REASONS


def test_the_errors_page_is_up_to_date() -> None:
    assert docs_errors.PAGE.read_text() == docs_errors.page(), "run tools/docs_errors.py"


def test_every_reason_is_on_the_page() -> None:
    page = docs_errors.PAGE.read_text()
    assert all(f"| `{reason.name}` | `{reason.code.name}` |" in page for reason in REASONS)


def test_overload_and_lack_of_capacity_have_different_codes() -> None:
    assert OVERLOADED.code is not INSUFFICIENT_CAPACITY.code


# Errors of the request and invariant tables of the coordinator document.
DOCUMENTED = (
    "AlreadyExists",
    "EmptySchema",
    "InvalidSchema",
    "WorkerDoesNotExistForPhysical",
    "LogicalSourceDoesNotExistForPhysical",
    "SourceTypeDoesNotExist",
    "InvalidConfig",
    "WorkerDoesNotExistForSink",
    "SinkTypeDoesNotExist",
    "ParserError",
    "SinkDoesNotExistForQuery",
    "BinderError",
    "OptimizerError",
    "PlacementError",
    "ReferencedPhysicalSourceExists",
    "ReferencedQueryExists",
    "ReferencedSourceExists",
    "ReferencedSinkExists",
    "DoesNotExist",
    "WorkerNotFound",
    "LogicalSourceNotFound",
    "InvalidAddress",
    "UnreachableNode",
    "InvalidTopology",
    "InsufficientCapacity",
    "PhysicalSourcesExist",
    "ActiveQueriesExist",
    "WorkerBusy",
    "NameLocked",
)


def test_every_documented_error_has_a_reason() -> None:
    known = {reason.name.replace("_", "").lower() for reason in REASONS}
    known |= {synonym.lower() for reason in REASONS for synonym in reason.synonyms}
    assert [name for name in DOCUMENTED if name.lower() not in known] == []
