"""Named places where a test may stop or kill the process. Nothing happens at them unless a test has installed a hook.

They stand where a crash would hurt most: between the effect of a step and the record of it, and the other way round.
"""

from __future__ import annotations

from collections.abc import Callable

NAMES = (
    "taken-up",
    "before-register",
    "after-register",
    "registered",
    "before-start",
    "after-start",
    "started",
    "running",
    "stopping",
    "before-unregister",
    "after-unregister",
    "gone",
    "ended",
    "deleted",
)

_hook: Callable[[str], None] | None = None


def install(hook: Callable[[str], None] | None) -> None:
    """For tests only."""
    global _hook  # noqa: PLW0603 - one process, one test
    _hook = hook


def failpoint(name: str) -> None:
    if _hook is not None:
        _hook(name)
